// Exporting and importing statements and signatures between two organisations as files, by any channel.
// Invariants: a file is taken in whole or not at all; each DSSE envelope in it is signed by the other
// organisation's pinned key, and each item is evidence that a statement rests on; taking in the same file
// again changes nothing; a statement that contradicts one that is held is refused.
import { strictJsonIn } from "../../domain/strict-json.ts";
import type { DsseEnvelope } from "../format/dsse-envelope.ts";
import type { EvidenceItem } from "../format/evidence-item.ts";
import { RECORD_BYTES_MAX } from "../format/fields.ts";
import {
  EXCHANGE_SCHEMA,
  ExchangeFile,
  fileText,
  RECORD_SCHEMA,
  type RecordFile,
} from "../format/record-file.ts";
import { counterpartyOf } from "../format/stages.ts";
import type { Trust } from "../format/trust.ts";
import { readEvidence } from "../verify/evidence-integrity.ts";
import type { Problem } from "../verify/reasons.ts";
import { strayProblems } from "../verify/stage-sequence.ts";
import { completionProblems, evidenceOf, keyProblems } from "../verify/verify-completion.ts";
import { fieldOf } from "../verify/verify-dsse-envelope.ts";
import { verifyRecord } from "../verify/verify-record.ts";
import { inOrder, stageProblems } from "../verify/verify-stage.ts";
import {
  type AnyStatement,
  byDigest,
  type HeldStatements,
  isCompletion,
  makerOf,
  mergeSignatures,
  type OwnRemoval,
  openFrom,
  placeOfStatement,
  RecordRefused,
  refuseUnlessClean,
  stagesIn,
  statementIn,
} from "./held-statements.ts";

const REFUSED = "the exchange file is refused, and nothing of it was taken in";

/**
 * The text of a file for the other organisation.
 * @param envelopes what it is to hold, each signed by this organisation; of the evidence, what these rest on
 *   goes along
 * @throws RecordRefused (`record_refused`) when the other organisation would refuse a DSSE envelope
 */
export function exportExchange(
  removal: OwnRemoval,
  envelopes: readonly DsseEnvelope[],
  evidence: readonly EvidenceItem[],
): string {
  const { run, self } = removal;
  const problems = envelopes.flatMap((envelope, index) => {
    const opened = openFrom(self, removal, envelope);
    return opened.valid ? [] : opened.problems.map((one) => ({ ...one, where: `envelopes[${index}]` }));
  });
  refuseUnlessClean("this must not be passed on", problems);
  const needed = evidenceOf([...stagesIn(envelopes).values()]);
  const file: ExchangeFile = {
    schema: EXCHANGE_SCHEMA,
    run,
    from: self,
    envelopes: [...envelopes],
    evidence: evidence
      .filter(({ digest }) => needed.has(digest))
      .sort((left, right) => (left.digest < right.digest ? -1 : 1)),
  };
  return fileText(file);
}

export interface Imported {
  /** What is held now. */
  readonly held: HeldStatements;
  readonly added: { readonly statements: number; readonly signatures: number; readonly evidence: number };
}

/**
 * Takes in a file of the other organisation.
 * @throws RecordRefused (`record_refused`) with everything that is wrong; nothing is taken in then
 */
