// Looks at every plane again before a removal is completed. Invariants: nothing is brought in order on the way,
// because what somebody has opened by hand is to be noticed; whatever is open, or cannot be told, is named.
import { PLANE_OF_STAGE, STAGE_NAMES } from "../../../records/format/stages.ts";
import type { PlaneName } from "../../plane-order.ts";
import { recentDrift } from "../../state/drift-records.ts";
import type { OffboardingContext } from "../run/context.ts";
import { readStage, readWaivers, type StageRecord } from "../run/progress.ts";
import type { Run } from "../run/run.ts";
import { judgeStage } from "../stages/judge.ts";
import { observeStage } from "../stages/observe.ts";
import { type Block, OffboardingBlocked } from "./step.ts";
import { isLeftAlone } from "./view.ts";

const DRIFT_MAX = 1_000;
/** A stage that was signed, of which nothing is left to look again by. */
const FORGOTTEN = {
  ...{ condition: "remembered", probe: "state", found: "what was done in this stage is not remembered here" },
  hint: "Restore the run's folder below state/offboarding from a backup: every plane has to be looked at again.",
};

/**
 * @param what cannot be done if something does not hold
 * @throws OffboardingBlocked
 */
export async function recheck(context: OffboardingContext, run: Run, what: string): Promise<void> {
  const waivers = readWaivers(run);
  const blocks: Block[] = [];
  for (const stage of STAGE_NAMES) {
    if (isLeftAlone(run, stage)) continue;
    context.say(`looking again: ${stage}`);
    const plane = PLANE_OF_STAGE[stage];
    const record = readStage(run, stage);
    if (record === undefined) {
      blocks.push({ ...{ stage, plane }, ...FORGOTTEN });
      continue;
    }
    tellRepaired(context, record, plane);
    const { observation } = await observeStage(context, run, record, "look");
    for (const { condition, verdict, probe, found, hint } of judgeStage(observation)) {
      // That the homeserver was restarted after stage 4 was shown is what stage 5 does.
      if (verdict === "met" || verdict === "not_applicable" || condition === "no_restart") continue;
      blocks.push({ stage, plane, condition, probe, found, hint });
    }
    for (const { subject, reason, hint } of observation.outOfReach) {
      if (waivers.has(subject)) continue;
      blocks.push({ stage, plane, condition: "out_of_reach", probe: subject, found: reason, hint });
    }
  }
  if (blocks.length > 0) throw new OffboardingBlocked(what, blocks);
}

/** What was opened by hand since the stage was shown and put right by the reconciler blocks nothing, and is told. */
function tellRepaired(
  { federation, say }: OffboardingContext,
  { proof }: StageRecord,
  plane: PlaneName | null,
): void {
  for (const { plane: changed, subject, kind, at } of recentDrift(federation.state, DRIFT_MAX)) {
    if (changed !== plane || proof === null || at < proof.at) continue;
    say(`NOTE: the ${changed} plane was changed by hand and put right at ${at}: ${subject} (${kind})`);
  }
}
