// Building the statement that ends a removal, from the twelve stage statements and what their owners add.
// Invariants: pure; everything that the completion binds is computed from the statements, so nothing can be
// left out or added; what is built holds, because the verifier's own questions are asked first.
import {
  COMPLETION_PREDICATE_TYPE,
  type CompletionPredicate,
  CompletionStatement,
} from "../format/completion-predicate.ts";
import type { StagePredicate } from "../format/stage-predicate.ts";
import { STATEMENT_TYPE, type Statement, statementDigest } from "../format/statement.ts";
import { completionSubjects } from "../format/subjects.ts";
import { bindingProblems, completionProblems, evidenceOf, revisionsOf } from "../verify/completion.ts";
import type { Problem } from "../verify/reasons.ts";
import { sequenceProblems, strayProblems } from "../verify/sequence.ts";
import { type Evidence, placeOf, stageProblems } from "../verify/stage.ts";
import { fieldOf } from "../verify/verify-envelope.ts";
import { RecordRefused, refuseUnlessClean } from "./refused.ts";

/** What the owners say; the rest is computed. */
export type CompletionInput = Omit<CompletionPredicate, "schema" | "revisions" | "stages" | "evidence">;

/**
 * States the completion.
 * @param stages all statements, in the order of a record: stage by stage, the remover's first
 * @throws RecordRefused (`record_refused`) when the record would not be complete, with every reason
 */
export function completionStatement(
  input: CompletionInput,
  stages: readonly Statement<StagePredicate>[],
  evidence: Evidence,
): CompletionStatement {
  const predicate: CompletionPredicate = {
    schema: "svc.federation.offboarding_completion.v1",
    ...input,
    revisions: revisionsOf(stages),
    stages: stages.map((statement) => ({
      organisation: statement.predicate.organisation,
      stage: statement.predicate.stage,
      statement: statementDigest(statement),
    })),
    evidence: [...evidenceOf(stages)].sort(),
  };
  const what = `run ${input.run} cannot be completed`;
  const parsed = CompletionStatement.safeParse({
    _type: STATEMENT_TYPE,
    subject: completionSubjects(predicate),
    predicateType: COMPLETION_PREDICATE_TYPE,
    predicate,
  });
  if (!parsed.success) {
    const detail = fieldOf(parsed.error);
    throw new RecordRefused(what, [{ reason: "not_a_statement", where: "statement", detail }]);
  }
  refuseUnlessClean(what, wholeProblems(parsed.data, stages, evidence));
  return parsed.data;
}

/** Everything that is wrong between a completion, its stages and their evidence. */
export function wholeProblems(
  completion: Statement<CompletionPredicate>,
  stages: readonly Statement<StagePredicate>[],
  evidence: Evidence,
): Problem[] {
  const { predicate } = completion;
  return [
    ...stages.flatMap((stage) => stageProblems(stage, evidence)),
    ...stages.flatMap((stage) => strayProblems(predicate, stage, placeOf(stage.predicate))),
    ...sequenceProblems(predicate, stages),
    ...completionProblems(completion),
    ...bindingProblems(predicate, stages, evidence, true),
  ];
}
