// The statements that an organisation makes of a removal (one about each stage, and the completion), and its signatures of
// them and of the other's. Invariants: what is made holds by the verifier's own checks; a statement is on disk before it is
// signed, and a signature before it is returned, so that no second one is ever handed out, even if the program is killed in
// between; a signature that was lost on its way to the disk was never passed on.
import type * as z from "zod";
import { DrawbridgeError } from "../../domain/errors.ts";
import { strictJsonIn } from "../../domain/strict-json.ts";
import { type DsseEnvelope, DsseEnvelopeDraft } from "../format/dsse-envelope.ts";
import { RECORD_BYTES_MAX } from "../format/fields.ts";
import { counterpartyOf, positionOf, STAGE_NAMES } from "../format/removal-stages.ts";
import type { CompletionPredicate, StagePredicate } from "../format/statements.ts";
import {
  CompletionStatement,
  fileText,
  StageStatement,
  stateBy,
  statementDigest,
  unsigned,
} from "../format/statements.ts";
import { ownerOf } from "../format/trust.ts";
import { addProblems, type Problem, RecordRefused, refuseUnlessClean } from "../verify/reasons.ts";
import { boundBy, keyProblems, wholeProblems } from "../verify/verify-completion.ts";
import { fieldOf, type Signature } from "../verify/verify-signatures.ts";
import type { Evidence } from "../verify/verify-stages.ts";
import { inOrder, judgeStage, placeOf, strayProblems, successionProblems } from "../verify/verify-stages.ts";
import type { AnyStatement, HeldStatements, OwnRemoval } from "./export-and-import.ts";
import {
  byDigest,
  isCompletion,
  makerOf,
  openFrom,
  placeOfStatement,
  stagesIn,
  statementIn,
} from "./export-and-import.ts";
import { addSignature, type Signer } from "./signer.ts";

type Input = Omit<StagePredicate, "schema" | "position" | "previous"> & { previous: StageStatement | null };

/** States a stage. @throws RecordRefused (`record_refused`) with every reason why the statement would not hold */
export function stageStatement({ previous, ...input }: Input, evidence: Evidence): StageStatement {
  const predicate: StagePredicate = {
    schema: "svc.federation.offboarding_stage.v1",
    ...input,
    evidence: input.evidence.toSorted(),
    position: positionOf(input.stage),
    previous: previous === null ? null : statementDigest(previous),
  };
  const what = `stage ${input.stage} of ${input.organisation} cannot be stated`;
  const statement = stated(what, stateBy(StageStatement, predicate));
  refuseUnlessClean(what, [
    ...judgeStage(statement, evidence).problems,
    ...(previous === null ? [] : strayProblems(statement.predicate, previous, placeOf(previous.predicate))),
    ...(previous === null ? [] : successionProblems(statement, previous)),
  ]);
  return statement;
}

function stated<T>(what: string, parsed: z.ZodSafeParseResult<T>): T {
  if (parsed.success) return parsed.data;
  const detail = fieldOf(parsed.error);
  throw new RecordRefused(what, [{ reason: "not_a_statement", where: "statement", detail }]);
}

/** States the completion of all stages, in a record's order. @throws RecordRefused with every reason against it */
export function completionStatement(
  input: Omit<CompletionPredicate, "schema" | "revisions" | "stages" | "evidence">,
  stages: readonly StageStatement[],
  evidence: Evidence,
): CompletionStatement {
  const schema = "svc.federation.offboarding_completion.v1";
  const predicate: CompletionPredicate = { schema, ...input, ...boundBy(stages) };
  const what = `run ${input.run} cannot be completed`;
  const statement = stated(what, stateBy(CompletionStatement, predicate));
  refuseUnlessClean(what, wholeProblems(statement, stages, evidence));
  return statement;
}

/** Where one statement is kept. `write` returns only when the text would survive a loss of power. */
export type Kept = Readonly<{ read: () => string | undefined; write: (text: string) => void }>;

/** The DSSE envelope of an own statement; `make` is called if none is kept. What a signer throws leaves it unsigned. */
export async function signOnce(kept: Kept, make: () => AnyStatement, removal: OwnRemoval, signer: Signer) {
  const before = readKept(kept);
  if (before !== undefined && before.signatures.length > 0) return withOwnSignature(before, removal);
  requireOwn(removal, signer.keyId);
  const draft = before ?? keep(kept, draftOf(make(), removal, signer));
  return keep(kept, await addSignature(draft, signer));
}

