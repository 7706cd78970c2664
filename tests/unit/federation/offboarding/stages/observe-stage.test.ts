// What an operator is told of a stage: the evaluation of the record, with what was found and what to do.
import assert from "node:assert/strict";
import { describe, it } from "node:test";

import {
  judgeObservation,
  type StageObservation,
} from "../../../../../src/federation/offboarding/stages/observe-stage.ts";
import { HINTS } from "../../../../../src/federation/workflow/hints.ts";
import { conditionsOfStage, isSettled } from "../../../../../src/records/conditions/evaluate.ts";
import { evidenceItem } from "../../../../../src/records/format/evidence-item.ts";
import { STAGE_NAMES, type StageName } from "../../../../../src/records/format/stages.ts";
import { REAL } from "../../../../support/removal.ts";

function seen(stage: StageName, change: Partial<StageObservation> = {}): StageObservation {
  const { remover, partner } = REAL;
  const { items, ...real } = REAL.at_remover[stage];
  return {
    work: { ...real, kind: "full", stage, organisation: remover, remover, partner },
    ...{ items, outOfReach: [], fromOutside: true, objections: [] },
    ...change,
  };
}

describe("judgeStage", () => {
  it("judgeStage finds what an auditor finds: every condition of a real removal holds [OFF-2]", () => {
    for (const stage of STAGE_NAMES) assert.ok(judgeObservation(seen(stage)).every(isSettled), stage);
  });

  it("judgeStage names the probe, the finding and a hint of each condition that does not hold [OFF-2]", () => {
    for (const stage of STAGE_NAMES) {
      const open = REAL.at_remover[stage].items.map(({ digest: _, ...body }) =>
        evidenceItem({ ...body, verdict: "open" }),
      );
      for (const items of [[], open]) {
        const judged = judgeObservation(seen(stage, { items }));
        for (const { verdict, probe, found, hint, condition } of judged) {
          if (verdict === "met") continue;
          assert.ok(probe !== "" && found !== "" && hint !== "", `${stage} ${condition}: ${found}; ${hint}`);
        }
        assert.equal(judged.every(isSettled), false, stage);
      }
      for (const { name } of conditionsOfStage(stage)) assert.ok(name in HINTS, name);
    }
  });

  it("judgeStage lets an objection take a verdict away, and never give one [OFF-2]", () => {
    const objection = { condition: "in_force", probe: "reconciled", found: "changed by hand", hint: "See." };
    const judged = judgeObservation(seen("transport", { objections: [objection] }));
    assert.deepEqual(
      judged.map(({ condition, verdict, found }) => [condition, verdict, found]),
      [
        ["in_force", "not_met", "changed by hand"],
        ["whitelist_excludes_partner", "met", "not_in_whitelist"],
        ["send_refused", "met", "federation_denied"],
      ],
    );
  });

  it("judgeStage says that nobody has tried a probe as the counterparty, and how to [OFF-2]", () => {
    const items = REAL.at_remover.transport.items.filter(({ vantage }) => vantage === "operator");
    const refused = judgeObservation(seen("transport", { items, fromOutside: false })).at(-1);
    assert.equal(refused?.found, "nobody has tried federation_send as the counterparty");
    assert.match(refused?.hint ?? "", /--probe-config/);
  });
});
