// Evaluates conditions from evidence. Pure, and the only judgement in the product: the operator's status, whoever signs or
// countersigns a stage, and the offline verifier all call it with the same table. Invariants: unknown, absent and unmanaged
// are never met; `not_applicable` needs an item of its own; every item that is about a condition must agree with it; an
// item counts by its probe, vantage, subject, layer, status, reason and time, never by its verdict alone.
import type { EvidenceItem } from "../format/evidence-item.ts";
import { counterpartyOf, PLANE_OF_STAGE, STAGES_LEFT_ALONE } from "../format/removal-stages.ts";
import type { StagePredicate } from "../format/statements.ts";
import type { Circumstances, Condition, CoveredSubject, Lack, Observation, Verdict } from "./condition.ts";
import { ANY, CHECKS, SUBJECTS } from "./condition.ts";
import { conditionsOf, DUTIES_CONDITIONS } from "./condition-table.ts";

/** How old an item may be when its stage is closed: reading ten thousand rooms takes most of an hour. */
export const ITEM_AGE_MAX_MS = 3_600_000;

export function evaluate(conditions: readonly Condition[], items: Items, circumstances: Circumstances) {
  const counted = items.filter((item) => counts(item, circumstances));
  return conditions.flatMap((condition) => evaluateOne(condition, counted, circumstances) ?? []);
}

/** Whether a verdict lets a stage be signed. An unmanaged part is named in the record, and never closed. */
export function isSettled({ verdict }: Pick<Evaluated, "verdict">): boolean {
  return verdict === "met" || verdict === "not_applicable" || verdict === "unmanaged";
}

export function wasNotTried({ reason }: Pick<EvidenceItem, "reason">): boolean {
  return reason !== null && /^not_(?:configured|applicable):/.test(reason);
}

function counts(item: EvidenceItem, { partner, plane, from, until }: Circumstances): boolean {
  const isAbout = item.partner === partner && (plane === null || item.plane === plane);
  if (!isAbout || item.vantage === "nobody" || wasNotTried(item)) return false;
  if (from !== null && item.at < from) return false;
  if (until === null) return true;
  // Duties are carried out over days.
  const isFresh = plane === null || Date.parse(until) - Date.parse(item.at) <= ITEM_AGE_MAX_MS;
  return item.at <= until && isFresh;
}

/** `excused`: digests that show nothing, of what is out of reach and to be waived; `lacks`: why it is not met, first what decides. */
export type Evaluated = Readonly<NonNullable<ReturnType<typeof evaluateOne>>>;

function evaluateOne(condition: Condition, items: readonly EvidenceItem[], circumstances: Circumstances) {
  const { name, parts, requirements, absence } = condition;
  const waived = new Set<string>();
  const found = (verdict: Verdict, evidence: Iterable<EvidenceItem>, lacks: readonly Lack[] = []) => {
    const digests = new Set([...evidence].map(({ digest }) => digest));
    const excused = [...digests].filter((digest) => waived.has(digest));
    return { condition: name, verdict, evidence: [...digests], excused, lacks };
  };
  if (!parts.some((part) => circumstances.scope.parts.includes(part))) {
    return found(
      "unmanaged",
      items.filter((item) => item.probe === PART_MANAGED && parts.some((part) => part === item.subject)),
    );
  }

  const matched = requirements.map((requirement) => match(requirement, items, circumstances));
  const shown = new Set(matched.flatMap(({ shows }) => shows));
  const evidence = new Set([...shown, ...matched.flatMap(({ excused }) => excused)]);
  for (const item of evidence) if (!shown.has(item)) waived.add(item.digest);
  const { opposite, unclear, permitted } = objections(matched, items, evidence, circumstances);
  for (const item of permitted) evidence.add(item);
  if (opposite.length > 0) return found("not_met", evidence, opposite);
  const isObserved = shown.size > 0 || unclear.length > 0;
  if (condition.optional === true && !isObserved) return undefined;
  const missing = matched.flatMap(({ lacks }) => lacks);
  const isEmpty = matched.every(({ subjects, requirement }) => subjects.size === 0 || requirement.optional);
  if (absence !== undefined && (isEmpty || (absence.instead === true && missing.length > 0))) {
    const proofs = items.filter((item) => shows(item, absence.observation, circumstances));
    if (proofs.length > 0 && unclear.length === 0) return found("not_applicable", [...proofs, ...evidence]);
    if (isEmpty) return found("unknown", evidence, [lackOf(absence.observation, null), ...unclear]);
  }
  const lacks = [...unclear, ...missing];
  return found(lacks.length === 0 ? "met" : "unknown", evidence, lacks);
}

