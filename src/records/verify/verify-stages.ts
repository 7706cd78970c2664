// Does one stage statement hold by itself: its place, and what its evidence shows? And do those of a record make one
// removal: all of them, each once, in order, chained? Conditions are evaluated from the evidence, by the table of
// conditions; nothing that a signer says of them is read.
// Invariant: the same checks run where a stage is built, imported, countersigned and audited.
import { isDeepStrictEqual } from "node:util";
import { type Evaluated, evaluateStage, isLeftOpen, isSettled } from "../conditions/evaluate.ts";
import { EvidenceItem, isIntact, SKIPPED_WORD } from "../format/evidence-item.ts";
import { CLOCK_SKEW_MS } from "../format/fields.ts";
import {
  counterpartyOf,
  PLANE_OF_STAGE,
  positionOf,
  STAGE_NAMES,
  STAGES_LEFT_ALONE,
  STAGES_OF_REMOVER,
  statementOrder,
} from "../format/removal-stages.ts";
import type { StagePredicate, StageStatement, Statement } from "../format/statements.ts";
import { statementDigest, subjectsOf } from "../format/statements.ts";
import { type Problem, printable, problemsOf, type Report } from "./reasons.ts";
import { fieldOf, PARSE_ONCE } from "./verify-signatures.ts";

export type Evidence = ReadonlyMap<string, EvidenceItem>;
type Stages = ReadonlyMap<string, StageStatement>;
type Items = readonly EvidenceItem[];
type Conditions = readonly Evaluated[];

export function placeOf({ organisation, stage }: Pick<StagePredicate, "organisation" | "stage">): string {
  return `${organisation}/${stage}`;
}

export function inOrder<T>({ remover, partner }: Removal, byPlace: ReadonlyMap<string, T>): readonly T[] {
  return statementOrder(remover, partner).flatMap((slot) => byPlace.get(placeOf(slot)) ?? []);
}

export type JudgedStage = Readonly<ReturnType<typeof judgeStage>>;

/** What is wrong with one stage statement, and what its evidence shows. @param unusable items that are reported elsewhere */
export function judgeStage(
  { subject, predicate }: StageStatement,
  held: Evidence,
  unusable = new Set<string>(),
) {
  const items = predicate.evidence.flatMap((digest) => held.get(digest) ?? []);
  const absent = predicate.evidence.filter((digest) => !held.has(digest));
  const conditions = evaluateStage(predicate, items);
  const isClosed = conditions.some(({ verdict }) => verdict === "met");
  const problems = problemsOf(placeOf(predicate), (report) => {
    if (predicate.remover === predicate.partner) report("one_party");
    if (![predicate.remover, predicate.partner].includes(predicate.organisation)) report("not_a_party");
    const position = positionOf(predicate.stage);
    if (predicate.position !== position) report("stage_out_of_place", `position ${predicate.position}`);
    if ((predicate.previous === null) !== (position === 1)) report("chain_broken");
    const { stage, kind, scope } = predicate;
    const hasRooms = stage === "room" && !STAGES_LEFT_ALONE[kind].includes(stage);
    if ((scope.rooms !== null) !== hasRooms) report("scope_malformed", "rooms");
    // Nobody runs a removal without a homeserver.
    const parts = new Set(scope.parts);
    if (!parts.has("homeserver") || parts.size < scope.parts.length) report("scope_malformed", "parts");
    if (!isDeepStrictEqual(subject, subjectsOf(predicate))) report("subjects_differ");
    if (!ascends(predicate.evidence)) report("bound_out_of_order", "evidence");
    if (predicate.opened_at > predicate.closed_at) report("times_out_of_order", "opened_at, closed_at");
    for (const digest of absent) if (!unusable.has(digest)) report("evidence_missing", digest);
    for (const { subject, waived_by, waiver } of predicate.out_of_reach) {
      if (waived_by === null || waiver === null) report("out_of_reach_not_waived", subject);
    }
    checkRevision(predicate, isClosed, report);
    checkItems(predicate, items, conditions, report);
    // What an absent item would have shown is not known.
    if (absent.length === 0) checkConditions(predicate, conditions, isClosed, report);
  });
  return { predicate, problems, conditions, isWhole: absent.length === 0 };
}

function checkRevision({ stage, revision, render }: StagePredicate, isClosed: boolean, report: Report): void {
  if (PLANE_OF_STAGE[stage] === null) {
    if (revision !== null || render !== null) report("duties_have_no_plane");
  } else if (revision === null || render === null) {
    // A revision and a render, or neither; and neither only where there is nothing to close.
    if (isClosed || revision !== render) report("revision_missing");
  }
}

function checkConditions(own: StagePredicate, conditions: Conditions, isClosed: boolean, report: Report) {
  const { stage, kind, organisation, remover } = own;
  for (const { condition, verdict, lacks } of conditions.filter((one) => !isSettled(one))) {
    const [lack] = lacks;
    const what = lack ? `: ${lack.probe} by ${lack.vantage} on ${lack.subject ?? "itself"}` : "";
    report(verdict === "not_met" ? "condition_refuted" : "condition_unproved", `${condition}${what}`);
  }
  const isOwed = organisation === remover && STAGES_OF_REMOVER[kind].includes(stage);
  if (isOwed && !isClosed && conditions.every(isSettled)) report("stage_not_closed");
}