/** @throws DrawbridgeError `record_refused` when it is signed with none of this organisation's keys: nobody would take it */
function withOwnSignature(kept: DsseEnvelope, { self, parties }: OwnRemoval): DsseEnvelope {
  if (kept.signatures.some(({ keyid }) => ownerOf(keyid, parties) === self)) return kept;
  const what = "this was signed with a key that the trust file no longer names";
  throw new DrawbridgeError("record_refused", what, {
    hint: "Name the old key beside the new one in `offboarding.trustFile` on both sides until this removal has ended. If it is known to others, abort the run on both sides and open it again.",
  });
}

/** A signature is made once: one by a key that nobody knows would stand in the way of the right one. */
function requireOwn({ self, parties }: OwnRemoval, keyId: string): void {
  if (ownerOf(keyId, parties) === self) return;
  const what = `the trust file does not give ${self} the key that it signs with (${keyId})`;
  throw new DrawbridgeError("config_invalid", `${what}; nothing was signed`, {
    hint: "Correct `offboarding.signingKey`; or name the key in `offboarding.trustFile`, on both sides.",
  });
}

/** The other's DSSE envelope with this one's signature, made once, if it holds. @throws RecordRefused; as `signOnce` */
export async function countersignOnce(
  kept: Kept,
  envelope: DsseEnvelope,
  removal: OwnRemoval,
  held: HeldStatements,
  signer: Signer,
) {
  const before = readKept(kept);
  if (before?.payload === envelope.payload) return withOwnSignature(before, removal);
  const conflict = { reason: "statement_conflicts", where: "envelope" } as const;
  if (before) throw new RecordRefused("another statement was countersigned in its place", [conflict]);
  requireOwn(removal, signer.keyId);
  const other = counterpartyOf(removal.self, removal);
  const opened = openFrom(other, removal, envelope);
  if (!opened.valid) {
    const problems = opened.problems.map((problem) => ({ ...problem, where: "envelope" }));
    throw new RecordRefused("this statement must not be signed", problems);
  }
  if (opened.signers.some(({ organisation }) => organisation === removal.self)) return keep(kept, envelope);
  const { statement } = opened;
  const shown = isCompletion(statement)
    ? wholeProblems(statement, inOrder(removal, stagesIn(held.envelopes)), byDigest(held.evidence))
    : stageToSign(statement, held);
  const signers = [...opened.signers, { organisation: removal.self, keyId: signer.keyId }];
  refuseToSign(statement, other, removal, signers, shown);
  return keep(kept, await addSignature(envelope, signer));
}

/** @param maker whose statement it has to be; `signers` by which it will be signed; `shown`: what else is wrong with it */
function refuseToSign(
  statement: AnyStatement,
  maker: string,
  removal: OwnRemoval,
  signers: readonly Signature[],
  shown: readonly Problem[],
): void {
  const where = placeOfStatement(statement);
  const problems = strayProblems(removal, statement, where);
  if (makerOf(statement) !== maker) problems.push({ reason: "states_for_another", where });
  addProblems(problems, shown);
  if (isCompletion(statement)) addProblems(problems, keyProblems(statement.predicate, signers));
  refuseUnlessClean(`${where} must not be signed`, problems);
}

function draftOf(statement: AnyStatement, removal: OwnRemoval, signer: Signer): DsseEnvelope {
  const own = { organisation: removal.self, keyId: signer.keyId };
  refuseToSign(statement, removal.self, removal, [own], []);
  return unsigned(statement);
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

function stageToSign(statement: StageStatement, held: HeldStatements): Problem[] {
  const { organisation, stage } = statement.predicate;
  const { problems } = judgeStage(statement, byDigest(held.evidence));
  const before = STAGE_NAMES[STAGE_NAMES.indexOf(stage) - 1];
  if (before === undefined) return problems;
  const where = placeOf({ organisation, stage: before });
  const earlier = stagesIn(held.envelopes).get(where);
  if (earlier === undefined) return [...problems, { reason: "stage_missing", where }];
  return [...problems, ...successionProblems(statement, earlier)];
}
