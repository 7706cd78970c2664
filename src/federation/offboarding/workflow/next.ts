// Does the next thing of a run that is this organisation's to do, and says what it did.
import type { StageName } from "../../../records/format/stages.ts";
import { performAct } from "../../containment/act.ts";
import { type PlaneWalk, walkPlanes } from "../../containment/apply-planes.ts";
import { timestamp } from "../../reconcile/context.ts";
import type { OffboardingContext } from "../run/context.ts";
import type { StageRecord } from "../run/progress.ts";
import { counterpartyOf, type Run } from "../run/run.ts";
import { allHold } from "../stages/judge.ts";
import { AHEAD_WORD, workStage } from "./prove-stage.ts";
import { requireOpen, withRun } from "./step.ts";
import { type Moves, markContained, movesOf, type RunView, viewOf } from "./view.ts";
import { wordOf } from "./waive-and-abort.ts";

export interface NextResult {
  readonly run: Run;
  /** `proved`: the stage can be signed; `not_proved`: what does not hold is named; `idle`: see `moves`. */
  readonly did: "contained" | "proved" | "not_proved" | "idle";
  readonly stage: StageName | null;
  readonly record: StageRecord | undefined;
  /** Of the emergency's first step. */
  readonly planes: readonly PlaneWalk[];
  readonly view: RunView;
  readonly moves: Moves;
}

/**
 * @param options `ahead`: why the next stage is opened before both have signed the one before it
 * @throws DrawbridgeError `usage`, `head_refused`, `repository_unusable`
 */
export function next(
  context: OffboardingContext,
  options: { readonly run?: string | undefined; readonly ahead?: string | undefined } = {},
): Promise<NextResult> {
  return withRun(context, options.run, async (run, { parties }) => {
    requireOpen(run);
    // It is refused before it is written down: what is there is read again by every later step.
    const ahead =
      options.ahead === undefined ? null : wordOf("--skip-countersignature", options.ahead, AHEAD_WORD);
    const moves = movesOf(viewOf(run, parties), ahead !== null);
    const after = (did: NextResult["did"], more: Partial<NextResult> = {}): NextResult => {
      const view = viewOf(run, parties);
      return { run, did, stage: null, record: undefined, planes: [], ...more, view, moves: movesOf(view) };
    };
    if (moves.contain) return after("contained", { planes: await contain(context, run) });
    const { work: stage } = moves;
    if (stage === null) return after("idle");
    const record = await workStage(context, run, stage, ahead);
    const isProved =
      record.proof !== null &&
      allHold(record.proof.conditions) &&
      viewOf(run, parties).stages.every((one) => one.stage !== stage || one.unwaived.length === 0);
    return after(isProved ? "proved" : "not_proved", { stage, record });
  });
}

/** The emergency's first step: planes 5, 4, 2 and 3 at once, before any stage is walked. */
async function contain(context: OffboardingContext, run: Run): Promise<readonly PlaneWalk[]> {
  const { federation } = context;
  const { partner } = await performAct(federation, "contain", counterpartyOf(run));
  const planes = await walkPlanes(federation, "contain", partner);
  markContained(run, timestamp(federation.clock.now()));
  return planes;
}
