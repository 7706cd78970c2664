// Do the stage statements of a record make one removal: all of them, each once, in order, chained?
import { SKIPPED_WORD } from "../format/evidence-item.ts";
import { CLOCK_SKEW_MS } from "../format/fields.ts";
import type { StagePredicate } from "../format/predicates.ts";
import { STAGE_NAMES, statementOrder } from "../format/stages.ts";
import { type Statement, statementDigest } from "../format/statement.ts";
import { type Problem, problemsOf } from "./reasons.ts";
import { placeOf } from "./verify-stage.ts";

type StageStatement = Statement<StagePredicate>;

export interface Removal {
  readonly run: string;
  readonly kind: string;
  readonly remover: string;
  readonly partner: string;
}

export function strayProblems(removal: Removal, { predicate }: Statement<Removal>, where: string): Problem[] {
  const { run, kind, remover, partner } = predicate;
  return problemsOf(where, (report) => {
    if (run !== removal.run) report("other_run", run);
    const isOfBoth = remover === removal.remover && partner === removal.partner;
    if (!isOfBoth) report("other_parties", `${remover}, ${partner}`);
    if (kind !== removal.kind) report("other_kind", kind);
  });
}

/** What is missing, doubled, out of place or not chained. @param listed undefined for a statement that did not verify */
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
  problems.push(...misplaced(expected.map(placeOf), byPlace.keys()));
  for (const party of [removal.remover, removal.partner]) problems.push(...chainProblems(party, byPlace));
  problems.push(...turnProblems(removal, byPlace));
  return problems;
}

/** No stage was closed before the other's stage before it, unless it says why: it was opened after both had signed that. */
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
function misplaced(expected: readonly string[], places: Iterable<string>): Problem[] {
  let last = -1;
  return [...places].flatMap((where): Problem[] => {
    const rank = expected.indexOf(where);
    last = Math.max(last, rank);
    return rank < last ? [{ reason: "stage_out_of_place", where }] : [];
  });
}

/** Whether a statement follows on from the same organisation's stage before it, and was not closed first. */
export function successionProblems({ predicate }: StageStatement, before: StageStatement): Problem[] {
  const stage = STAGE_NAMES[STAGE_NAMES.indexOf(predicate.stage) - 1];
  const isBefore =
    before.predicate.stage === stage && before.predicate.organisation === predicate.organisation;
  // A statement that names none is reported by its own checks.
  const isNamed = predicate.previous === null || predicate.previous === statementDigest(before);
  return problemsOf(placeOf(predicate), (report) => {
    if (!isBefore || !isNamed) report("chain_broken");
    if (predicate.closed_at < before.predicate.closed_at) report("times_out_of_order", "closed_at");
    if (scopeOfRun(predicate) !== scopeOfRun(before.predicate)) report("scope_differs");
  });
}

/** What of a scope stays the same in every stage of an organisation: a partial removal withdraws agents on its way. */
function scopeOfRun({ kind, scope }: StagePredicate): string {
  const { parts, client, agents, pins, policy } = scope;
  return JSON.stringify(kind === "partial" ? [parts, client] : [parts, client, agents, pins, policy]);
}

function chainProblems(organisation: string, byPlace: ReadonlyMap<string, StageStatement>): Problem[] {
  const stages = STAGE_NAMES.map((stage) => byPlace.get(placeOf({ organisation, stage })));
  return stages.flatMap((statement, index) => {
    const before = stages[index - 1];
    return statement === undefined || before === undefined ? [] : successionProblems(statement, before);
  });
}
