// The engine: runs one step of a procedure, whichever it is: commit → reconcile → observe → evaluate → record.
// Invariants: nothing is observed before the plane was brought to what is committed, nor recorded before it was evaluated;
// each part finds what it has done before, so that a step that was cut off is run again as a whole.
import { DrawbridgeError } from "../../domain/errors.ts";
import type { Verdict } from "../../records/conditions/condition.ts";
import { isSettled } from "../../records/conditions/evaluate.ts";
import type { EvidenceItem } from "../../records/format/evidence-item.ts";
import { pollUntil } from "../../runtime/concurrency.ts";
import type { PlaneName } from "../plane-order.ts";
import { acceptedState, type OnBadHead } from "../reconcile/accept-head.ts";
import type { Federation } from "../reconcile/context.ts";
import type { DesiredState } from "../reconcile/desired-state.ts";
import { type PassResult, runPass } from "../reconcile/pass.ts";
import { type Applied, readPlane } from "../state/plane-records.ts";
import { type JudgedCondition, type Objection, objectTo, verdictOf } from "./step-verdict.ts";

export interface Reached {
  readonly desired: DesiredState;
  readonly partner: string;
  readonly applied: Applied | null;
  readonly pass: PassResult | undefined;
}

export interface Observed {
  readonly items: readonly EvidenceItem[];
  readonly tried?: readonly EvidenceItem[];
}

export interface StepRun<Own extends Observed> {
  readonly plane: PlaneName;
  /** Server name: whose plane it is, or whose agent. */
  readonly partner: string;
  /** Makes the commit, or finds it; absent: it was made before. */
  readonly commit?: (() => Promise<unknown>) | undefined;
  /** The plane is brought to the branch's head; `again`: even if recorded as in force; `observe`: nothing is touched. */
  readonly how: "apply" | "again" | "observe";
  /** What a refused head means for what is only observed. */
  readonly onBadHead?: OnBadHead;
  /** What helps where something was pushed on top of what was committed, and is refused; said before the rest. */
  readonly refusalHint?: string | undefined;
  readonly observe: (reached: Reached) => Promise<Own>;
  readonly evaluate: (reached: Reached, observed: Own) => readonly JudgedCondition[];
  readonly withinMs?: number;
  readonly record?: (result: StepResult<Own>) => void;
}

export interface StepResult<Own> extends Reached {
  readonly observed: Own;
  readonly conditions: readonly JudgedCondition[];
  readonly verdict: Verdict;
}

/** How long an open plane is waited for: other programs, and the partner's, follow what was opened. */
export const OPEN_WITHIN_MS = 30_000;
const POLL_MS = 500;

/** @throws DrawbridgeError `head_refused` when what the branch holds is not taken up; and what the parts throw */
export async function runStep<Own extends Observed>(context: Federation, step: StepRun<Own>) {
  await step.commit?.();
  const result = await observeStep(context, step, await reach(context, step));
  step.record?.(result);
  return result;
}

/** Observes a plane, after a pass has applied it, until it is as it should be or the time is over. */
export async function observeStep<Own extends Observed>(
  { clock }: Federation,
  { plane, observe, evaluate, withinMs = 0 }: StepRun<Own>,
  reached: Reached,
): Promise<StepResult<Own>> {
  const { applied } = reached;
  const read = async () => {
    const observed = await observe(reached);
    const conditions = objectTo(evaluate(reached, observed), notReached(plane, applied));
    return { ...reached, observed, conditions, verdict: verdictOf(conditions) };
  };
  const within = { withinMs: applied?.outcome === "in_force" ? withinMs : 0, everyMs: POLL_MS };
  return pollUntil(clock, within, read, ({ conditions }) => conditions.every(isSettled));
}

async function reach<Own extends Observed>(
  context: Federation,
  { plane, partner, how, onBadHead = "refuse", refusalHint }: StepRun<Own>,
): Promise<Reached> {
  if (how === "observe") {
    const { desired } = await acceptedState(context, onBadHead);
    const { applied, applying } = readPlane(context.state, plane);
    // An attempt at another state that has no end may have taken away what was in force before it.
    const isStanding = applying === null || applying.digest === applied?.digest;
    return { desired, partner, applied: isStanding ? applied : null, pass: undefined };
  }
  const pass = await runPass(context, { plane, force: true, again: how === "again" });
  if (pass.refusal !== undefined) {
    // What this machine has committed was good, and was pushed on before it was taken up.
    const { detail, hint } = pass.refusal;
    throw new DrawbridgeError("head_refused", `what was committed is not in force: ${detail}`, {
      hint: refusalHint === undefined ? hint : `${refusalHint} ${hint}`,
    });
  }
  const { desired } = pass;
  if (desired === undefined) throw new DrawbridgeError("internal", "a pass took nothing up");
  return { desired, partner, applied: appliedIn(pass, plane), pass };
}

export function appliedIn({ planes }: PassResult, plane: PlaneName): Applied | null {
  return planes.find((report) => report.plane === plane)?.record.applied ?? null;
}

function notReached(plane: PlaneName, applied: Applied | null): readonly Objection[] {
  if (applied === null || applied.outcome === "in_force" || applied.outcome === "incomplete") return [];
  const found = applied.reason ?? applied.outcome;
  const hint = `See drawbridge federation status; then run this again: it applies the ${plane} plane once more.`;
  return [{ condition: "in_force", probe: "reconciled", found, hint }];
}
