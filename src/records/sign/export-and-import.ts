// What an organisation holds of one removal (DSSE envelopes, each signed by one or both, and evidence), and the files by
// which it passes this on and takes in what the other holds. Invariants: a DSSE envelope is never replaced, only
// signatures are added to it, one an organisation; a file is taken in whole or not at all, and again without change;
// each DSSE envelope in it is signed by the other's pinned key; each item is evidence that a statement rests on.
import { LRUCache } from "lru-cache";
import * as z from "zod";
import { strictJsonIn } from "../../domain/strict-json.ts";
import { type DsseEnvelope, withSignature } from "../format/dsse-envelope.ts";
import type { EvidenceItem } from "../format/evidence-item.ts";
import { RECORD_BYTES_MAX, STATEMENT_BYTES_MAX } from "../format/fields.ts";
import { counterpartyOf } from "../format/removal-stages.ts";
import type { RecordFile } from "../format/statements.ts";
import { CompletionStatement, ExchangeFile, fileText, StageStatement } from "../format/statements.ts";
import { ownerOf, type Trust, type TrustedParty } from "../format/trust.ts";
import type { Problem } from "../verify/reasons.ts";
import { addProblems, problemsOf, RecordRefused, refuseUnlessClean } from "../verify/reasons.ts";
import { completionProblems, evidenceOf, keyProblems } from "../verify/verify-completion.ts";
import { surplusEvidence, verifyRecord } from "../verify/verify-record.ts";
import { fieldOf, senderSigns, verifyDsseEnvelope } from "../verify/verify-signatures.ts";
import type { Removal } from "../verify/verify-stages.ts";
import { inOrder, judgeStage, placeOf, readEvidence, strayProblems } from "../verify/verify-stages.ts";

export interface OwnRemoval extends Removal {
  readonly self: string;
  /** Both parties with their pinned keys; own ones as well, so that what comes back can be checked. */
  readonly parties: readonly TrustedParty[];
}

export interface HeldStatements {
  readonly envelopes: readonly DsseEnvelope[];
  readonly evidence: readonly EvidenceItem[];
}

export const AnyStatement = z.discriminatedUnion("predicateType", [StageStatement, CompletionStatement]);
export type AnyStatement = z.output<typeof AnyStatement>;

/** A removal has thirteen statements, and each is asked for many times while the others are signed. */
const known = new LRUCache<string, { readonly statement: AnyStatement | undefined }>({ max: 64 });

/** What a DSSE envelope states, whether or not it is signed; undefined when that is nothing of ours. */
export function statementIn({ payload }: DsseEnvelope): AnyStatement | undefined {
  const before = known.get(payload);
  if (before !== undefined) return before.statement;
  const value = strictJsonIn(Buffer.from(payload, "base64"), STATEMENT_BYTES_MAX);
  const statement = AnyStatement.safeParse(value).data;
  known.set(payload, { statement });
  return statement;
}

/** Verifies a DSSE envelope that one organisation passes on; the other one may have signed it before. */
export function openFrom(sender: string, removal: OwnRemoval, envelope: unknown) {
  const rule = () => senderSigns(sender, removal);
  return verifyDsseEnvelope<AnyStatement>(envelope, AnyStatement, removal.parties, rule);
}

export function isCompletion(statement: AnyStatement): statement is CompletionStatement {
  return statement.predicateType === CompletionStatement.shape.predicateType.value;
}

export function placeOfStatement(statement: AnyStatement): string {
  return isCompletion(statement) ? "completion" : placeOf(statement.predicate);
}

export function makerOf(statement: AnyStatement): string {
  return isCompletion(statement) ? statement.predicate.remover : statement.predicate.organisation;
}

export function stagesIn(envelopes: readonly DsseEnvelope[]): ReadonlyMap<string, StageStatement> {
  const stated = envelopes.flatMap((envelope) => statementIn(envelope) ?? []);
  const stages = stated.flatMap((statement) => (isCompletion(statement) ? [] : [statement]));
  return new Map(stages.map((stage) => [placeOf(stage.predicate), stage]));
}

/** The DSSE envelope with what another copy of it is signed by, as long as that organisation has not signed yet. */
export function mergeSignatures(held: DsseEnvelope, other: DsseEnvelope, parties: readonly TrustedParty[]) {
  return other.signatures.reduce(
    (merged, signature) =>
      merged.signatures.some(({ keyid }) => ownerOf(keyid, parties) === ownerOf(signature.keyid, parties))
        ? merged
        : withSignature(merged, signature),
    held,
  );
}

export const byDigest = (items: readonly EvidenceItem[]) => new Map(items.map((item) => [item.digest, item]));

const REFUSED = "the exchange file is refused, and nothing of it was taken in";

