// The statements of a run, its own and the other organisation's, as DSSE envelopes with their signatures and evidence,
// in one file. Invariants: a signature and what it signs are written together; none is ever made again or taken
// away; when each signature was made or came in is written beside it.
import { z } from "zod";
import { DrawbridgeError } from "../../../domain/errors.ts";
import { parseJson } from "../../../domain/json.ts";
import { DsseEnvelope, DsseEnvelopeDraft } from "../../../records/format/dsse-envelope.ts";
import { EvidenceItem } from "../../../records/format/evidence-item.ts";
import { Instant } from "../../../records/format/fields.ts";
import type { StageName } from "../../../records/format/stages.ts";
import type { TrustedParty } from "../../../records/format/trust.ts";
import {
  type AnyStatement,
  type HeldStatements,
  isCompletion,
  placeOfStatement,
  statementIn,
} from "../../../records/sign/held-statements.ts";
import type { Kept } from "../../../records/sign/sign-statements.ts";
import type { StateFolder } from "../../state/folder.ts";
import { type Run, runFile } from "./run-file.ts";

const FILE = "statements.json";

const StatementsFile = z.strictObject({
  version: z.literal(1),
  envelopes: z.array(DsseEnvelope),
  evidence: z.array(EvidenceItem),
  /** By place and key ID: when that signature was made or came in. */
  since: z.record(z.string(), Instant),
});
export type RunStatements = z.output<typeof StatementsFile>;

/** What was read or written last in each state folder: the file is read again at every step, and holds all evidence. */
const lastRead = new WeakMap<StateFolder, { readonly text: string; readonly statements: RunStatements }>();

export function readStatements({ run, state }: Run): RunStatements {
  const none: RunStatements = { version: 1, envelopes: [], evidence: [], since: {} };
  const text = state.readText(runFile(run, FILE));
  if (text === undefined) return none;
  const last = lastRead.get(state);
  if (last?.text === text) return last.statements;
  const statements = state.read(StatementsFile, runFile(run, FILE)) ?? none;
  lastRead.set(state, { text, statements });
  return statements;
}

/** @param at when the signatures that are not in the file yet were made or came in */
export function writeStatements(run: Run, { envelopes, evidence }: HeldStatements, at: string): void {
  const since = { ...readStatements(run).since };
  for (const envelope of envelopes) {
    for (const { keyid } of envelope.signatures) since[`${placeIn(envelope)} ${keyid}`] ??= at;
  }
  const statements: RunStatements = { version: 1, envelopes: [...envelopes], evidence: [...evidence], since };
  const text = run.state.write(runFile(run.run, FILE), statements);
  lastRead.set(run.state, { text, statements });
}

export function withEnvelope(statements: HeldStatements, envelope: DsseEnvelope): HeldStatements {
  const others = statements.envelopes.filter((one) => one.payload !== envelope.payload);
  return { ...statements, envelopes: [...others, envelope] };
}

function placeIn(envelope: DsseEnvelope): string {
  const statement = statementIn(envelope);
  return statement === undefined ? "" : placeOfStatement(statement);
}

export function envelopeAt({ envelopes }: HeldStatements, place: string): DsseEnvelope | undefined {
  return envelopes.find((envelope) => placeIn(envelope) === place);
}

/** The pinned key by which an organisation has signed an envelope; undefined when it has not. */
export function signingKeyOf(
  envelope: DsseEnvelope | undefined,
  organisation: string,
  parties: readonly TrustedParty[],
): string | undefined {
  const keys = parties.find((party) => party.organisation === organisation)?.keys ?? [];
  const signature = envelope?.signatures.find(({ keyid }) => keys.some(({ keyId }) => keyId === keyid));
  return signature?.keyid;
}

function fileNameOf({ self }: Run, statement: AnyStatement): string {
  if (isCompletion(statement)) return "completion";
  const { organisation, stage } = statement.predicate;
  return `${organisation === self ? "own" : "other"}-${stage}`;
}

/**
 * The file of a statement that this organisation signs: made once, signed once (src/records/sign/sign-statements.ts).
 * @throws DrawbridgeError `state_unreadable` by `read`, when it holds a statement of another place, or of another run
 */
export function statementFile(
  run: Run,
  place: `own-${StageName}` | `other-${StageName}` | "completion",
): Kept {
  const name = runFile(run.run, `statements/${place}.json`);
  const read = () => {
    const text = run.state.readText(name);
    const { data } = DsseEnvelopeDraft.safeParse(parseJson(text ?? ""));
    const statement = data && statementIn(data);
    if (statement === undefined) return text;
    if (statement.predicate.run === run.run && fileNameOf(run, statement) === place) return text;
    throw new DrawbridgeError("state_unreadable", `${name} holds a statement of another run or place`, {
      hint: "Find out who put it there, and put back the one that was there.",
    });
  };
  return { read, write: (text) => run.state.writeText(name, text) };
}
