// An observation is sealed with the digest of its fields, and no change of a field goes unseen.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import {
  EvidenceItem,
  evidenceItem,
  isIntact,
  operatorItem,
  Vantage,
} from "../../../../src/records/format/evidence-item.ts";
import { PLANE_NAMES } from "../../../../src/records/format/removal-stages.ts";

const word = fc.stringMatching(/^[A-Za-z0-9._:-]{1,20}$/);
const identifier = fc.stringMatching(/^[\x21-\x7e]{1,40}$/);

describe("evidenceItem", () => {
  it("an item has one form of its time, which is compared as text with the times of its stage [OFF-2]", () => {
    const body = { plane: "rooms", partner: "b.test", probe: "room_acl", layer: "room_acl" } as const;
    const item = operatorItem(0, { ...body, verdict: "closed" });
    for (const at of ["2026-01-02T03:04Z", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05.0001Z"]) {
      assert.equal(EvidenceItem.safeParse({ ...item, at }).success, false, at);
    }
    assert.ok(EvidenceItem.safeParse({ ...item, at: "2026-01-02T03:04:05.000Z" }).success);
  });

  it("an observation during which the clock was set back is one that took no time", () => {
    const body = { plane: "rooms", partner: "b.test", probe: "room_acl", layer: "room_acl" } as const;
    assert.equal(operatorItem(0, { ...body, verdict: "closed", duration_ms: -1_000 }).duration_ms, 0);
  });

  it("an item is intact when it is made, and not after a change of any field", () => {
    fc.assert(
      fc.property(
        fc.record({
          schema: fc.constant("svc.federation.evidence_item.v1" as const),
          plane: fc.constantFrom(...PLANE_NAMES),
          partner: identifier,
          probe: word,
          vantage: fc.constantFrom(...Vantage.options),
          subject: fc.option(identifier),
          verdict: fc.constantFrom("closed" as const, "open" as const, "unknown" as const),
          layer: word,
          status: fc.option(fc.integer({ min: 100, max: 599 })),
          reason: fc.option(word),
          references: fc.array(identifier, { maxLength: 5 }),
          at: fc
            .date({ min: new Date(0), max: new Date("2100-01-01"), noInvalidDate: true })
            .map((date) => date.toISOString()),
          duration_ms: fc.option(fc.double({ min: 0, max: 1e9, noNaN: true })),
        }),
        (body) => {
          const item = EvidenceItem.parse(evidenceItem(body));
          assert.ok(isIntact(item));
          assert.equal(isIntact({ ...item, layer: `${item.layer}x` }), false);
          assert.equal(isIntact({ ...item, references: [...item.references, "x"] }), false);
        },
      ),
    );
  });
});
