// One step of a run at a time, and what keeps a step from being done: each obstacle with what was tried, what was
// found and what to do. Invariant: a run that has ended is not worked on.
import { DrawbridgeError } from "../../../domain/errors.ts";
import { isSettled } from "../../../records/conditions/evaluate.ts";
import { PLANE_OF_STAGE, type StageName } from "../../../records/format/stages.ts";
import type { OwnRemoval } from "../../../records/sign/held-statements.ts";
import type { Block } from "../../workflow/procedure.ts";
import type { JudgedCondition } from "../../workflow/step-verdict.ts";
import { type OffboardingContext, type RunContext, trustOf } from "../run/context.ts";
import type { StageProof } from "../run/progress.ts";
import { counterpartyIn, findRun, type Run } from "../run/run-file.ts";

/** What is in the way of a removal's step. */
export interface StageBlock extends Block {
  readonly stage: StageName | null;
}

/** One line a block; the hint is that of the first. */
export class OffboardingBlocked extends DrawbridgeError {
  readonly blocks: readonly StageBlock[];

  constructor(what: string, blocks: readonly StageBlock[]) {
    const lines = blocks.map(({ stage, plane, condition, probe, found }) => {
      const where = [stage, plane === null ? undefined : `plane ${plane}`].filter(Boolean).join(", ");
      return `  ${where === "" ? "" : `${where}: `}${condition} [${probe}]: ${found}`;
    });
    super("offboarding_blocked", [what, ...lines].join("\n"), { hint: blocks[0]?.hint ?? "" });
    this.name = "OffboardingBlocked";
    this.blocks = blocks;
  }
}

/** A step that is blocked by one thing, which belongs to no plane. */
export function blockedBy(
  what: string,
  block: Omit<StageBlock, "stage" | "plane"> & Partial<StageBlock>,
): OffboardingBlocked {
  return new OffboardingBlocked(what, [{ stage: null, plane: null, ...block }]);
}

/** The conditions of a stage that do not hold, and what is out of its reach. */
export function blocksIn(
  stage: StageName,
  conditions: readonly JudgedCondition[],
  outOfReach: StageProof["out_of_reach"],
): readonly StageBlock[] {
  const about = { stage, plane: PLANE_OF_STAGE[stage] };
  const open = conditions.filter((one) => !isSettled(one));
  return [
    ...open.map(({ condition, probe, found, hint }) => ({ ...about, condition, probe, found, hint })),
    ...outOfReach.map(({ subject, reason, hint }) => ({
      ...{ ...about, condition: "out_of_reach", probe: subject, found: reason, hint },
    })),
  ];
}

/** A run as the records see it. @throws DrawbridgeError `config_invalid` when a party has no pinned key */
export function removalOf({ run, trust: { parties } }: RunContext): OwnRemoval {
  for (const name of [run.self, counterpartyIn(run)]) {
    if (parties.some(({ organisation }) => organisation === name)) continue;
    throw new DrawbridgeError("config_invalid", `the trust file has no key of ${name}`, {
      hint: "Add its public key to offboarding.trustFile, received by another way than the statements.",
    });
  }
  const { run: id, kind, remover, partner, self } = run;
  return { run: id, kind, remover, partner, self, parties };
}

/** Does one step of the run that is named, as by `findRun`, while no other process does. */
export async function withRun<Result>(
  context: OffboardingContext,
  named: string | undefined,
  step: (context: RunContext) => Promise<Result>,
): Promise<Result> {
  const { state, clock } = context;
  const { run: id } = findRun(state, named);
  // The run may have ended while this step waited.
  const work = async () => step({ ...context, run: findRun(state, id), trust: trustOf(context.config) });
  const onWait = () => context.say("waiting for another step of this run to end");
  return state.locked(`offboarding ${id}`, clock, work, onWait);
}

/** @throws DrawbridgeError `usage` when the run was aborted, or has ended */
export function requireOpen(run: Run): void {
  if (run.ended === null) return;
  throw new DrawbridgeError("usage", `run ${run.run} was ${run.ended.how} at ${run.ended.at}`, {
    hint: "Nothing is left to do in it; open another run for another removal.",
  });
}
