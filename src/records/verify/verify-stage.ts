// Does one stage statement hold by itself: its place, and what its evidence shows? Its conditions are evaluated from the
// evidence, by the table of conditions; nothing that a signer says of them is read.
// Invariant: the same checks run where a stage is built, imported, countersigned and audited.
import type { Evaluated } from "../conditions/condition.ts";
import { evaluateStage, evidenceIn, isLeftOpen, isSettled } from "../conditions/evaluate.ts";
import { EvidenceItem, isIntact } from "../format/evidence-item.ts";
import { type StagePredicate, sameSubjects, stageSubjects } from "../format/predicates.ts";
import {
  counterpartyOf,
  PLANE_OF_STAGE,
  positionOf,
  STAGES_LEFT_ALONE,
  STAGES_OF_REMOVER,
  statementOrder,
} from "../format/stages.ts";
import type { Statement } from "../format/statement.ts";
import { type Problem, printable, problemsOf, type Report } from "./reasons.ts";
import { fieldOf, PARSE_ONCE } from "./verify-dsse-envelope.ts";

export type Evidence = ReadonlyMap<string, EvidenceItem>;

export function placeOf({ organisation, stage }: Pick<StagePredicate, "organisation" | "stage">): string {
  return `${organisation}/${stage}`;
}

export function inOrder<Stated>(
  { remover, partner }: Pick<StagePredicate, "remover" | "partner">,
  byPlace: ReadonlyMap<string, Stated>,
): readonly Stated[] {
  return statementOrder(remover, partner).flatMap((slot) => byPlace.get(placeOf(slot)) ?? []);
}

export interface JudgedStage {
  readonly predicate: StagePredicate;
  readonly problems: readonly Problem[];
  readonly conditions: readonly Evaluated[];
  readonly isWhole: boolean;
}

/** What is wrong with one stage statement, and what its evidence shows. @param unusable items that are reported elsewhere */
export function judgeStage(
  { subject, predicate }: Statement<StagePredicate>,
  evidence: Evidence,
  unusable: ReadonlySet<string> = new Set(),
): JudgedStage {
  const items = predicate.evidence.flatMap((digest) => evidence.get(digest) ?? []);
  const absent = predicate.evidence.filter((digest) => !evidence.has(digest));
  const conditions = evaluateStage(predicate, items);
  const isClosed = conditions.some(({ verdict }) => verdict === "met");
  const problems = problemsOf(placeOf(predicate), (report) => {
    if (predicate.remover === predicate.partner) report("one_party");
    if (![predicate.remover, predicate.partner].includes(predicate.organisation)) report("not_a_party");
    checkPlace(predicate, report);
    checkScope(predicate, report);
    if (!sameSubjects(subject, stageSubjects(predicate))) report("subjects_differ");
    if (!isAscending(predicate.evidence)) report("bound_out_of_order", "evidence");
    if (predicate.opened_at > predicate.closed_at) report("times_out_of_order", "opened_at, closed_at");
    for (const digest of absent) if (!unusable.has(digest)) report("evidence_missing", digest);
    checkRevision(predicate, isClosed, report);
    checkItems(predicate, items, conditions, report);
    // What an absent item would have shown is not known.
    if (absent.length === 0) checkConditions(predicate, conditions, isClosed, report);
  });
  return { predicate, problems, conditions, isWhole: absent.length === 0 };
}

export function stageProblems(...of: Parameters<typeof judgeStage>): Problem[] {
  return [...judgeStage(...of).problems];
}

function checkPlace({ stage, position, previous }: StagePredicate, report: Report): void {
  if (position !== positionOf(stage)) report("stage_out_of_place", `position ${position}`);
  if ((previous === null) !== (positionOf(stage) === 1)) report("chain_broken");
}

function checkScope({ stage, kind, scope }: StagePredicate, report: Report): void {
  const hasRooms = stage === "room" && !STAGES_LEFT_ALONE[kind].includes(stage);
  if ((scope.rooms !== null) !== hasRooms) report("scope_malformed", "rooms");
  // Nobody runs a removal without a homeserver.
  if (!scope.parts.includes("homeserver")) report("scope_malformed", "parts");
}

function checkRevision({ stage, revision, render }: StagePredicate, isClosed: boolean, report: Report): void {
  if (PLANE_OF_STAGE[stage] === null) {
    if (revision !== null || render !== null) report("duties_have_no_plane");
  } else if (revision === null || render === null) {
    // Both or neither; and neither only where there is nothing to close.
    if (isClosed || revision !== render) report("revision_missing");
  }
}

function checkConditions(
  predicate: StagePredicate,
  conditions: readonly Evaluated[],
  isClosed: boolean,
  report: Report,
): void {
  const { stage, kind, organisation, remover } = predicate;
  for (const { condition, verdict, lacks } of conditions.filter((one) => !isSettled(one))) {
    const [lack] = lacks;
    const what =
      lack === undefined ? "" : `: ${lack.probe} by ${lack.vantage} on ${lack.subject ?? "itself"}`;
    report(verdict === "not_met" ? "condition_refuted" : "condition_unproved", `${condition}${what}`);
  }
  const isOwed = organisation === remover && STAGES_OF_REMOVER[kind].includes(stage);
  if (isOwed && !isClosed && conditions.every(isSettled)) report("stage_not_closed");
}

/** Every item shows something, or says of something out of reach that it is unknown or open. */
function checkItems(
  predicate: StagePredicate,
  items: readonly EvidenceItem[],
  conditions: readonly Evaluated[],
  report: Report,
): void {
  const plane = PLANE_OF_STAGE[predicate.stage];
  const used = new Set(evidenceIn(conditions));
  const listed = new Set(predicate.out_of_reach.map(({ subject }) => subject));
  const opened = Date.parse(predicate.opened_at);
  const closed = Date.parse(predicate.closed_at);
  for (const item of items) {
    const { digest } = item;
    const at = Date.parse(item.at);
    if (item.partner !== counterpartyOf(predicate.organisation, predicate))
      report("evidence_about_another", digest);
    // Duties are about what each of the planes has left behind.
    else if (plane !== null && item.plane !== plane) report("evidence_of_another_plane", digest);
    else if (at < opened || at > closed) report("evidence_out_of_time", digest);
    else if (!used.has(digest) && !isLeftOpen(item, listed))
      report("evidence_shows_nothing", `${item.probe} ${digest}`);
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
  if (!isAscending(digests)) problems.push({ reason: "evidence_out_of_order", where: "evidence" });
  return { items, unusable, problems };
}

/** Whether each value is greater than the one before, so that none stands twice. */
export function isAscending<T extends string | number>(values: readonly T[]): boolean {
  return values.every((value, index) => {
    const before = values[index - 1];
    return before === undefined || before < value;
  });
}
