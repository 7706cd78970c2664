// When a plane counts as open to a partner that comes back: what its parts say, and never what nobody saw.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { PLANE_NAMES, type PlaneName } from "../../../../src/federation/plane-order.ts";
import type { Judged } from "../../../../src/federation/probes/judge.ts";
import {
  isMet,
  judgeOpen,
  type OpenObservation,
} from "../../../../src/federation/readmission/judge-plane.ts";
import {
  type EvidenceItem,
  type EvidenceItemBody,
  evidenceItem,
} from "../../../../src/records/format/evidence-item.ts";
import { kept } from "../../../support/readmission.ts";

function item(
  plane: PlaneName,
  probe: string,
  verdict: EvidenceItem["verdict"],
  more: Partial<EvidenceItemBody> = {},
) {
  return evidenceItem({
    ...{ schema: "svc.federation.evidence_item.v1", plane, partner: "b.test", probe, vantage: "operator" },
    ...{ subject: null, layer: "homeserver", status: null, reason: null, references: [], verdict },
    ...{ at: "2026-01-02T03:04:05.000Z", duration_ms: null, ...more },
  });
}

function seen(plane: PlaneName, more: Partial<OpenObservation> = {}): OpenObservation {
  return {
    ...{
      plane,
      outcome: "in_force",
      reason: null,
      inside: [],
      outside: [],
      touched: [],
      invokes: ["docs-qa"],
    },
    ...{ targets: new Map([["b-docs", "sha256:new"]]), hasBridge: true, hasGateway: true, ...more },
  };
}

const isOpen = (what: OpenObservation) => judgeOpen(what).every(isMet);
const verdictOf = (what: OpenObservation, name: string) =>
  judgeOpen(what).find(({ condition }) => condition === name)?.verdict;