type Requirement = Condition["requirements"][number];
type Items = readonly EvidenceItem[];

/** Probe of the item by which an organisation says that it does not manage a part. */
export const PART_MANAGED = "part_managed";

function match(requirement: Requirement, items: Items, circumstances: Circumstances) {
  const { anyOf, optional, waivable } = requirement;
  const { outOfReach } = circumstances;
  const bySubject = new Map<string | null, EvidenceItem[]>();
  const probes = new Set(anyOf.flatMap((one) => [one.probe, one.with?.probe ?? one.probe]));
  for (const item of items.filter(({ probe }) => probes.has(probe))) {
    const about = bySubject.get(item.subject) ?? [];
    about.push(item);
    bySubject.set(item.subject, about);
  }
  const subjects = new Set<CoveredSubject>(SUBJECTS[requirement.subjects](circumstances, items));
  const left = leftOpen(items, circumstances);
  // Subjects shown by an observation that holds with another one: other answers about them do not object.
  const lawful: (string | null)[] = [];
  const shownBy = (about: readonly EvidenceItem[]) =>
    anyOf.flatMap((observation) => {
      const showing = about.filter((item) => shows(item, observation, circumstances));
      if (observation.with === undefined || showing.length === 0) return showing;
      const other = observation.with;
      const besides = about.filter((item) => shows(item, other, circumstances));
      if (besides.length === 0) return [];
      for (const { subject } of showing) lawful.push(subject);
      return [...showing, ...besides];
    });
  /** The items by which a subject out of reach need not be shown: attempts without an answer, or of what is `left` open. */
  const excusing = (subject: CoveredSubject, about: readonly EvidenceItem[]) => {
    const own = about.filter((item) =>
      anyOf.some(({ probe, vantage }) => probe === item.probe && vantage === item.vantage),
    );
    if (requirement.subjects === "rooms" && typeof subject === "string" && left?.has(subject) === true) {
      return own.filter((item) => !anyOf.some((observation) => shows(item, observation, circumstances)));
    }
    if (waivable !== true) return [];
    const unknown = own.filter(({ verdict }) => verdict === "unknown");
    if (subject === null) return left === undefined ? [] : unknown;
    if (subject !== ANY) return outOfReach.has(subject) ? unknown : [];
    return unknown.every((item) => outOfReach.has(item.subject ?? item.probe)) ? unknown : [];
  };
  const shown: EvidenceItem[] = [];
  const excused: EvidenceItem[] = [];
  const lacks: Lack[] = [];
  for (const subject of subjects) {
    const about = subject === ANY ? [...bySubject.values()].flat() : (bySubject.get(subject) ?? []);
    const showing = shownBy(about);
    // There may be more of them than a call has arguments.
    for (const item of showing) shown.push(item);
    const excuses = excusing(subject, about);
    for (const item of excuses) excused.push(item);
    if (waivable === true && excuses.length > 0) continue;
    if (showing.length === 0 && optional !== true) lacks.push(lackIn(anyOf, subject, about));
  }
  return { requirement, subjects, shows: shown, excused, lawful, lacks };
}

/** What the reconciler names as not reached; undefined unless it speaks of what is declared, and the stage lists it all. */
function leftOpen(items: readonly EvidenceItem[], circumstances: Circumstances) {
  const { revision, render, outOfReach } = circumstances;
  const said = items.filter(({ probe, vantage }) => probe === "reconciled" && vantage === "operator");
  const named = new Set(said.flatMap(({ references }) => references));
  for (const one of [revision, render]) if (one !== null) named.delete(one);
  const isSaid = said.every(
    (item) =>
      item.verdict === "unknown" &&
      item.reason === "incomplete" &&
      CHECKS.names_revision(item, circumstances),
  );
  return isSaid && named.size > 0 && [...named].every((one) => outOfReach.has(one)) ? named : undefined;
}

