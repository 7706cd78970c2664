// Do the stage statements of a record make one removal: all of them, each once, in order, chained?
import { SKIPPED_WORD } from "../format/evidence-item.ts";
import { CLOCK_SKEW_MS } from "../format/fields.ts";
import type { StagePredicate } from "../format/predicates.ts";
import { STAGE_NAMES, statementOrder } from "../format/stages.ts";
import { type Statement, statementDigest } from "../format/statement.ts";
import type { Problem } from "./reasons.ts";
import { placeOf } from "./verify-stage.ts";

type StageStatement = Statement<StagePredicate>;

/** Where all statements of a record must agree. */
export interface Removal {
  readonly run: string;
  readonly kind: string;
  readonly remover: string;
  readonly partner: string;
}

/** What is of another removal than this one. */
export function strayProblems(removal: Removal, { predicate }: Statement<Removal>, where: string): Problem[] {
  const problems: Problem[] = [];
  if (predicate.run !== removal.run) problems.push({ reason: "other_run", where, detail: predicate.run });
  if (predicate.remover !== removal.remover || predicate.partner !== removal.partner) {
    const detail = `${predicate.remover}, ${predicate.partner}`;
    problems.push({ reason: "other_parties", where, detail });
  }
  if (predicate.kind !== removal.kind) problems.push({ reason: "other_kind", where, detail: predicate.kind });
  return problems;
}

/**
 * What is missing, doubled, out of place or not chained.
 * @param listed by place in the record; undefined for a statement that did not verify
 */
export function sequenceProblems(
  removal: Removal,
  listed: readonly (StageStatement | undefined)[],
): Problem[] {
  const problems: Problem[] = [];
  const byPlace = new Map<string, StageStatement>();
  for (const statement of listed) {
    if (statement === undefined) continue;
    const place = placeOf(statement.predicate);
    if (byPlace.has(place)) problems.push({ reason: "stage_repeated", where: place });
    else byPlace.set(place, statement);
  }
  const expected = statementOrder(removal.remover, removal.partner);
  for (const [index, slot] of expected.entries()) {
    // The statement in its place did not verify: that has been reported, and it is not missing.
    const isUnverified = index < listed.length && listed[index] === undefined;
    if (!byPlace.has(placeOf(slot)) && !isUnverified) {
      problems.push({ reason: "stage_missing", where: placeOf(slot) });
    }
  }
  problems.push(...misplaced(expected.map(placeOf), listed));
  for (const party of [removal.remover, removal.partner]) problems.push(...chainProblems(party, byPlace));
  problems.push(...turnProblems(removal, byPlace));
  return problems;
}

/**
 * A stage is opened after both have signed the one before it, unless the organisation states why not. So none was closed
 * before the other's stage before it: evidence of an earlier removal cannot stand for this one.
 */
function turnProblems(
  { remover, partner }: Removal,
  byPlace: ReadonlyMap<string, StageStatement>,
): Problem[] {
  return STAGE_NAMES.flatMap((stage, index) => {
    const before = STAGE_NAMES[index - 1];
    if (before === undefined) return [];
    return [remover, partner].flatMap((organisation): Problem[] => {
      const where = placeOf({ organisation, stage });
      const other = placeOf({ organisation: organisation === remover ? partner : remover, stage: before });
      const [own, theirs] = [byPlace.get(where)?.predicate, byPlace.get(other)?.predicate];
      if (own === undefined || theirs === undefined) return [];
      if (own.attested.some((word) => word.startsWith(SKIPPED_WORD))) return [];
      if (Date.parse(own.closed_at) + CLOCK_SKEW_MS >= Date.parse(theirs.closed_at)) return [];
      return [{ reason: "times_out_of_order", where, detail: `closed before ${other}` }];
    });
  });
}

/** A missing statement moves what follows it up; that alone is not out of place. */
function misplaced(expected: readonly string[], listed: readonly (StageStatement | undefined)[]): Problem[] {
  const problems: Problem[] = [];
  const seen = new Set<string>();
  let last = -1;
  for (const statement of listed) {
    if (statement === undefined) continue;
    const place = placeOf(statement.predicate);
    const rank = expected.indexOf(place);
    // A repeated statement is reported as repeated.
    if (seen.has(place)) continue;
    seen.add(place);
    if (rank < last) problems.push({ reason: "stage_out_of_place", where: place });
    last = Math.max(last, rank);
  }
  return problems;
}

/** Whether a statement follows on from the same organisation's stage before it, and was not closed first. */
export function successionProblems({ predicate }: StageStatement, before: StageStatement): Problem[] {
  const where = placeOf(predicate);
  const problems: Problem[] = [];
  const stage = STAGE_NAMES[STAGE_NAMES.indexOf(predicate.stage) - 1];
  const isBefore =
    before.predicate.stage === stage && before.predicate.organisation === predicate.organisation;
  // A statement that names none is reported by its own checks.
  const isNamed = predicate.previous === null || predicate.previous === statementDigest(before);
  if (!isBefore || !isNamed) problems.push({ reason: "chain_broken", where });
  if (predicate.closed_at < before.predicate.closed_at) {
    problems.push({ reason: "times_out_of_order", where, detail: "closed_at" });
  }
  if (scopeOfRun(predicate) !== scopeOfRun(before.predicate)) {
    problems.push({ reason: "scope_differs", where });
  }
  return problems;
}

/** What of a scope stays the same in every stage of an organisation: a partial removal withdraws agents on its way. */
function scopeOfRun({ kind, scope }: StagePredicate): string {
  const { parts, client, agents, pins, policy } = scope;
  return JSON.stringify(kind === "partial" ? [parts, client] : [parts, client, agents, pins, policy]);
}

/** One organisation's stages: each follows on from the one before, and none was closed before it. */
function chainProblems(party: string, byPlace: ReadonlyMap<string, StageStatement>): Problem[] {
  const problems: Problem[] = [];
  let before: StageStatement | undefined;
  for (const stage of STAGE_NAMES) {
    const where = placeOf({ organisation: party, stage });
    const statement = byPlace.get(where);
    if (statement !== undefined && before !== undefined) {
      problems.push(...successionProblems(statement, before));
    }
    before = statement;
  }
  return problems;
}
