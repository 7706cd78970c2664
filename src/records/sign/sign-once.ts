// Makes a statement once and signs it once, even if the program is killed in between.
//
// The steps from what an organisation did to a record:
//   1. `stageStatement(input, evidence)`: its own stage, from what the probes saw; `previous` is its stage before.
//   2. `signOnce(kept, make, removal, signer)`: the first statement that was made is the one that counts;
//      it is written down before it is signed, and the signature is written down with it.
//   3. `exportExchange(removal, envelopes, evidence)`: to the other organisation, by any channel.
//   4. `importExchange(bytes, removal, held)`: what came back. Write down `held` whole, then go on.
//   5. `countersignOnce(kept, envelope, removal, held, signer)`: of the other's statement. Then 3 again.
//   6. When all twelve stages have both signatures, the remover makes `completionStatement(input, stages,
//      evidence)` and signs it by 2; the partner takes it in by 4 and signs it by 5; then 3 and 4 once more.
//   7. `assembleRecord(held, trust)`: the record's text, which verifies, or nothing.
// Everything but 2 and 5 is pure. Steps 2 and 5 may be repeated at any time: they return what is kept, so no second
// statement or signature is ever handed out.
//
// Invariants: a statement is on disk before it is signed, and a signature before it is returned; one file (`Kept`) has
// one statement for good. ECDSA signatures are random: a signature that was lost between the signer and the disk was
// never passed on, and another is made over the same bytes.
import { DrawbridgeError } from "../../domain/errors.ts";
import { strictJsonIn } from "../../domain/strict-json.ts";
import { type DsseEnvelope, DsseEnvelopeDraft } from "../format/dsse-envelope.ts";
import { RECORD_BYTES_MAX } from "../format/fields.ts";
import type { CompletionStatement, StageStatement } from "../format/predicates.ts";
import { fileText } from "../format/record-file.ts";
import { counterpartyOf, STAGE_NAMES } from "../format/stages.ts";
import { STATEMENT_PAYLOAD_TYPE, statementBytes } from "../format/statement.ts";
import type { Problem } from "../verify/reasons.ts";
import { strayProblems, successionProblems } from "../verify/stage-sequence.ts";
import { keyProblems } from "../verify/verify-completion.ts";
import { inOrder, placeOf, stageProblems } from "../verify/verify-stage.ts";
import {
  type AnyStatement,
  byDigest,
  type HeldStatements,
  isCompletion,
  makerOf,
  type OwnRemoval,
  openFrom,
  placeOfStatement,
  RecordRefused,
  refuseUnlessClean,
  stagesIn,
  statementIn,
} from "./held-statements.ts";
import { wholeProblems } from "./make-statements.ts";
import { addSignature, type Signer } from "./signer.ts";

/** Where one statement is kept. `write` returns only when the text would survive a loss of power. */
export interface Kept {
  readonly read: () => string | undefined;
  readonly write: (text: string) => void;
}

/**
 * The DSSE envelope of a statement of this organisation's own, with its signature.
 * @param make called only when nothing is kept yet; what it throws is passed on, and nothing is kept then
 * @returns what is kept; after the first time always the same
 * @throws RecordRefused (`record_refused`) when the statement is not this organisation's to make, or names
 *   another key than the signer's; DrawbridgeError `state_unreadable` when what is kept is no DSSE envelope,
 *   `program_failed` or `secret_unavailable` when the signer fails, which leaves the statement kept, unsigned
 */
export async function signOnce(
  kept: Kept,
  make: () => AnyStatement,
  removal: OwnRemoval,
  signer: Signer,
): Promise<DsseEnvelope> {
  const draft = readKept(kept) ?? keep(kept, draftOf(make(), removal, signer));
  const [first] = draft.signatures;
  if (first !== undefined) return draft;
  return keep(kept, await addSignature(draft, signer));
}

/**
 * The other organisation's envelope with this one's signature besides.
 * @param held what came with it and before it, as for `countersign`
 * @returns what is kept, which has both signatures; after the first time always the same
 * @throws as `countersign` and `signOnce` do; RecordRefused `statement_conflicts` when another statement is
 *   kept there
 */
export async function countersignOnce(
  kept: Kept,
  envelope: DsseEnvelope,
  removal: OwnRemoval,
  held: HeldStatements,
  signer: Signer,
): Promise<DsseEnvelope> {
  const before = readKept(kept);
  if (before !== undefined) {
    const where = "envelope";
    refuseUnlessClean(
      "another statement was countersigned in its place",
      before.payload === envelope.payload ? [] : [{ reason: "statement_conflicts", where }],
    );
    return before;
  }
  return keep(kept, await countersign(envelope, removal, held, signer));
}

function draftOf(statement: AnyStatement, removal: OwnRemoval, signer: Signer): DsseEnvelope {
  const where = placeOfStatement(statement);
  const problems: Problem[] = [...strayProblems(removal, statement, where)];
  if (makerOf(statement) !== removal.self) problems.push({ reason: "states_for_another", where });
  if (isCompletion(statement)) {
    const own = { organisation: removal.self, keyId: signer.keyId };
    problems.push(...keyProblems(statement.predicate, [own]));
  }
  refuseUnlessClean(`${where} must not be signed`, problems);
  return {
    payloadType: STATEMENT_PAYLOAD_TYPE,
    payload: statementBytes(statement).toString("base64"),
    signatures: [],
  };
}

function keep(kept: Kept, envelope: DsseEnvelope): DsseEnvelope {
  kept.write(fileText(envelope));
  return envelope;
}

function readKept({ read }: Kept): DsseEnvelope | undefined {
  const text = read();
  if (text === undefined) return undefined;
  const parsed = DsseEnvelopeDraft.safeParse(strictJsonIn(Buffer.from(text, "utf8"), RECORD_BYTES_MAX));
  if (parsed.success && statementIn(parsed.data) !== undefined) return parsed.data;
  throw new DrawbridgeError("state_unreadable", "the kept statement is not one that was written here", {
    hint: "Restore it from a backup. Without one, ask the other organisation for its copy: a second statement would contradict the first.",
  });
}

// Countersigning what the other organisation has stated. Invariants: nothing is signed before the other's signature
// was verified and the statement was found to be about this removal and to hold, with all its evidence here; what is
// countersigned already stays as it is.

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
  const other = counterpartyOf(removal.self, removal);
  const opened = openFrom(other, removal, envelope);
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
  const ordered = inOrder(removal, stagesIn(held.envelopes));
  return wholeProblems(completion, ordered, byDigest(held.evidence));
}
