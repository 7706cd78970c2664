// What the probes of a room say together of what still crosses in it.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { leakCells, leakSummary } from "../../../lab/observe/leak-rows.ts";
import { evidenceItem } from "../../../src/records/format/evidence-item.ts";

describe("what still crosses in a room", () => {
  it("leakRows denies a leak only where every attempt was refused, and never where nobody tried [OFF-4]", () => {
    const found = (probe: string, verdict: "open" | "closed" | "unknown", layer = "homeserver") =>
      evidenceItem({
        schema: "svc.federation.evidence_item.v1",
        ...{ plane: "rooms", partner: "b.test:8449", probe, vantage: "partner", subject: "!r" },
        ...{
          verdict,
          layer,
          status: null,
          reason: null,
          references: [],
          at: "2026-01-01T03:00:00.000Z",
          duration_ms: null,
        },
      } as Parameters<typeof evidenceItem>[0]);
    const cells = leakCells([
      found("event_at_target", "closed"),
      found("backfill_at_target", "open"),
      found("event_at_witness", "closed"),
      found("backfill_at_witness", "closed"),
      found("make_join", "closed"),
      found("remote_join", "unknown"),
      found("make_join_at_witness", "closed"),
      found("remote_join_via_witness", "unknown", "none"),
      found("message_to_target", "unknown", "none"),
    ]);
    assert.deepEqual(
      [cells.history_from_target, cells.history_from_third, cells.join_at_target, cells.join_via_third],
      ["yes", "no", "unknown", "no"],
    );
    assert.deepEqual([cells.partner_to_target, cells.target_to_partner], ["not_tried", "not_tried"]);
  });

  it("leakSummary names what crosses, what is unknown and what nobody tried [OFF-4]", () => {
    const closed = Object.fromEntries(
      Object.keys(leakCells([])).map((column) => [column, "no"]),
    ) as ReturnType<typeof leakCells>;
    assert.equal(leakSummary([{ room: "!one", cells: closed }]), "Nothing crossed in the one room probed.");
    assert.equal(
      leakSummary([
        { room: "!one", cells: { ...closed, target_to_partner: "not_tried" } },
        {
          room: "!two",
          cells: {
            ...closed,
            join_via_third: "yes",
            history_from_third: "unknown",
            partner_to_target: "not_tried",
            target_to_partner: "not_tried",
          },
        },
      ]),
      "Still crossing in 1 of the 2 rooms probed: join at D. Unknown in some rooms: history from D. " +
        "Not tried in !two: B→A. Not tried in any of them: A→B.",
    );
  });
});
