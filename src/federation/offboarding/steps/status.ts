// The status of a run as an operator and a script read it: every stage, who waits for whom since when, and the exact
// next command on either side. It follows from the run's files alone.
import { PLANE_OF_STAGE } from "../../../records/format/stages.ts";
import type { Trust } from "../../../records/format/trust.ts";
import { type Plan, plan } from "../../workflow/plan.ts";
import { labelOf, removal, type StepStatus } from "../../workflow/procedure.ts";
import { type OffboardingContext, withRun } from "../run/context.ts";
import { counterpartyIn, type Run } from "../run/run-file.ts";
import { recordFileOf } from "./complete.ts";
import {
  isSignedByBoth,
  nextStepsOf,
  type OtherState,
  type RunView,
  type StageState,
  type StageView,
  type Steps,
  viewOf,
} from "./next-steps.ts";
import { blocksOf } from "./sign.ts";

export type RunStatus = ReturnType<typeof statusOf>;

export function statusOf(run: Run, { parties }: Trust) {
  const view = viewOf(run, parties);
  const { run: id, kind, trigger, remover, partner, self, opened_at: openedAt, ended } = run;
  const steps = nextStepsOf(view);
  return {
    ...{ run: id, kind, trigger, remover, partner, self, openedAt, ended },
    ...{ containedAt: view.containedAt, completion: view.completion, waiting: steps.waiting },
    steps: view.stages.map(stepStatus),
    /** Conditions about parts that this organisation does not manage: they are not shown, and the record says so. */
    unmanaged: view.stages.flatMap(unmanagedIn),
    /** Words of the command that comes next here, after `drawbridge offboarding`; empty when it is not our turn. */
    next: commandOf(steps),
    otherNext: otherCommand(view),
    recordFile: ended?.how === "completed" ? recordFileOf(run) : null,
  };
}

function stepStatus(view: StageView): StepStatus<StageState, OtherState> {
  const { stage, own, other, progress } = view;
  const isStuck = own.state === "proving" && progress?.proof != null;
  return {
    ...labelOf({ name: stage, plane: PLANE_OF_STAGE[stage] }),
    ...{ own, other },
    commit: progress?.commit ?? null,
    openedAt: progress?.opened_at ?? null,
    provedAt: own.state === "closing" || isStuck ? null : (progress?.proof?.at ?? null),
    blocks: isStuck ? blocksOf(view) : [],
  };
}

function unmanagedIn({ stage, progress }: StageView) {
  const all = progress?.proof?.conditions ?? [];
  const conditions = all.filter(({ verdict }) => verdict === "unmanaged").map(({ condition }) => condition);
  return conditions.length === 0 ? [] : [{ step: stage, conditions }];
}

function commandOf({ ended, contain, work, sign, countersign, complete, waiting }: Steps): readonly string[] {
  if (ended !== null) return [];
  if (contain) return ["next"];
  if (sign.length > 0 || countersign.length > 0) return ["sign"];
  if (work !== null) return ["next"];
  if (complete) return ["complete"];
  return waiting === null ? [] : ["export", "FILE"];
}

/** What the other one has to do, if it has everything that was exported here. */
function otherCommand({ run, stages, completion }: RunView): readonly string[] {
  if (run.ended !== null) return [];
  const isCompletedHere = completion.state === "signed" && run.self === run.remover;
  if (isCompletedHere || stages.some(({ own }) => own.state === "signed")) {
    return ["import", "FILE", "sign", "export", "FILE"];
  }
  if (stages.some(({ other }) => other.state === "unknown")) return ["next", "sign", "export", "FILE"];
  return stages.every(isSignedByBoth) && counterpartyIn(run) === run.remover && completion.state === "none"
    ? ["complete", "export", "FILE"]
    : [];
}

const LEFT: readonly string[] = ["pending", "closing"];

export function planRemoval(
  context: OffboardingContext,
  named?: string,
): Promise<Plan & { readonly run: string }> {
  return withRun(context, named, async ({ run, trust: { parties } }) => {
    const { stages } = viewOf(run, parties);
    const left = await plan(context, removal(run.kind), counterpartyIn(run), ({ name }) => {
      const state = stages.find(({ stage }) => stage === name)?.own.state ?? "";
      return run.ended === null && LEFT.includes(state) ? state : undefined;
    });
    return { run: run.run, ...left };
  });
}
