// Evaluates one stage of a removal from its evidence: the conditions of its plane, or the data duties. Pure.
// Invariant: whoever states a stage, countersigns it or audits it years after calls this function.
import type { EvidenceItem } from "../format/evidence-item.ts";
import type { StagePredicate } from "../format/predicates.ts";
import { counterpartyOf, PLANE_OF_STAGE, STAGES_LEFT_ALONE, type StageName } from "../format/stages.ts";
import { DUTIES_CONDITIONS } from "./closed-conditions.ts";
import type { Condition, Evaluated } from "./condition.ts";
import { evaluate } from "./evaluate.ts";
import { conditionsOf } from "./select-conditions.ts";

export type StageWork = Omit<
  StagePredicate,
  "schema" | "run" | "position" | "evidence" | "attested" | "previous" | "out_of_reach"
> & { readonly out_of_reach: readonly { readonly subject: string }[] };

/** Probe of the item that says that this kind of removal leaves a plane as it is. */
export const LEFT_ALONE = "left_alone";

export function conditionsOfStage(stage: StageName): readonly Condition[] {
  const plane = PLANE_OF_STAGE[stage];
  return plane === null ? DUTIES_CONDITIONS : conditionsOf(plane, "closed");
}

export function evaluateStage(work: StageWork, items: readonly EvidenceItem[]): readonly Evaluated[] {
  const { kind, stage, scope, revision, render } = work;
  if (STAGES_LEFT_ALONE[kind].includes(stage)) {
    const evidence = items.filter(({ probe }) => probe === LEFT_ALONE).map(({ digest }) => digest);
    const verdict = evidence.length === 0 ? "unknown" : "not_applicable";
    return [{ condition: LEFT_ALONE, verdict, evidence, excused: [], lacks: [] }];
  }
  return evaluate(conditionsOfStage(stage), items, {
    organisation: work.organisation,
    partner: counterpartyOf(work.organisation, work),
    plane: PLANE_OF_STAGE[stage],
    ...{ scope, revision, render, from: work.opened_at, until: work.closed_at },
    outOfReach: new Set(work.out_of_reach.map(({ subject }) => subject)),
  });
}

/** Whether an item says that the counterparty was let in, by something that the stage lists as out of reach. */
export function isLeftOpen({ verdict, subject }: EvidenceItem, listed: ReadonlySet<string>): boolean {
  return verdict === "open" && subject !== null && listed.has(subject);
}

export function evidenceIn(conditions: readonly Evaluated[]): readonly string[] {
  return [...new Set(conditions.flatMap(({ evidence }) => evidence))];
}