describe("judgeOpen", () => {
  it("judgeOpen says unknown for a plane that nobody observed, whatever the reconciler says [RDM-1]", () => {
    for (const plane of PLANE_NAMES) {
      const bare = seen(plane);
      assert.equal(isOpen(bare), plane === "rooms", `${plane}: without any room there is nothing to see`);
      assert.equal(isOpen({ ...bare, inside: [item(plane, "probe", "open")], outcome: "incomplete" }), false);
    }
  });

  it("judgeOpen refuses when one part says closed or does not answer [RDM-1]", () => {
    const probes = { transport: "whitelist", border: "policy", gateway: "callers_in_force" } as const;
    for (const [plane, probe] of Object.entries(probes) as [keyof typeof probes, string][]) {
      const good = item(plane, probe, "open");
      assert.equal(isOpen(seen(plane, { inside: [good] })), true, plane);
      for (const verdict of ["closed", "unknown"] as const) {
        assert.equal(isOpen(seen(plane, { inside: [good, item(plane, "other", verdict)] })), false, plane);
      }
    }
  });

  it("judgeOpen refuses a lifted ACL that the homeserver still enforces [RDM-1]", () => {
    const room = (probe: string, verdict: EvidenceItem["verdict"], more: Partial<EvidenceItemBody> = {}) =>
      item("rooms", probe, verdict, { subject: "!a", ...more });
    const touched = [kept("!a")];
    const state = room("room_acl", "open");
    assert.equal(verdictOf(seen("rooms", { touched, inside: [state] }), "kept_rooms_hear_it"), "unknown");
    const stale = room("room_enforcement", "closed", { reason: "stale_at_home" });
    assert.equal(
      verdictOf(seen("rooms", { touched, inside: [state, stale] }), "kept_rooms_hear_it"),
      "not_met",
    );
    const heard = room("room_enforcement", "open");
    const empty = room("room_members", "closed");
    assert.equal(
      isOpen(seen("rooms", { touched, inside: [state, heard, empty] })),
      true,
      "nobody is in it yet",
    );
    const retained = room("room_acl_at_retained", "unknown", { reason: "unproven_at_retained" });
    assert.equal(isOpen(seen("rooms", { touched, inside: [state, heard, retained] })), false);
    const elsewhere = item("rooms", "room_enforcement", "closed", { subject: "!b", reason: "stale_at_home" });
    assert.equal(
      isOpen(seen("rooms", { touched, inside: [state, heard, elsewhere] })),
      false,
      "also elsewhere",
    );
  });

  it("judgeOpen accepts a card only when the bridge has verified it by the new pin [RDM-1]", () => {
    const trust = (fingerprint: string, verdict: EvidenceItem["verdict"]) =>
      item("card", "card_trust", verdict, {
        subject: "b-docs",
        references: [fingerprint],
        reason: "agent_card_verified",
      });
    const fetched = item("card", "card_fetch", "open", { subject: "docs-qa" });
    const condition = (inside: readonly EvidenceItem[], more: Partial<OpenObservation> = {}) =>
      verdictOf(seen("card", { inside, ...more }), "agent_card_verified");
    assert.equal(condition([trust("sha256:new", "open"), fetched]), "met");
    assert.equal(
      condition([trust("sha256:old", "open"), fetched]),
      "unknown",
      "a decision about the old pin",
    );
    assert.equal(condition([trust("sha256:new", "closed"), fetched]), "not_met");
    assert.equal(condition([], { targets: new Map([["b-docs", undefined]]) }), "not_met", "without a pin");
    assert.equal(condition([], { hasBridge: false }), "not_applicable");
  });

  it("judgeOpen requires that outside probes found what the registry declares [RDM-1]", () => {
    const inside = [item("transport", "whitelist", "open")];
    const tried = (outcome: "as_wanted" | "otherwise" | "unclear" | "left_out") => [
      { item: item("transport", "federation_send", "open"), wanted: "open" as const, outcome },
    ];
    const verdict = (outside: OpenObservation["outside"]) =>
      verdictOf(seen("transport", { inside, outside }), "from_outside");
    assert.equal(verdict(tried("as_wanted")), "met");
    assert.equal(verdict(tried("otherwise")), "not_met");
    assert.equal(verdict(tried("unclear")), "unknown");
  });

  it("judgeOpen never opens a plane when more items say closed [RDM-1]", () => {
    const any = fc.record({
      probe: fc.constantFrom(
        "whitelist",
        "room_acl",
        "room_enforcement",
        "card_trust",
        "card_fetch",
        "issuer_client",
      ),
      verdict: fc.constantFrom("open" as const, "closed" as const, "unknown" as const),
      subject: fc.constantFrom(null, "!a", "b-docs", "docs-qa"),
    });
    fc.assert(
      fc.property(fc.constantFrom(...PLANE_NAMES), fc.array(any), (plane, found) => {
        const inside = found.map(({ probe, verdict, subject }) => item(plane, probe, verdict, { subject }));
        const before = isOpen(seen(plane, { inside }));
        const worse = item(plane, plane === "card" ? "card_fetch" : "whitelist", "closed");
        const after = isOpen(seen(plane, { inside: [...inside, worse] }));
        assert.ok(before || !after, "it was not open before");
      }),
    );
  });

  it("judgeOpen names, and does not wait for, what the partner's own planes may still refuse [RDM-1]", () => {
    const touched = [] as const;
    const judged = (outcome: Judged["outcome"], layer: EvidenceItemBody["layer"], probe: string): Judged => ({
      item: item("rooms", probe, "closed", { subject: "!c", layer, reason: "not_arrived" }),
      ...{ wanted: "open", outcome },
    });
    const lost = judged("otherwise", "not_seen", "message_to_partner");
    const verdict = (...outside: Judged[]) => verdictOf(seen("rooms", { touched, outside }), "from_outside");
    assert.equal(verdict(lost), "not_applicable");
    const passed: Judged = { ...judged("as_wanted", "homeserver", "make_join"), wanted: "closed" };
    const both = judgeOpen(seen("rooms", { outside: [lost, passed] })).at(-1);
    assert.deepEqual([both?.verdict, both?.found], ["met", "1 as wanted, 1 up to the partner's own planes"]);
    assert.equal(
      verdict(judged("otherwise", "transport", "message_to_partner")),
      "not_met",
      "ours refuses it",
    );
    assert.equal(verdict(judged("otherwise", "not_seen", "message_to_target")), "not_met", "ours lost it");
  });
});
