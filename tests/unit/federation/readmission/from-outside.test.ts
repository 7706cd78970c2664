// What was tried as the partner, in a re-admission.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Judged } from "../../../../src/federation/probes/report.ts";
import { fromOutside } from "../../../../src/federation/readmission/next-step.ts";
import { evidenceItem } from "../../../../src/records/format/evidence-item.ts";

function tried(probe: string, outcome: Judged["outcome"], layer = "homeserver"): Judged {
  const item = evidenceItem({
    ...{ schema: "svc.federation.evidence_item.v1", plane: "rooms", partner: "b.test", probe },
    ...{ vantage: "partner", subject: "!c", layer, status: null, reason: "not_arrived", references: [] },
    ...{ at: "2026-01-02T03:04:05.000Z", duration_ms: null, verdict: "closed" },
  });
  return { item, wanted: "open", outcome };
}

const verdictOf = (...all: readonly Judged[]) => fromOutside(all, "rooms")[0]?.verdict;

describe("fromOutside", () => {
  it("fromOutside requires that what was tried is as the registry declares [RDM-1]", () => {
    assert.equal(verdictOf(), undefined, "nothing was tried");
    assert.equal(verdictOf(tried("make_join", "as_wanted")), "met");
    assert.equal(verdictOf(tried("make_join", "as_wanted"), tried("invite", "otherwise")), "not_met");
    assert.equal(verdictOf(tried("make_join", "as_wanted"), tried("invite", "unclear")), "unknown");
    assert.deepEqual(fromOutside([tried("make_join", "otherwise")], "border"), [], "another plane");
  });

  it("fromOutside names, and does not wait for, what the partner's own planes may still refuse [RDM-1]", () => {
    const lost = tried("message_to_partner", "otherwise", "not_observed");
    assert.equal(verdictOf(lost), "not_applicable");
    const [both] = fromOutside([lost, tried("make_join", "as_wanted")], "rooms");
    assert.deepEqual([both?.verdict, both?.found], ["met", "1 as wanted, 1 up to the partner's own planes"]);
    assert.equal(
      verdictOf(tried("message_to_partner", "otherwise", "transport")),
      "not_met",
      "ours refuses it",
    );
    assert.equal(
      verdictOf(tried("message_to_target", "otherwise", "not_observed")),
      "not_met",
      "ours lost it",
    );
  });
});
