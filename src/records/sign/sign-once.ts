// Makes a statement once and signs it once, even if the program is killed in between.
//
// The steps from what an organisation did to a record:
//   1. `stageStatement(input, evidence)`: its own stage, from what the probes saw; `previous` is its stage before.
//   2. `signOnce(keptAt(file), make, removal, signer)`: the first statement that was made is the one that counts;
//      it is written down before it is signed, and the signature is written down with it.
//   3. `exportExchange(removal, envelopes, evidence)`: to the other organisation, by any channel.
//   4. `importExchange(bytes, removal, held)`: what came back. Write down `held` whole, then go on.
//   5. `countersignOnce(keptAt(file), envelope, removal, held, signer)`: of the other's statement. Then 3 again.
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
import { parseStrictJson } from "../../domain/strict-json.ts";
import { PRIVATE, readIfPresent, writeWhole } from "../../runtime/write-file.ts";
import { type DsseEnvelope, DsseEnvelopeDraft } from "../format/dsse-envelope.ts";
import { RECORD_BYTES_MAX } from "../format/fields.ts";
import { fileText } from "../format/record-file.ts";
import { STATEMENT_PAYLOAD_TYPE, statementBytes } from "../format/statement.ts";
import { keyProblems } from "../verify/completion.ts";
import type { Problem } from "../verify/reasons.ts";
import { strayProblems } from "../verify/sequence.ts";
import { countersign } from "./countersign.ts";
import {
  type AnyStatement,
  type HeldStatements,
  isCompletion,
  makerOf,
  type OwnRemoval,
  placeOfStatement,
  statementIn,
} from "./held-statements.ts";
import { refuseUnlessClean } from "./record-refused.ts";
import { addSignature, type Signer } from "./signer.ts";

/** Where one statement is kept. `write` returns only when the text would survive a loss of power. */
export interface Kept {
  readonly read: () => string | undefined;
  readonly write: (text: string) => void;
}

/** A file of its own for one statement; whole or absent, readable by this user alone. */
export function keptAt(file: string): Kept {
  return { read: () => readIfPresent(file), write: (text) => writeWhole(file, text, PRIVATE) };
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
  let value: unknown;
  try {
    value = parseStrictJson(Buffer.from(text, "utf8"), RECORD_BYTES_MAX);
  } catch {
    value = undefined;
  }
  const parsed = DsseEnvelopeDraft.safeParse(value);
  if (parsed.success && statementIn(parsed.data) !== undefined) return parsed.data;
  throw new DrawbridgeError("state_unreadable", "the kept statement is not one that was written here", {
    hint: "Restore it from a backup. Without one, ask the other organisation for its copy: a second statement would contradict the first.",
  });
}
