// What an organisation holds of one removal: DSSE envelopes, each signed by one or both organisations, and evidence.
// Invariants: no value is changed in place; a DSSE envelope is never replaced, only signatures are added to it, one an
// organisation.
import { LRUCache } from "lru-cache";
import { z } from "zod";
import { DrawbridgeError } from "../../domain/errors.ts";
import { strictJsonIn } from "../../domain/strict-json.ts";
import { type DsseEnvelope, withSignature } from "../format/dsse-envelope.ts";
import type { EvidenceItem } from "../format/evidence-item.ts";
import { STATEMENT_BYTES_MAX } from "../format/fields.ts";
import { COMPLETION_PREDICATE_TYPE, CompletionStatement, StageStatement } from "../format/predicates.ts";
import { counterpartyOf } from "../format/stages.ts";
import type { TrustedParty } from "../format/trust.ts";
import { type Problem, REASONS } from "../verify/reasons.ts";
import type { Removal } from "../verify/stage-sequence.ts";
import { verifyDsseEnvelope } from "../verify/verify-dsse-envelope.ts";
import { placeOf } from "../verify/verify-stage.ts";

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

/** Verifies an envelope that one organisation passes on; the other one may have signed it before. */
export function openFrom(sender: string, removal: OwnRemoval, envelope: unknown) {
  const rule = { must: [sender], may: [sender, counterpartyOf(sender, removal)] };
  return verifyDsseEnvelope<AnyStatement>(envelope, AnyStatement, removal.parties, () => rule);
}

export function isCompletion(statement: AnyStatement): statement is CompletionStatement {
  return statement.predicateType === COMPLETION_PREDICATE_TYPE;
}

export function placeOfStatement(statement: AnyStatement): string {
  return isCompletion(statement) ? "completion" : placeOf(statement.predicate);
}

/** Who states it: an organisation its own stages, the remover the completion. */
export function makerOf(statement: AnyStatement): string {
  return isCompletion(statement) ? statement.predicate.remover : statement.predicate.organisation;
}

export function stagesIn(envelopes: readonly DsseEnvelope[]): ReadonlyMap<string, StageStatement> {
  const found = new Map<string, StageStatement>();
  for (const envelope of envelopes) {
    const statement = statementIn(envelope);
    if (statement !== undefined && !isCompletion(statement))
      found.set(placeOf(statement.predicate), statement);
  }
  return found;
}

/** The DSSE envelope with what another copy of it is signed by, as long as that organisation has not signed yet. */
export function mergeSignatures(
  held: DsseEnvelope,
  other: DsseEnvelope,
  parties: readonly TrustedParty[],
): DsseEnvelope {
  const ownerOf = (keyid: string) =>
    parties.find(({ keys }) => keys.some(({ keyId }) => keyId === keyid))?.organisation;
  return other.signatures.reduce(
    (merged, signature) =>
      merged.signatures.some(({ keyid }) => ownerOf(keyid) === ownerOf(signature.keyid))
        ? merged
        : withSignature(merged, signature),
    held,
  );
}

export function byDigest(items: readonly EvidenceItem[]): ReadonlyMap<string, EvidenceItem> {
  return new Map(items.map((item) => [item.digest, item]));
}

export class RecordRefused extends DrawbridgeError {
  readonly problems: readonly Problem[];

  constructor(what: string, problems: readonly Problem[]) {
    const lines = problems.map(
      ({ reason, where, detail }) =>
        `  ${reason} at ${where}${detail === undefined ? "" : ` (${detail})`}: ${REASONS[reason].sentence}`,
    );
    const [first] = problems;
    const hint = first === undefined ? {} : { hint: REASONS[first.reason].hint };
    super("record_refused", [what, ...lines].join("\n"), hint);
    this.name = "RecordRefused";
    this.problems = problems;
  }
}

export function refuseUnlessClean(what: string, problems: readonly Problem[]): void {
  if (problems.length > 0) throw new RecordRefused(what, problems);
}
