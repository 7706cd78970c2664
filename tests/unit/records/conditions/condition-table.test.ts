// When a plane counts as open to a partner: what its parts say, and never what nobody saw.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { conditionsOf } from "../../../../src/records/conditions/condition-table.ts";
import { evaluate, isSettled } from "../../../../src/records/conditions/evaluate.ts";
import {
  type EvidenceItem,
  type EvidenceItemBody,
  evidenceItem,
} from "../../../../src/records/format/evidence-item.ts";
import { PARTS, type Scope } from "../../../../src/records/format/fields.ts";
import { PLANE_NAMES, type PlaneName } from "../../../../src/records/format/removal-stages.ts";

const OWN = "a.test";
const PARTNER = "b.test";
const REVISION = "1".repeat(40);
const RENDER = `sha256:${"2".repeat(64)}`;
const PIN = `sha256:${"3".repeat(64)}`;
const POLICY = `sha256:${"4".repeat(64)}`;
const SCOPE: Scope = {
  ...{
    parts: [...PARTS],
    client: "b-client",
    applicants: [],
    agents: ["docs-qa"],
    pins: ["b-docs"],
    rooms: ["!a"],
  },
  ...{ policy: null, started_at: null },
};

type Change = Partial<EvidenceItemBody>;

function item(plane: PlaneName, probe: string, layer: string, more: Change = {}): EvidenceItem {
  return evidenceItem({
    ...{ schema: "svc.federation.evidence_item.v1", plane, partner: PARTNER, probe, vantage: "operator" },
    ...{ subject: null, layer, status: null, reason: null, references: [], verdict: "open" },
    ...{ at: "2026-01-02T03:04:05.000Z", duration_ms: null, ...more },
  });
}

function reconciled(plane: PlaneName, more: Change = {}) {
  return item(plane, "reconciled", "reconciler", {
    ...{ reason: "in_force", references: [REVISION, RENDER] },
    ...more,
  });
}

function room(probe: "room_acl" | "room_enforcement", more: Change = {}): EvidenceItem {
  const layer = probe === "room_acl" ? "room_acl" : "homeserver";
  return item("rooms", probe, layer, { subject: "!a", status: 200, ...more });
}

const TRUST = item("card", "card_trust", "bridge", {
  ...{ subject: "b-docs", reason: "agent_card_verified", references: [PIN] },
});

/** What shows each plane to be open. */
const OPEN: Readonly<Record<PlaneName, readonly EvidenceItem[]>> = {
  transport: [
    reconciled("transport"),
    item("transport", "whitelist", "homeserver", { subject: PARTNER, status: 200 }),
  ],
  rooms: [reconciled("rooms"), room("room_acl"), room("room_enforcement")],
  border: [
    reconciled("border"),
    item("border", "policy_check", "border", { subject: PARTNER, status: 200, references: [POLICY] }),
    item("border", "policy_in_force", "border", { status: 200, references: [POLICY] }),
  ],
  card: [
    reconciled("card"),
    TRUST,
    item("card", "card_fetch", "gateway", { subject: "docs-qa", status: 200, reason: "card_public" }),
  ],
  gateway: [
    reconciled("gateway"),
    item("gateway", "callers_in_force", "gateway", { subject: "b-client", reason: "azp_admitted" }),
    item("gateway", "issuer_client", "issuer", { subject: "b-client", reason: "client_enabled" }),
  ],
};

function found(plane: PlaneName, items: readonly EvidenceItem[], scope: Partial<Scope> = {}) {
  const verdicts = evaluate(conditionsOf(plane, "open"), items, {
    ...{ organisation: OWN, partner: PARTNER, plane, scope: { ...SCOPE, ...scope } },
    ...{ from: null, until: null, revision: REVISION, render: RENDER, outOfReach: new Set<string>() },
    fingerprints: new Map([["b-docs", PIN]]),
  });
  return new Map(verdicts.map((one) => [one.condition, one.verdict]));
}

function isOpen(plane: PlaneName, items: readonly EvidenceItem[], scope: Partial<Scope> = {}): boolean {
  return [...found(plane, items, scope).values()].every((verdict) => isSettled({ verdict }));
}

