// Each plane alone, on one running lab: exactly one is closed by a commit in org A's registry, and somebody
// looks from outside. What the plane claims is refused by its own layer, and everything else passes. Once for
// org B, a partner; once for org C, let in by every other plane, so that this one alone can refuse it.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { clientIds } from "../../../../lab/organisations.ts";
import type { PlaneName } from "../../../../src/federation/plane-order.ts";
import { Questions } from "../../../support/lab-questions.ts";
import { LabSession } from "../../../support/lab-session.ts";
import { type Found, OnePlane, type Onlooker } from "../../../support/one-plane.ts";

const ANSWERED = "completed: reply answered";

/** Everything that is tried; with no witness in the lab. */
const OPEN: Found = {
  token_request: "open",
  invoke: "open",
  card_fetch: "open",
  federation_send: "open",
  invite: "open",
  make_join: "open",
  message_to_target: "open",
  message_to_partner: "open",
  event_at_target: "open",
  backfill_at_target: "open",
};

/** What one closed plane alone refuses, and in whose words. */
const REFUSED: Readonly<Record<PlaneName, Found>> = {
  gateway: {
    token_request: "closed: issuer invalid_client",
    invoke: "closed: gateway rbac_access_denied",
  },
  card: { card_fetch: "closed: gateway no_route" },
  border: {
    invite: "closed: border dropped",
    make_join: "closed: border not_allowed",
    message_to_target: "closed: border server_not_allowed",
  },
  transport: {
    federation_send: "closed: transport federation_denied",
    invite: "closed: transport federation_denied",
    make_join: "closed: transport federation_denied",
    message_to_target: "closed: transport federation_denied",
    message_to_partner: "closed: transport federation_denied",
    event_at_target: "closed: transport federation_denied",
    backfill_at_target: "closed: transport federation_denied",
  },
  rooms: {
    make_join: "closed: room_acl server_banned",
    remote_join: "closed: room_acl server_banned",
    message_to_target: "closed: room_membership no_member",
    message_to_partner: "closed: room_membership no_member",
    event_at_target: "closed: room_membership no_member",
    backfill_at_target: "closed: room_acl server_banned",
  },
};

/** The registry's file of org C in these tests: a partner like any other. */
const applicant = (serverName: string) => ({
  version: 1,
  serverName,
  classification: "public",
  azp: clientIds.applicant,
  issuer: "https://issuer.org-c.test",
  gateway: { invokes: ["docs-qa"], clientSecret: { file: `secrets/${clientIds.applicant}.secret` } },
});

describe("each plane alone", () => {
  describe("each plane alone", () => {
    let lab: LabSession;
    let planes: OnePlane;
    let partner: Onlooker;
    let outsider: Onlooker;

    before(async () => {
      lab = await LabSession.start();
      const questions = new Questions(lab);
      await questions.plant();
      await lab.start("org-a/reconciler");
      planes = new OnePlane(lab, questions);
      // A room that is replaced stays so; one that is read-only is writable again.
      await planes.declare({
        "partners/org-b": (entry) => ({ ...entry, rooms: { whenRemoved: "read_only" } }),
      });
      partner = await planes.onlooker("org-b", clientIds.bridgeOf("org-b"));
      await planes.finds(partner, OPEN);
    });
    after(() => lab?.end());

    /** Closes it, looks, opens it again and looks. */
    async function closesAlone(who: Onlooker, plane: PlaneName): Promise<void> {
      await planes.close(who.organisation, plane);
      await planes.finds(who, { ...OPEN, ...REFUSED[plane] });
      if (plane === "card") assert.equal(await planes.asks(who), "denied: policy sender_policy_rejected");
      await planes.close(who.organisation);
      if (plane === "rooms") await planes.enter(who);
      await planes.finds(who, OPEN);
      if (plane === "card") assert.equal(await planes.asks(who), ANSWERED);
    }

    it("with every other plane open, plane 5 alone refuses a partner tokens and its held token [PLN-5]", () =>
      closesAlone(partner, "gateway"));
    it("with every other plane open, plane 4 alone withdraws the card and refuses questions [PLN-4]", () =>
      closesAlone(partner, "card"));
    it("with every other plane open, plane 3 alone keeps a partner's invitations, joins and messages out [PLN-3]", () =>
      closesAlone(partner, "border"));
    it("with every other plane open, plane 1 alone refuses all federation, and no call to an agent [PLN-1]", () =>
      closesAlone(partner, "transport"));
    it("with every other plane open, plane 2 alone takes a partner out of the room [PLN-2]", () =>
      closesAlone(partner, "rooms"));

    it("org C is let in where the registry names it a partner, so that each plane can be tried alone [NEG-1]", async () => {
      await planes.declare({
        organisation: (entry) => ({
          ...entry,
          clients: (entry["clients"] as { clientId: string }[]).filter(
            ({ clientId }) => clientId !== clientIds.applicant,
          ),
        }),
        // A card is public or not for everybody: org C alone consumes it here.
        "partners/org-b": (entry) => ({ ...entry, planes: { card: "closed" } }),
        "partners/org-c": () => ({
          ...applicant(lab.lab.serverNames["org-c"]),
          rooms: { whenRemoved: "read_only" },
        }),
      });
      outsider = await planes.onlooker("org-c", clientIds.applicant);
      await planes.finds(outsider, OPEN);
      assert.equal(await planes.asks(outsider), ANSWERED);
    });
    it("org C is refused by plane 5 where that plane alone can refuse it [NEG-1]", () =>
      closesAlone(outsider, "gateway"));
    it("org C is refused by plane 4 where that plane alone can refuse it [NEG-1]", () =>
      closesAlone(outsider, "card"));
    it("org C is refused by plane 3 where that plane alone can refuse it [NEG-1]", () =>
      closesAlone(outsider, "border"));
    it("org C is refused by plane 1 where that plane alone can refuse it [NEG-1]", () =>
      closesAlone(outsider, "transport"));
    it("org C is refused by plane 2 where that plane alone can refuse it [NEG-1]", () =>
      closesAlone(outsider, "rooms"));
  });
});