/** Items about a condition that say the opposite, lawfully (`permitted`) or not, and those whose answer does not show it. */
function objections(
  matched: readonly ReturnType<typeof match>[],
  items: readonly EvidenceItem[],
  evidence: ReadonlySet<EvidenceItem>,
  { outOfReach }: Circumstances,
) {
  const lawful = new Set(matched.flatMap((one) => one.lawful));
  const permitted: EvidenceItem[] = [];
  // By item, so that thousands of them are no more than that many steps.
  const opposite = new Map<EvidenceItem, Lack>();
  const unclear = new Map<EvidenceItem, Lack>();
  for (const { requirement, subjects } of matched) {
    const { anyOf, ignoresUnknown, byAttempt } = requirement;
    for (const observation of anyOf) {
      const wanted = new Set(observation.answers.map(({ verdict }) => verdict));
      for (const item of items) {
        if (item.probe !== observation.probe || evidence.has(item)) continue;
        const isUnknown = item.verdict === "unknown";
        const isOpposite = !isUnknown && !wanted.has(item.verdict);
        if (lawful.has(item.subject)) {
          if (isOpposite) permitted.push(item);
          continue;
        }
        // What the counterparty could do objects, whatever it did it to.
        const isDone = byAttempt === true && isOpposite && item.verdict === "open";
        if (!isDone && !subjects.has(item.subject) && !subjects.has(ANY)) continue;
        if (isUnknown && (ignoresUnknown || outOfReach.has(item.subject ?? item.probe))) continue;
        const said = isOpposite ? opposite : unclear;
        if (!said.has(item)) said.set(item, { ...lackOf(observation, item.subject), item });
      }
    }
  }
  return { opposite: [...opposite.values()], unclear: [...unclear.values()], permitted };
}

/** Whether an item is this observation, with an answer that counts. The subject is the caller's to compare. */
export function shows(item: EvidenceItem, observation: Observation, circumstances: Circumstances): boolean {
  const { probe, vantage, answers, checks = [] } = observation;
  return (
    item.probe === probe &&
    item.vantage === vantage &&
    answers.some(
      ({ verdict, layers, statuses, reasons }) =>
        item.verdict === verdict &&
        layers.includes(item.layer) &&
        statuses.includes(item.status) &&
        (reasons === undefined || reasons.includes(item.reason)),
    ) &&
    checks.every((check) => CHECKS[check](item, circumstances))
  );
}

const lackOf = ({ probe, vantage }: Observation, subject: string | null) => ({ probe, vantage, subject });

function lackIn(anyOf: readonly Observation[], subject: CoveredSubject, about: readonly EvidenceItem[]) {
  const { probe = "", vantage = "operator" } = anyOf[0] ?? {};
  const item = about.find((one) => anyOf.some((wanted) => wanted.probe === one.probe));
  return { probe, vantage, subject: typeof subject === "string" ? subject : null, item };
}

export type StageWork = Omit<
  StagePredicate,
  "schema" | "run" | "position" | "evidence" | "attested" | "previous" | "out_of_reach"
> & { readonly out_of_reach: readonly { readonly subject: string }[] };

/** Probe of the item that says that this kind of removal leaves a plane as it is. */
export const LEFT_ALONE = "left_alone";

export function conditionsOfStage(stage: StageWork["stage"]): readonly Condition[] {
  const plane = PLANE_OF_STAGE[stage];
  return plane === null ? DUTIES_CONDITIONS : conditionsOf(plane, "closed");
}

export function evaluateStage(work: StageWork, items: readonly EvidenceItem[]): readonly Evaluated[] {
  const { kind, stage, scope, revision, render } = work;
  if (STAGES_LEFT_ALONE[kind].includes(stage)) {
    const evidence = items.filter(({ probe }) => probe === LEFT_ALONE).map(({ digest }) => digest);
    const verdict = evidence.length === 0 ? "unknown" : "not_applicable";
    return [{ condition: LEFT_ALONE, verdict, evidence, excused: [], lacks: [] }];
  }
  return evaluate(conditionsOfStage(stage), items, {
    organisation: work.organisation,
    partner: counterpartyOf(work.organisation, work),
    plane: PLANE_OF_STAGE[stage],
    ...{ scope, revision, render, from: work.opened_at, until: work.closed_at },
    outOfReach: new Set(work.out_of_reach.map(({ subject }) => subject)),
  });
}

/** Whether an item says that the counterparty was let in, by something that the stage lists as out of reach. */
export function isLeftOpen({ verdict, subject }: EvidenceItem, listed: ReadonlySet<string>): boolean {
  return verdict === "open" && subject !== null && listed.has(subject);
}