describe("conditions of an open plane", () => {
  it("an open plane needs each of its items, from a part that says open [RDM-1]", () => {
    for (const plane of PLANE_NAMES) {
      assert.ok(isOpen(plane, OPEN[plane]), plane);
      OPEN[plane].forEach(({ digest: _, ...body }, index) => {
        assert.equal(
          isOpen(plane, OPEN[plane].toSpliced(index, 1)),
          false,
          `${plane} ${body.probe} is missing`,
        );
        for (const verdict of ["closed", "unknown"] as const) {
          // A room of others may be closed; one that is to be open may not.
          const other = evidenceItem({ ...body, verdict });
          assert.equal(
            isOpen(plane, OPEN[plane].with(index, other)),
            false,
            `${plane} ${body.probe} ${verdict}`,
          );
        }
      });
    }
  });

  it("an open plane is one that is reached at this revision, whatever its parts say [RDM-1]", () => {
    for (const plane of PLANE_NAMES) {
      const incomplete = reconciled(plane, { verdict: "unknown", reason: "incomplete" });
      const stale = reconciled(plane, { references: ["0".repeat(40), RENDER] });
      for (const other of [incomplete, stale]) assert.equal(isOpen(plane, OPEN[plane].with(0, other)), false);
    }
  });

  it("a lifted ACL that a server goes on enforcing keeps the rooms plane from being open [RDM-1]", () => {
    const stale = room("room_enforcement", { verdict: "closed", reason: "stale_at_home" });
    const state = [reconciled("rooms"), room("room_acl")];
    assert.equal(found("rooms", state).get("kept_rooms_hear_it"), "unknown");
    assert.equal(found("rooms", [...state, stale]).get("kept_rooms_hear_it"), "not_met");
    const elsewhere = [
      room("room_acl", { subject: "!b" }),
      room("room_enforcement", { subject: "!b", verdict: "closed", reason: "stale_at_home" }),
    ];
    assert.equal(isOpen("rooms", [...OPEN.rooms, ...elsewhere]), false, "also in another room");
    const retained = item("rooms", "room_acl_at_retained", "room_acl", {
      ...{ subject: "!a", vantage: "retained_server", verdict: "unknown", reason: "unproven_at_retained" },
    });
    assert.equal(isOpen("rooms", [...OPEN.rooms, retained]), false, "also at a retained server");
  });

  it("a room that others keep closed on purpose does not keep the rooms plane from being open [RDM-1]", () => {
    const closed = (["room_acl", "room_enforcement"] as const).map((probe) =>
      room(probe, { subject: "!c", verdict: "closed" }),
    );
    assert.deepEqual(
      [...found("rooms", [...OPEN.rooms, ...closed])],
      [
        ["in_force", "met"],
        ["kept_rooms_hear_it", "met"],
        ["other_rooms_hear_it", "met"],
      ],
    );
    assert.equal(isOpen("rooms", [...OPEN.rooms, ...closed], { rooms: ["!a", "!c"] }), false, "a kept room");
  });

  it("what the partner has tried besides agrees with what the parts say [RDM-1]", () => {
    const tried = (plane: PlaneName, probe: string, layer: string, more: Change) =>
      isOpen(plane, [...OPEN[plane], item(plane, probe, layer, { vantage: "partner", ...more })]);
    const fetched = { subject: "docs-qa", status: 200, reason: "published" };
    assert.equal(tried("card", "card_fetch", "gateway", fetched), true);
    assert.equal(
      tried("card", "card_fetch", "gateway", { ...fetched, status: 403, verdict: "closed" }),
      false,
    );
    const sent = { subject: OWN, status: 200, reason: "accepted" };
    assert.equal(tried("transport", "federation_send", "homeserver", sent), true);
    const refused = { ...sent, status: 403, reason: "federation_denied", verdict: "closed" } as const;
    assert.equal(tried("transport", "federation_send", "transport", refused), false);
  });

  it("a card counts only when the bridge has verified it by the key that is pinned now [RDM-1]", () => {
    const verdictOf = (trust: readonly EvidenceItem[], scope: Partial<Scope> = {}) =>
      found("card", [reconciled("card"), ...trust], scope).get("agent_card_verified");
    const { digest: _, ...body } = TRUST;
    assert.equal(verdictOf([TRUST]), "met");
    assert.equal(verdictOf([evidenceItem({ ...body, references: [RENDER] })]), "unknown", "the old pin");
    assert.equal(verdictOf([evidenceItem({ ...body, verdict: "closed" })]), "not_met");
    assert.equal(verdictOf([], { parts: ["homeserver", "gateway"] }), "unmanaged");
  });

  it("more items never open a plane that one of them says is closed [RDM-1]", () => {
    fc.assert(
      fc.property(fc.constantFrom(...PLANE_NAMES), fc.nat(), (plane, at) => {
        const items = OPEN[plane].filter(({ subject }) => subject !== null);
        const one = items[at % items.length];
        assert.ok(one !== undefined);
        const { digest: _, ...body } = one;
        assert.equal(isOpen(plane, [...OPEN[plane], evidenceItem({ ...body, verdict: "closed" })]), false);
      }),
    );
  });
});