/** The text of a file for the other organisation. @throws RecordRefused when that one would refuse a DSSE envelope */
export function exportExchange(removal: OwnRemoval, { envelopes, evidence: held }: HeldStatements) {
  const { run, self: from } = removal;
  const problems = envelopes.flatMap((envelope, index) => {
    const opened = openFrom(from, removal, envelope);
    return opened.valid ? [] : opened.problems.map((one) => ({ ...one, where: `envelopes[${index}]` }));
  });
  refuseUnlessClean("this must not be passed on", problems);
  const evidence = among(held, evidenceOf([...stagesIn(envelopes).values()]));
  const schema = "svc.federation.offboarding_exchange.v1" as const;
  return fileText({ schema, run, from, envelopes: [...envelopes], evidence } satisfies ExchangeFile);
}

function among(items: readonly EvidenceItem[], digests: ReadonlySet<string>): EvidenceItem[] {
  const found = items.filter(({ digest }) => digests.has(digest));
  return found.sort((left, right) => (left.digest < right.digest ? -1 : 1));
}

/** Takes in a file of the other organisation. @throws RecordRefused (`record_refused`) with everything that is wrong */
export function importExchange(bytes: Uint8Array, removal: OwnRemoval, held: HeldStatements) {
  const file = readExchange(bytes);
  const other = counterpartyOf(removal.self, removal);
  const problems = problemsOf("file", (report) => {
    if (file.from !== other) report("exchange_from_another", file.from);
    if (file.run !== removal.run) report("other_run", file.run);
  });
  const offered = readEvidence(file.evidence);
  const add = (more: readonly Problem[]) => addProblems(problems, more);
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
    const { statement, signers } = result;
    const place = placeOfStatement(statement);
    add(strayProblems(removal, statement, place));
    if (isCompletion(statement)) {
      // What it binds is checked when it is countersigned, with all statements at hand.
      add(completionProblems(statement));
      // Signatures are never replaced: one by another key would stand in the way of the right one.
      add(keyProblems(statement.predicate, signers));
    } else add(judgeStage(statement, items, offered.unusable).problems);
    // What is this organisation's to state is taken back only if it has stated it.
    const hasSigned = signers.some(({ organisation }) => organisation === removal.self);
    if (makerOf(statement) === removal.self && !hasSigned && !places.has(place)) {
      problems.push({ reason: "states_for_another", where: place });
    }
    const known = places.get(place);
    if (known !== undefined && known.payload !== envelope.payload) {
      problems.push({ reason: "statement_conflicts", where: place });
    }
    places.set(place, known === undefined ? envelope : mergeSignatures(known, envelope, removal.parties));
  }
  const envelopes = [...places.values()];
  const signaturesIn = (all: readonly DsseEnvelope[]) => all.flatMap(({ signatures }) => signatures).length;
  const needed = evidenceOf([...stagesIn(envelopes).values()]);
  if (opened === file.envelopes.length) add(surplusEvidence(offered.items.keys(), needed));
  refuseUnlessClean(REFUSED, problems);
  return {
    held: { envelopes, evidence: [...items.values()] },
    added: {
      statements: envelopes.length - held.envelopes.length,
      signatures: signaturesIn(envelopes) - signaturesIn(held.envelopes),
      evidence: items.size - held.evidence.length,
    },
  };
}

function readExchange(bytes: Uint8Array): ExchangeFile {
  const parsed = ExchangeFile.safeParse(strictJsonIn(bytes, RECORD_BYTES_MAX));
  if (parsed.success) return parsed.data;
  const detail = fieldOf(parsed.error) || undefined;
  const problems = problemsOf("file", (report) => report("exchange_malformed", detail));
  throw new RecordRefused(REFUSED, problems);
}

export function envelopesByPlace({ envelopes }: HeldStatements): Map<string, DsseEnvelope> {
  return new Map(
    envelopes.flatMap((envelope) => {
      const statement = statementIn(envelope);
      return statement === undefined ? [] : [[placeOfStatement(statement), envelope]];
    }),
  );
}

/** The text of the record file. @throws RecordRefused (`record_refused`) with every reason why it would not verify */
export function assembleRecord(held: HeldStatements, trust: Trust): string {
  const byPlace = envelopesByPlace(held);
  const completion = byPlace.get("completion");
  const statement = completion && statementIn(completion);
  if (completion === undefined || statement === undefined || !isCompletion(statement)) {
    throw new RecordRefused("there is no record yet", [{ reason: "record_malformed", where: "completion" }]);
  }
  const file: RecordFile = {
    schema: "svc.federation.offboarding_record.v1",
    completion,
    stages: [...inOrder(statement.predicate, byPlace)],
    evidence: among(held.evidence, new Set(statement.predicate.evidence)),
  };
  const text = fileText(file);
  const { problems } = verifyRecord(Buffer.from(text, "utf8"), trust);
  refuseUnlessClean("the record would not verify", problems);
  return text;
}
