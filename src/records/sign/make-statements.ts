// Building the statements of a removal: one about each stage, and the completion, from the twelve stage statements and what
// their owners add. Invariants: pure; position, subjects and all that a completion binds are computed, never given; what is
// built holds by the verifier's own checks.
import type { z } from "zod";
import {
  COMPLETION_PREDICATE_TYPE,
  type CompletionPredicate,
  CompletionStatement,
  completionSubjects,
  STAGE_PREDICATE_TYPE,
  type StagePredicate,
  StageStatement,
  stageSubjects,
} from "../format/predicates.ts";
import { positionOf } from "../format/stages.ts";
import { STATEMENT_TYPE, type Statement, statementDigest } from "../format/statement.ts";
import type { Problem } from "../verify/reasons.ts";
import { sequenceProblems, strayProblems, successionProblems } from "../verify/stage-sequence.ts";
import { bindingProblems, completionProblems, evidenceOf, revisionsOf } from "../verify/verify-completion.ts";
import { fieldOf } from "../verify/verify-dsse-envelope.ts";
import { type Evidence, placeOf, stageProblems } from "../verify/verify-stage.ts";
import { RecordRefused, refuseUnlessClean } from "./held-statements.ts";

interface StageInput extends Omit<StagePredicate, "schema" | "position" | "previous"> {
  readonly previous: Statement<StagePredicate> | null;
}

/** States a stage. @throws RecordRefused (`record_refused`) with every reason why the statement would not hold */
export function stageStatement({ previous, ...input }: StageInput, evidence: Evidence): StageStatement {
  const predicate: StagePredicate = {
    schema: "svc.federation.offboarding_stage.v1",
    ...input,
    evidence: input.evidence.toSorted(),
    position: positionOf(input.stage),
    previous: previous === null ? null : statementDigest(previous),
  };
  const what = `stage ${input.stage} of ${input.organisation} cannot be stated`;
  const statement = stated(StageStatement, what, {
    ...{ predicateType: STAGE_PREDICATE_TYPE, subject: stageSubjects(predicate), predicate },
  });
  refuseUnlessClean(what, [
    ...stageProblems(statement, evidence),
    ...(previous === null ? [] : strayProblems(statement.predicate, previous, placeOf(previous.predicate))),
    ...(previous === null ? [] : successionProblems(statement, previous)),
  ]);
  return statement;
}

/** @throws RecordRefused when a field is not what its schema allows */
function stated<S extends z.ZodType>(
  schema: S,
  what: string,
  body: Omit<Statement<unknown>, "_type">,
): z.output<S> {
  const parsed = schema.safeParse({ _type: STATEMENT_TYPE, ...body });
  if (parsed.success) return parsed.data;
  const detail = fieldOf(parsed.error);
  throw new RecordRefused(what, [{ reason: "not_a_statement", where: "statement", detail }]);
}

type CompletionInput = Omit<CompletionPredicate, "schema" | "revisions" | "stages" | "evidence">;

/** States the completion of all stages, in a record's order. @throws RecordRefused with every reason against it */
export function completionStatement(
  input: CompletionInput,
  stages: readonly Statement<StagePredicate>[],
  evidence: Evidence,
): CompletionStatement {
  const predicate: CompletionPredicate = {
    schema: "svc.federation.offboarding_completion.v1",
    ...input,
    revisions: revisionsOf(stages),
    stages: stages.map((one) => {
      const { organisation, stage } = one.predicate;
      return { organisation, stage, statement: statementDigest(one) };
    }),
    evidence: [...evidenceOf(stages)].sort(),
  };
  const what = `run ${input.run} cannot be completed`;
  const statement = stated(CompletionStatement, what, {
    ...{ predicateType: COMPLETION_PREDICATE_TYPE, subject: completionSubjects(predicate), predicate },
  });
  refuseUnlessClean(what, wholeProblems(statement, stages, evidence));
  return statement;
}

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
