// Each plane alone, on one running lab: exactly one is closed by a commit in org A's registry, and it is
// probed from outside. What the plane promises is refused by its own layer, and everything else passes: once
// for org B, a partner; once for org C, admitted by every other plane, so that this one alone can refuse it.
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { parse, stringify } from "yaml";
import { BRANCH } from "../../../../lab/configuration/control-repository.ts";
import type { MatrixUser } from "../../../../lab/matrix-user.ts";
import { clientIds } from "../../../../lab/organisations.ts";
import { personOf } from "../../../../lab/seed/seed-file.ts";
import { federationStatus, planesBehind } from "../../../../lab/status/federation.ts";
import { systemClock, systemRandom } from "../../../../src/domain/clock.ts";
import type { RoomId } from "../../../../src/domain/identifiers.ts";
import { violationOf } from "../../../../src/federation/evidence/observe-from-outside.ts";
import { PLANE_NAMES, type PlaneName } from "../../../../src/federation/plane-order.ts";
import { loadProbeConfig, type ProbeConfig } from "../../../../src/federation/probes/config.ts";
import { probeFromOutside } from "../../../../src/federation/probes/from-outside.ts";
import { Repository } from "../../../../src/federation/repository/repository.ts";
import { wasNotTried } from "../../../../src/records/conditions/evaluate.ts";
import { readSecret } from "../../../../src/runtime/secrets.ts";
import { PRIVATE, writeWhole } from "../../../../src/runtime/write-file.ts";
import { commitRegistry } from "../../../support/control-repository.ts";
import { Questions } from "../../../support/lab-questions.ts";
import { eventually, LabSession } from "../../../support/lab-session.ts";

const SOURCES = { clock: systemClock, random: systemRandom };
const IN_FORCE_MS = 60_000;
const AS_WANTED_MS = 40_000;

type Entry = Record<string, unknown>;

/** What each probe found: `open`, or the layer that refused and its reason. */
export type Found = Readonly<Record<string, string>>;

/** Somebody who is looked at org A as. */
export interface Onlooker {
  readonly organisation: "org-b" | "org-c";
  /** The client that its tokens carry. */
  readonly azp: string;
  /** A room of org A's with this onlooker's person and org A's own ghost in it. */
  readonly room: RoomId;
  readonly probes: ProbeConfig;
}

export class OnePlane {
  readonly #lab: LabSession;
  readonly #questions: Questions;

  constructor(lab: LabSession, questions: Questions) {
    this.#lab = lab;
    this.#questions = questions;
  }

