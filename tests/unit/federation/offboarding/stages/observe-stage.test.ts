// What an operator is told of a stage: the evaluation of the record, with what was found and what to do.

import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { judgeStage } from "../../../../../src/federation/offboarding/stages/observe-stage.ts";
import { HINTS, type Objection } from "../../../../../src/federation/workflow/run-step.ts";
import { conditionsOfStage, isSettled } from "../../../../../src/records/conditions/evaluate.ts";
import { type EvidenceItem, evidenceItem } from "../../../../../src/records/format/evidence-item.ts";
import { STAGE_NAMES, type StageName } from "../../../../../src/records/format/removal-stages.ts";
import { REAL } from "../../../../support/removal.ts";

interface Change {
  readonly items?: readonly EvidenceItem[];
  readonly fromOutside?: boolean;
  readonly objections?: readonly Objection[];
}

function judged(stage: StageName, change: Change = {}) {
  const { remover, partner } = REAL;
  const { items: real, ...about } = REAL.at_remover[stage];
  const { items = real, fromOutside = true, objections } = change;
  const work = { ...about, kind: "full", stage, organisation: remover, remover, partner } as const;
  return judgeStage(work, { items, fromOutside }, objections);
}

describe("judgeStage", () => {
  it("judgeStage finds what an auditor finds: every condition of a real removal holds [OFF-2]", () => {
    for (const stage of STAGE_NAMES) assert.ok(judged(stage).every(isSettled), stage);
  });

  it("judgeStage names the probe, the finding and a hint of each condition that does not hold [OFF-2]", () => {
    for (const stage of STAGE_NAMES) {
      const open = REAL.at_remover[stage].items.map(({ digest: _, ...body }) =>
        evidenceItem({ ...body, verdict: "open" }),
      );
      for (const items of [[], open]) {
        const conditions = judged(stage, { items });
        for (const { verdict, probe, found, hint, condition } of conditions) {
          if (verdict === "met") continue;
          assert.ok(probe !== "" && found !== "" && hint !== "", `${stage} ${condition}: ${found}; ${hint}`);
        }
        assert.equal(conditions.every(isSettled), false, stage);
      }
      for (const { name } of conditionsOfStage(stage)) assert.ok(name in HINTS, name);
    }
  });

  it("judgeStage lets an objection take a verdict away, and never give one [OFF-2]", () => {
    const objection = { condition: "in_force", probe: "reconciled", found: "changed by hand", hint: "See." };
    const conditions = judged("transport", { objections: [objection] });
    assert.deepEqual(
      conditions.map(({ condition, verdict, found }) => [condition, verdict, found]),
      [
        ["in_force", "not_met", "changed by hand"],
        ["whitelist_excludes_partner", "met", "not_in_whitelist"],
        ["send_refused", "met", "federation_denied"],
      ],
    );
  });

  it("judgeStage says that nobody has tried a probe as the counterparty, and how to [OFF-2]", () => {
    const items = REAL.at_remover.transport.items.filter(({ vantage }) => vantage === "operator");
    const refused = judged("transport", { items, fromOutside: false }).at(-1);
    assert.equal(refused?.found, "nobody has tried federation_send as the counterparty");
    assert.match(refused?.hint ?? "", /--probe-config/);
  });
});
