// Does the next step of a run that is this organisation's, and reports what it did.
import type { StageName } from "../../../records/format/stages.ts";
import { performAct } from "../../containment/act.ts";
import { applyPlanes, type PlaneResult } from "../../containment/apply-planes.ts";
import { timestamp } from "../../reconcile/context.ts";
import type { OffboardingContext } from "../run/context.ts";
import { type StageProgress, writeContainedAt } from "../run/progress.ts";
import { counterpartyOf, type Run } from "../run/run.ts";
import { SKIPPED_WORD, workStage } from "./prove-stage.ts";
import { requireOpen, withRun } from "./step.ts";
import { type RunView, type Steps, stepsOf, viewOf } from "./view.ts";
import { wordOf } from "./waive-and-abort.ts";

export interface NextResult {
  readonly run: Run;
  /** `proved`: the stage can be signed; `not_proved`: what does not hold is named; `idle`: see `steps`. */
  readonly did: "contained" | "proved" | "not_proved" | "idle";
  readonly stage: StageName | null;
  readonly progress: StageProgress | undefined;
  /** Of the emergency's first step. */
  readonly planes: readonly PlaneResult[];
  readonly view: RunView;
  readonly steps: Steps;
}

/**
 * @param options `skipCountersignature`: why the next stage is opened before both have signed the one before it
 * @throws DrawbridgeError `usage`, `head_refused`, `repository_unusable`
 */
export function next(
  context: OffboardingContext,
  options: { readonly run?: string | undefined; readonly skipCountersignature?: string | undefined } = {},
): Promise<NextResult> {
  return withRun(context, options.run, async (run, { parties }) => {
    requireOpen(run);
    // The word is checked before it is written, because every later step reads what was written.
    const skipped =
      options.skipCountersignature === undefined
        ? null
        : wordOf("--skip-countersignature", options.skipCountersignature, SKIPPED_WORD);
    const steps = stepsOf(viewOf(run, parties), skipped !== null);
    const after = (did: NextResult["did"], more: Partial<NextResult> = {}): NextResult => {
      const view = viewOf(run, parties);
      return { run, did, stage: null, progress: undefined, planes: [], ...more, view, steps: stepsOf(view) };
    };
    if (steps.contain) return after("contained", { planes: await contain(context, run) });
    const { work: stage } = steps;
    if (stage === null) return after("idle");
    const progress = await workStage(context, run, stage, skipped);
    const isProved = viewOf(run, parties).stages.some(
      (one) => one.stage === stage && one.own.state === "proved",
    );
    return after(isProved ? "proved" : "not_proved", { stage, progress });
  });
}

/** The emergency's first step: planes 5, 4, 2 and 3 at once, before any stage is opened. */
async function contain(context: OffboardingContext, run: Run): Promise<readonly PlaneResult[]> {
  const { federation } = context;
  const { partner } = await performAct(federation, "contain", counterpartyOf(run));
  const planes = await applyPlanes(federation, "contain", partner);
  writeContainedAt(run, timestamp(federation.clock.now()));
  return planes;
}
