// Observes every plane again before a removal is completed. Invariants: nothing is repaired on the way, because what
// was opened by hand must be noticed; every condition that does not hold, or is unknown, is reported.
import { PLANE_OF_STAGE, STAGE_NAMES } from "../../../records/format/stages.ts";
import type { PlaneName } from "../../plane-order.ts";
import { recentDrift } from "../../state/drift-records.ts";
import { allHold } from "../../workflow/step-verdict.ts";
import type { OffboardingContext } from "../run/context.ts";
import { readStage, readWaivers, type StageProgress } from "../run/progress.ts";
import type { Run } from "../run/run.ts";
import { judgeStage } from "../stages/observation.ts";
import { observeStage } from "../stages/observe.ts";
import { OffboardingBlocked, type StageBlock } from "./step.ts";
import { isLeftAlone } from "./view.ts";

const DRIFT_MAX = 1_000;
/** A stage that was signed, and whose progress is gone. */
const FORGOTTEN = {
  ...{ condition: "remembered", probe: "state", found: "what was done in this stage is not recorded here" },
  hint: "Restore the run's folder below state/offboarding from a backup: every plane has to be observed again.",
};

/**
 * @param what cannot be done if something does not hold
 * @throws OffboardingBlocked
 */
export async function recheck(context: OffboardingContext, run: Run, what: string): Promise<void> {
  const waivers = readWaivers(run);
  const blocks: StageBlock[] = [];
  for (const stage of STAGE_NAMES) {
    if (isLeftAlone(run, stage)) continue;
    context.say(`observing again: ${stage}`);
    const plane = PLANE_OF_STAGE[stage];
    const progress = readStage(run, stage);
    if (progress === undefined) {
      blocks.push({ ...{ stage, plane }, ...FORGOTTEN });
      continue;
    }
    reportRepaired(context, progress, plane);
    const observation = await observeStage(context, run, progress, "observe");
    for (const judged of judgeStage(observation)) {
      const { condition, probe, found, hint } = judged;
      // Stage 5 restarts the homeserver after stage 4 was shown.
      if (allHold([judged]) || condition === "no_restart") continue;
      blocks.push({ stage, plane, condition, probe, found, hint });
    }
    for (const { subject, reason, hint } of observation.outOfReach) {
      if (waivers.has(subject)) continue;
      blocks.push({ stage, plane, condition: "out_of_reach", probe: subject, found: reason, hint });
    }
  }
  if (blocks.length > 0) throw new OffboardingBlocked(what, blocks);
}

/** Reports what was changed by hand since the stage was shown and repaired by the reconciler; it blocks nothing. */
function reportRepaired(
  { federation, say }: OffboardingContext,
  { proof }: StageProgress,
  plane: PlaneName | null,
): void {
  for (const { plane: changed, subject, kind, at } of recentDrift(federation.state, DRIFT_MAX)) {
    if (changed !== plane || proof === null || at < proof.at) continue;
    say(`NOTE: the ${changed} plane was changed by hand and repaired at ${at}: ${subject} (${kind})`);
  }
}
