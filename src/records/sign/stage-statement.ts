// Building an organisation's statement about one stage from what it did and saw.
// Invariants: pure; what is built holds by itself, because the verifier's own questions are asked before
// anything is signed; position and subjects are computed, never given.
import type { EvidenceItem } from "../format/evidence-item.ts";
import { STAGE_PREDICATE_TYPE, type StagePredicate, StageStatement } from "../format/stage-predicate.ts";
import { CONDITIONS_OF_STAGE, positionOf, type StageName } from "../format/stages.ts";
import { STATEMENT_TYPE, type Statement, statementDigest } from "../format/statement.ts";
import { stageSubjects } from "../format/subjects.ts";
import { strayProblems, successionProblems } from "../verify/sequence.ts";
import { type Evidence, placeOf, stageProblems } from "../verify/stage.ts";
import { fieldOf } from "../verify/verify-envelope.ts";
import { RecordRefused, refuseUnlessClean } from "./refused.ts";

export interface StageInput extends Omit<StagePredicate, "schema" | "position" | "previous"> {
  /** The same organisation's statement about the stage before; null for the first. */
  readonly previous: Statement<StagePredicate> | null;
}

/**
 * States a stage.
 * @param evidence every item that an exit condition names, by digest
 * @throws RecordRefused (`record_refused`) when the statement would not hold, with every reason
 */
export function stageStatement({ previous, ...input }: StageInput, evidence: Evidence): StageStatement {
  const predicate: StagePredicate = {
    schema: "svc.federation.offboarding_stage.v1",
    ...input,
    position: positionOf(input.stage),
    previous: previous === null ? null : statementDigest(previous),
  };
  const what = `stage ${input.stage} of ${input.organisation} cannot be stated`;
  const parsed = StageStatement.safeParse({
    _type: STATEMENT_TYPE,
    subject: stageSubjects(predicate),
    predicateType: STAGE_PREDICATE_TYPE,
    predicate,
  });
  if (!parsed.success) {
    const detail = fieldOf(parsed.error);
    throw new RecordRefused(what, [{ reason: "not_a_statement", where: "statement", detail }]);
  }
  refuseUnlessClean(what, [
    ...stageProblems(parsed.data, evidence),
    ...(previous === null ? [] : strayProblems(parsed.data.predicate, previous, placeOf(previous.predicate))),
    ...(previous === null ? [] : successionProblems(parsed.data, previous)),
  ]);
  return parsed.data;
}

/** The exit of a stage that an organisation has nothing in, which the items show. */
export function nothingApplies(stage: StageName, items: readonly EvidenceItem[]): StagePredicate["exit"] {
  const evidence = items.map(({ digest }) => digest);
  return CONDITIONS_OF_STAGE[stage].map((condition) => ({ condition, verdict: "not_applicable", evidence }));
}