  /** Edits files of org A's registry, by their name in it, and waits until every plane is in force. */
  async declare(edits: Readonly<Record<string, (entry: Entry) => Entry>>): Promise<void> {
    const repository = await Repository.open(this.#paths.controlRepository, BRANCH);
    const files = await repository.read(await repository.requireHead(), ["registry"]);
    const changes = Object.entries(edits).map(([name, edit]) => {
      const path = `registry/${name}.yaml`;
      return [path, stringify(edit(parse(files.get(path) ?? "{}") as Entry))] as const;
    });
    const revision = await commitRegistry(repository, new Map(changes));
    await eventually(
      "the reconciler applies it",
      async () => {
        const status = await federationStatus(this.#lab.lab, "org-a");
        return status.revision === revision && planesBehind(status).length === 0;
      },
      IN_FORCE_MS,
    );
  }

  /** Closes exactly these planes for a partner. */
  close(partner: string, ...closed: readonly PlaneName[]): Promise<void> {
    const planes = Object.fromEntries(
      PLANE_NAMES.map((plane) => [plane, closed.includes(plane) ? "closed" : "open"]),
    );
    return this.declare({ [`partners/${partner}`]: (entry) => ({ ...entry, planes }) });
  }

  /** Makes the onlooker's room; its person joins. Every plane must be open to it. */
  async onlooker(organisation: Onlooker["organisation"], azp: string): Promise<Onlooker> {
    const alice = this.#questions.personOf("org-a");
    const ghost = this.#questions.ghostOf("org-a", "org-a");
    const room = await alice.createRoom({ preset: "public_chat", visibility: "private", invite: [ghost] });
    await eventually("the ghost joins", async () => (await alice.members(room)).includes(ghost));
    const found = loadProbeConfig(this.#paths.probeFile(organisation));
    const probes: ProbeConfig = {
      ...found,
      target: { ...found.target, rooms: [room] },
      as: { ...found.as, client: await this.#holdingToken(found, organisation) },
      arrivalTimeout: 3_000,
    };
    const onlooker = { organisation, azp, room, probes };
    await this.enter(onlooker);
    return onlooker;
  }

  /** The onlooker's person joins its room. */
  async enter({ organisation, room }: Onlooker): Promise<void> {
    await eventually("the onlooker's person is in the room", async () => {
      const { status } = await this.#personOf(organisation).join(room, [this.#lab.lab.serverNames["org-a"]]);
      return status === 200;
    });
  }

  /** Looks until it finds what is wanted: a server that was refused asks again only after a while. */
  async finds(onlooker: Onlooker, wanted: Found): Promise<void> {
    const deadline = systemClock.now() + AS_WANTED_MS;
    for (;;) {
      const found = await this.#observe(onlooker);
      try {
        assert.deepEqual(found, wanted);
        return;
      } catch (error) {
        if (systemClock.now() > deadline) throw error;
      }
    }
  }

  async #observe({ probes, azp }: Onlooker): Promise<Found> {
    const partner = { serverName: probes.as.serverName, azp };
    const items = await probeFromOutside(probes, SOURCES, {
      violationOf: (eventId) => violationOf(this.#paths.violationsFile, partner, eventId),
    });
    const reported = items
      .filter((item) => !wasNotTried(item))
      .map(({ probe, verdict, layer, reason }) => [
        probe,
        verdict === "open" ? "open" : `${verdict}: ${layer} ${reason}`,
      ]);
    return Object.fromEntries(reported);
  }

  /** What became of a question of the onlooker's person to org A's own ghost. */
  async ask({ organisation, room }: Onlooker): Promise<string> {
    const asker = this.#personOf(organisation);
    const asked = await this.#questions.ask([room], "org-a", { publisher: "org-a", asker });
    const [row] = await this.#questions.ended(asked);
    return `${row?.state}: ${row?.terminal_stage} ${row?.terminal_reason}`;
  }

  #personOf(organisation: Onlooker["organisation"]): MatrixUser {
    return personOf(this.#lab.lab, this.#lab.seed, organisation, SOURCES);
  }

  get #paths() {
    return this.#lab.lab.paths.organisation("org-a");
  }

  /** The client with a token that was issued while it was let in, as a partner holds one. */
  async #holdingToken({ as, target, directory }: ProbeConfig, name: string) {
    const { client } = as;
    assert.ok(client !== undefined && target.tokenEndpoint !== undefined && target.audience !== undefined);
    const secret = readSecret(client.clientSecret, directory);
    const response = await fetch(target.tokenEndpoint, {
      method: "POST",
      headers: {
        authorization: `Basic ${Buffer.from(`${client.clientId}:${secret}`).toString("base64")}`,
      },
      body: new URLSearchParams({ grant_type: "client_credentials", resource: target.audience }),
    });
    assert.equal(response.status, 200);
    const { access_token: token } = (await response.json()) as { access_token: string };
    const file = join(this.#paths.federation, `held-${name}.token`);
    writeWhole(file, token, PRIVATE);
    return { ...client, heldToken: { file } };
  }
}

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
  gateway: { invokes: ["docs-qa"], clientSecret: { file: `client-secrets/${clientIds.applicant}.secret` } },
});

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
    if (plane === "card") assert.equal(await planes.ask(who), "denied: policy sender_policy_rejected");
    await planes.close(who.organisation);
    if (plane === "rooms") await planes.enter(who);
    await planes.finds(who, OPEN);
    if (plane === "card") assert.equal(await planes.ask(who), ANSWERED);
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

  it("org C is admitted when the registry names it a partner, so that each plane can be tried alone [NEG-1]", async () => {
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
    assert.equal(await planes.ask(outsider), ANSWERED);
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