/** Every item shows something, or says of something out of reach that it is unknown or open. */
function checkItems(predicate: StagePredicate, items: Items, conditions: Conditions, report: Report): void {
  const plane = PLANE_OF_STAGE[predicate.stage];
  const other = counterpartyOf(predicate.organisation, predicate);
  const shown = new Set(conditions.flatMap(({ evidence }) => evidence));
  const listed = new Set(predicate.out_of_reach.map(({ subject }) => subject));
  const opened = Date.parse(predicate.opened_at);
  const closed = Date.parse(predicate.closed_at);
  for (const item of items) {
    const { digest } = item;
    const at = Date.parse(item.at);
    if (item.partner !== other) report("evidence_about_another", digest);
    // Duties are about what each of the planes has left behind.
    else if (plane !== null && item.plane !== plane) report("evidence_of_another_plane", digest);
    else if (at < opened || at > closed) report("evidence_out_of_time", digest);
    else if (!shown.has(digest) && !isLeftOpen(item, listed)) {
      report("evidence_shows_nothing", `${item.probe} ${digest}`);
    }
  }
}

/** Reads a list of which nothing is presumed: whole items by digest, and the digests of those that are not whole. */
export function readEvidence(values: readonly unknown[]) {
  const items = new Map<string, EvidenceItem>();
  const unusable = new Set<string>();
  const problems: Problem[] = [];
  const digests: string[] = [];
  for (const [index, value] of values.entries()) {
    const claimed = (value as { readonly digest?: unknown } | null)?.digest;
    const digest = typeof claimed === "string" ? claimed : "";
    digests.push(digest);
    const parsed = EvidenceItem.safeParse(value, PARSE_ONCE);
    if (parsed.success && isIntact(parsed.data)) {
      items.set(digest, parsed.data);
      continue;
    }
    unusable.add(digest);
    problems.push({
      reason: parsed.success ? "evidence_altered" : "evidence_malformed",
      where: `evidence[${index}]`,
      detail: parsed.success ? printable(digest) : fieldOf(parsed.error),
    });
  }
  if (!ascends(digests)) problems.push({ reason: "evidence_out_of_order", where: "evidence" });
  return { items, unusable, problems };
}

/** Whether each value is greater than the one before, so that none stands twice. */
export function ascends<T extends string | number>(values: readonly T[]): boolean {
  return values.slice(1).every((value, index) => (values[index] ?? value) < value);
}

export type Removal = Pick<StagePredicate, "run" | "kind" | "remover" | "partner">;

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
export function sequenceProblems(removal: Removal, listed: readonly (StageStatement | undefined)[]) {
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
  const stated = inOrder(removal, byPlace);
  const otherOf = ({ predicate }: StageStatement) => counterpartyOf(predicate.organisation, removal);
  problems.push(...stated.flatMap((stage) => turnProblems(stage, otherOf(stage), byPlace, false)));
  return problems;
}

/** A stage that was closed before the other's stage before it (also one that is absent, where it `isOwed`) and does not say why. */
export function turnProblems({ predicate }: StageStatement, other: string, byPlace: Stages, isOwed: boolean) {
  const { stage, organisation, attested, closed_at } = predicate;
  const before = STAGE_NAMES[STAGE_NAMES.indexOf(stage) - 1];
  if (before === undefined || attested.some((word) => word.startsWith(SKIPPED_WORD))) return [];
  const theirs = placeOf({ organisation: other, stage: before });
  const closed = byPlace.get(theirs)?.predicate.closed_at;
  const until = Date.parse(closed_at) + CLOCK_SKEW_MS;
  if (closed === undefined ? !isOwed : Date.parse(closed) <= until) return [];
  const where = placeOf({ organisation, stage });
  return [{ reason: "times_out_of_order", where, detail: `closed before ${theirs}` } as const];
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
  const { predicate: last } = before;
  const isBefore = last.stage === stage && last.organisation === predicate.organisation;
  // A statement that names none is reported by its own checks.
  const isNamed = predicate.previous === null || predicate.previous === statementDigest(before);
  return problemsOf(placeOf(predicate), (report) => {
    if (!isBefore || !isNamed) report("chain_broken");
    if (predicate.closed_at < last.closed_at) report("times_out_of_order", "closed_at");
    if (scopeOfRun(predicate) !== scopeOfRun(last)) report("scope_differs");
  });
}

/** What of a scope stays the same in every stage of an organisation: a partial removal withdraws agents on its way. */
function scopeOfRun({ kind, scope }: StagePredicate): string {
  const { parts, client, agents, pins, policy } = scope;
  return JSON.stringify(kind === "partial" ? [parts, client] : [parts, client, agents, pins, policy]);
}

function chainProblems(organisation: string, byPlace: Stages): Problem[] {
  const stages = STAGE_NAMES.map((stage) => byPlace.get(placeOf({ organisation, stage })));
  return stages.flatMap((statement, index) => {
    const before = stages[index - 1];
    return statement === undefined || before === undefined ? [] : successionProblems(statement, before);
  });
}