export function importExchange(bytes: Uint8Array, removal: OwnRemoval, held: HeldStatements): Imported {
  const file = readExchange(bytes);
  const other = counterpartyOf(removal.self, removal);
  const problems: Problem[] = [];
  if (file.from !== other)
    problems.push({ reason: "exchange_from_another", where: "file", detail: file.from });
  if (file.run !== removal.run) problems.push({ reason: "other_run", where: "file", detail: file.run });
  const offered = readEvidence(file.evidence);
  // A list of items may be longer than a call has arguments.
  const add = (more: readonly Problem[]) => {
    for (const problem of more) problems.push(problem);
  };
  add(offered.problems.filter(({ reason }) => reason !== "evidence_out_of_order"));
  const items = new Map([...byDigest(held.evidence), ...offered.items]);

  const places = envelopesByPlace(held);
  let opened = 0;
  for (const [index, envelope] of file.envelopes.entries()) {
    const where = `envelopes[${index}]`;
    const result = openFrom(other, removal, envelope);
    if (!result.valid) {
      add(result.problems.map((problem) => ({ ...problem, where })));
      continue;
    }
    opened += 1;
    add(statementProblems(result.statement, removal, items, offered.unusable));
    // Signatures are never replaced: one by another key would stand in the way of the right one.
    if (isCompletion(result.statement)) add(keyProblems(result.statement.predicate, result.signers));
    const place = placeOfStatement(result.statement);
    // What is this organisation's to state is taken back only if it has stated it.
    const hasSigned = result.signers.some(({ organisation }) => organisation === removal.self);
    if (makerOf(result.statement) === removal.self && !hasSigned && !places.has(place)) {
      problems.push({ reason: "states_for_another", where: place });
    }
    const known = places.get(place);
    if (known !== undefined && known.payload !== envelope.payload) {
      problems.push({ reason: "statement_conflicts", where: place });
    }
    places.set(place, known === undefined ? envelope : mergeSignatures(known, envelope, removal.parties));
  }
  const envelopes = [...places.values()];
  const needed = evidenceOf([...stagesIn(envelopes).values()]);
  const isWhole = opened === file.envelopes.length;
  for (const digest of offered.items.keys()) {
    if (isWhole && !needed.has(digest))
      problems.push({ reason: "evidence_extra", where: "evidence", detail: digest });
  }
  refuseUnlessClean(REFUSED, problems);
  return {
    held: { envelopes, evidence: [...items.values()] },
    added: {
      statements: envelopes.length - held.envelopes.length,
      signatures: signaturesOf(envelopes) - signaturesOf(held.envelopes),
      evidence: items.size - held.evidence.length,
    },
  };
}

function readExchange(bytes: Uint8Array): ExchangeFile {
  const value = strictJsonIn(bytes, RECORD_BYTES_MAX);
  if (value === undefined)
    throw new RecordRefused(REFUSED, [{ reason: "exchange_malformed", where: "file" }]);
  const parsed = ExchangeFile.safeParse(value);
  if (parsed.success) return parsed.data;
  const detail = fieldOf(parsed.error);
  throw new RecordRefused(REFUSED, [{ reason: "exchange_malformed", where: "file", detail }]);
}

function statementProblems(
  statement: AnyStatement,
  removal: OwnRemoval,
  items: ReadonlyMap<string, EvidenceItem>,
  unusable: ReadonlySet<string>,
): Problem[] {
  return [
    ...strayProblems(removal, statement, placeOfStatement(statement)),
    // What a completion binds is checked when it is countersigned, with all statements at hand.
    ...(isCompletion(statement) ? completionProblems(statement) : stageProblems(statement, items, unusable)),
  ];
}

function envelopesByPlace({ envelopes }: HeldStatements): Map<string, DsseEnvelope> {
  return new Map(
    envelopes.flatMap((envelope) => {
      const statement = statementIn(envelope);
      return statement === undefined ? [] : [[placeOfStatement(statement), envelope]];
    }),
  );
}

function signaturesOf(envelopes: readonly DsseEnvelope[]): number {
  return envelopes.reduce((sum, { signatures }) => sum + signatures.length, 0);
}

/**
 * The text of the record file.
 * @param trust what an auditor would use
 * @throws RecordRefused (`record_refused`) when it would not verify, with every reason
 */
export function assembleRecord(held: HeldStatements, trust: Trust): string {
  const byPlace = envelopesByPlace(held);
  const completion = byPlace.get("completion");
  const statement = completion && statementIn(completion);
  if (completion === undefined || statement === undefined || !isCompletion(statement)) {
    throw new RecordRefused("there is no record yet", [{ reason: "record_malformed", where: "completion" }]);
  }
  const bound = new Set(statement.predicate.evidence);
  const file: RecordFile = {
    schema: RECORD_SCHEMA,
    completion,
    stages: [...inOrder(statement.predicate, byPlace)],
    evidence: held.evidence
      .filter(({ digest }) => bound.has(digest))
      .sort((left, right) => (left.digest < right.digest ? -1 : 1)),
  };
  const text = fileText(file);
  const { problems } = verifyRecord(Buffer.from(text, "utf8"), trust);
  if (problems.length > 0) throw new RecordRefused("the record would not verify", problems);
  return text;
}
