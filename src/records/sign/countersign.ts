// Countersigning what the other organisation has stated.
// Invariants: nothing is signed before the other's signature was verified and the statement was found to be
// about this removal and to hold, with all its evidence here; what is countersigned already stays as it is.

import type { DsseEnvelope } from "../format/dsse-envelope.ts";
import type { CompletionStatement, StageStatement } from "../format/predicates.ts";
import { STAGE_NAMES, statementOrder } from "../format/stages.ts";
import { keyProblems } from "../verify/completion.ts";
import type { Problem } from "../verify/reasons.ts";
import { strayProblems, successionProblems } from "../verify/sequence.ts";
import { placeOf, stageProblems } from "../verify/stage.ts";
import { verifyDsseEnvelope } from "../verify/verify-dsse-envelope.ts";
import {
  AnyStatement,
  byDigest,
  counterpartyIn,
  type HeldStatements,
  isCompletion,
  makerOf,
  type OwnRemoval,
  placeOfStatement,
  stagesIn,
} from "./held-statements.ts";
import { wholeProblems } from "./make-statements.ts";
import { RecordRefused, refuseUnlessClean } from "./record-refused.ts";
import { addSignature, type Signer } from "./signer.ts";

/**
 * Adds this organisation's signature to a statement of the other one.
 * @param held what came with it and before it: evidence, and the stages that it follows on from or binds
 * @throws RecordRefused (`record_refused`) with every reason why it must not be signed
 */
export async function countersign(
  envelope: DsseEnvelope,
  removal: OwnRemoval,
  held: HeldStatements,
  signer: Signer,
): Promise<DsseEnvelope> {
  const other = counterpartyIn(removal);
  const opened = verifyDsseEnvelope<AnyStatement>(envelope, AnyStatement, removal.parties, () => ({
    must: [other],
    may: [removal.self, other],
  }));
  if (!opened.valid) {
    const where = "envelope";
    throw new RecordRefused(
      "this statement must not be signed",
      opened.problems.map((problem) => ({ ...problem, where })),
    );
  }
  if (opened.signers.some(({ organisation }) => organisation === removal.self)) return envelope;
  const { statement } = opened;
  const where = placeOfStatement(statement);
  const problems = strayProblems(removal, statement, where);
  // Each organisation states its own part, and the other one countersigns it.
  if (makerOf(statement) !== other) problems.push({ reason: "states_for_another", where });
  const more = isCompletion(statement)
    ? [
        ...completionToSign(statement, removal, held),
        // Of both: the one who has signed, and the one who is about to.
        ...keyProblems(statement.predicate, [
          ...opened.signers,
          { organisation: removal.self, keyId: signer.keyId },
        ]),
      ]
    : stageToSign(statement, held);
  refuseUnlessClean(`${where} must not be signed`, [...problems, ...more]);
  return addSignature(envelope, signer);
}

function stageToSign(statement: StageStatement, held: HeldStatements): Problem[] {
  const { organisation, stage } = statement.predicate;
  const problems = stageProblems(statement, byDigest(held.evidence));
  const before = STAGE_NAMES[STAGE_NAMES.indexOf(stage) - 1];
  if (before !== undefined) {
    const earlier = stagesIn(held.envelopes).get(placeOf({ organisation, stage: before }));
    if (earlier === undefined)
      problems.push({ reason: "stage_missing", where: placeOf({ organisation, stage: before }) });
    else problems.push(...successionProblems(statement, earlier));
  }
  return problems;
}

function completionToSign(
  completion: CompletionStatement,
  removal: OwnRemoval,
  held: HeldStatements,
): Problem[] {
  const stages = stagesIn(held.envelopes);
  const ordered = statementOrder(removal.remover, removal.partner)
    .map((slot) => stages.get(placeOf(slot)))
    .filter((stage) => stage !== undefined);
  return wholeProblems(completion, ordered, byDigest(held.evidence));
}
