// Does one stage statement hold by itself: its place, its conditions, and the evidence that they rest on?
// Invariant: the same checks run where a stage is built, imported, countersigned and audited.

import { type EvidenceItem, showsPurge } from "../format/evidence-item.ts";
import {
  type ExitCondition,
  type StagePredicate,
  sameSubjects,
  stageSubjects,
} from "../format/predicates.ts";
import {
  CONDITIONS_OF_STAGE,
  DELETION_RECORDED,
  PLANE_OF_STAGE,
  positionOf,
  STAGES_LEFT_ALONE,
  STAGES_OF_REMOVER,
} from "../format/stages.ts";
import type { Statement } from "../format/statement.ts";
import type { Problem, ReasonCode } from "./reasons.ts";

/** Items by digest, each checked against it. */
export type Evidence = ReadonlyMap<string, EvidenceItem>;

type Report = (reason: ReasonCode, detail?: string) => void;

/** Where a stage's problems are. */
export function placeOf({ organisation, stage }: Pick<StagePredicate, "organisation" | "stage">): string {
  return `${organisation}/${stage}`;
}

/** The organisation that a stage's own organisation closes out. */
export function counterpartyOf({
  organisation,
  remover,
  partner,
}: Pick<StagePredicate, "organisation" | "remover" | "partner">): string {
  return organisation === remover ? partner : remover;
}

/** Whether a stage closed anything at its organisation. */
function applies({ exit }: StagePredicate): boolean {
  return exit.some(({ verdict }) => verdict === "met");
}

/**
 * Everything that is wrong with one stage statement.
 * @param unusable digests of items that are there but not what they should be, which are reported elsewhere
 */
export function stageProblems(
  { subject, predicate }: Statement<StagePredicate>,
  evidence: Evidence,
  unusable: ReadonlySet<string> = new Set(),
): Problem[] {
  const problems: Problem[] = [];
  const report: Report = (reason, detail) =>
    problems.push({ reason, where: placeOf(predicate), ...(detail !== undefined && { detail }) });
  if (predicate.remover === predicate.partner) report("one_party");
  if (![predicate.remover, predicate.partner].includes(predicate.organisation)) report("not_a_party");
  checkPlace(predicate, report);
  checkRevision(predicate, report);
  if (!sameSubjects(subject, stageSubjects(predicate))) report("subjects_differ");
  if (predicate.opened_at > predicate.closed_at) report("times_out_of_order", "opened_at, closed_at");
  checkConditions(predicate, report);
  for (const exit of predicate.exit) checkCondition(predicate, exit, evidence, unusable, report);
  checkTiers(predicate, evidence, report);
  return problems;
}

function checkPlace({ stage, position, previous }: StagePredicate, report: Report): void {
  if (position !== positionOf(stage)) report("stage_out_of_place", `position ${position}`);
  if ((previous === null) !== (positionOf(stage) === 1)) report("chain_broken");
}

function checkRevision(predicate: StagePredicate, report: Report): void {
  const { stage, revision, render } = predicate;
  if (PLANE_OF_STAGE[stage] === null) {
    if (revision !== null || render !== null) report("duties_have_no_plane");
  } else if (revision === null || render === null) {
    // Both or neither; and neither only where there is nothing to close.
    if (applies(predicate) || revision !== render) report("revision_missing");
  }
}

function checkConditions(predicate: StagePredicate, report: Report): void {
  const { stage, kind, exit, organisation, remover } = predicate;
  const named = exit.map(({ condition }) => condition);
  for (const condition of new Set(named.filter((name, index) => named.indexOf(name) !== index))) {
    report("condition_repeated", condition);
  }
  for (const condition of CONDITIONS_OF_STAGE[stage]) {
    if (!named.includes(condition)) report("condition_missing", condition);
  }
  if (applies(predicate)) {
    if (STAGES_LEFT_ALONE[kind].includes(stage)) report("stage_out_of_scope");
  } else if (organisation === remover && STAGES_OF_REMOVER[kind].includes(stage)) {
    report("stage_not_closed");
  }
}

function checkCondition(
  predicate: StagePredicate,
  { condition, verdict, evidence: digests }: ExitCondition,
  evidence: Evidence,
  unusable: ReadonlySet<string>,
  report: Report,
): void {
  let isShown = false;
  let wholly = true;
  const listed = new Set(predicate.out_of_reach.map(({ subject }) => subject));
  for (const digest of new Set(digests)) {
    const item = evidence.get(digest);
    if (item === undefined) {
      wholly = false;
      if (!unusable.has(digest)) report("evidence_missing", digest);
      continue;
    }
    checkItem(predicate, item, listed, report);
    const shows = condition === DELETION_RECORDED ? showsPurge : isSeenClosed;
    if (shows(item)) isShown = true;
  }
  if (verdict === "met" && !isShown && wholly) report("condition_unproved", condition);
}

function isSeenClosed({ verdict, vantage }: EvidenceItem): boolean {
  return verdict === "closed" && vantage !== "nobody";
}

/** Observations from outside are the weakest of the three tiers of evidence; they never suffice alone. */
function checkTiers(predicate: StagePredicate, evidence: Evidence, report: Report): void {
  const items = predicate.exit.flatMap((exit) => exit.evidence).map((digest) => evidence.get(digest));
  const closed = items.filter((item) => item !== undefined && isSeenClosed(item));
  if (items.includes(undefined) || closed.length === 0 || !applies(predicate)) return;
  if (!closed.some((item) => item?.vantage === "operator")) report("seen_from_outside_alone");
}

function checkItem(
  predicate: StagePredicate,
  item: EvidenceItem,
  outOfReach: ReadonlySet<string>,
  report: Report,
): void {
  const plane = PLANE_OF_STAGE[predicate.stage];
  if (item.partner !== counterpartyOf(predicate)) report("evidence_about_another", item.digest);
  // Duties are about what each of the planes has left behind.
  if (plane !== null && item.plane !== plane) report("evidence_of_another_plane", item.digest);
  const at = Date.parse(item.at);
  if (at < Date.parse(predicate.opened_at) || at > Date.parse(predicate.closed_at)) {
    report("evidence_out_of_time", item.digest);
  }
  if (item.verdict === "open") report("evidence_says_open", item.digest);
  // Of a plane that this kind of removal leaves alone, nothing has to be said.
  const isLeftAlone = STAGES_LEFT_ALONE[predicate.kind].includes(predicate.stage);
  if (item.verdict === "unknown" && !isLeftAlone && !outOfReach.has(item.subject ?? item.probe)) {
    report("unreached_not_listed", item.digest);
  }
}
