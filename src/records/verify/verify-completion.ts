// Does the completion bind exactly what was signed, and is it complete in all six parts?
import { isDeepStrictEqual } from "node:util";
import { isKeeping, isOfPurge, keeping, ownerIn, showsPurge, TRIGGER_WORD } from "../format/evidence-item.ts";
import { PLANE_OF_STAGE, statementOrder } from "../format/removal-stages.ts";
import type { CompletionPredicate, CompletionStatement, OutOfReachEntry } from "../format/statements.ts";
import { type StageStatement, statementDigest, subjectsOf } from "../format/statements.ts";
import { type Problem, problemsOf, type Report } from "./reasons.ts";
import type { Signature } from "./verify-signatures.ts";
import type { Evidence } from "./verify-stages.ts";
import { ascends, inOrder, judgeStage, placeOf, sequenceProblems, strayProblems } from "./verify-stages.ts";

export function completionProblems({ subject, predicate }: CompletionStatement): Problem[] {
  return problemsOf("completion", (report) => {
    if (predicate.remover === predicate.partner) report("one_party");
    if (predicate.kind === "emergency" && predicate.trigger !== "suspected_compromise") {
      report("kind_contradicts_trigger", predicate.trigger);
    }
    if (!isDeepStrictEqual(subject, subjectsOf(predicate))) report("subjects_differ");
    checkOrganisations(predicate, report);
    const { remover, partner, stages, evidence, duties } = predicate;
    const rank = new Map(statementOrder(remover, partner).map((slot, index) => [placeOf(slot), index]));
    const ranks = stages.map((stage) => rank.get(placeOf(stage)) ?? 0);
    if (!ascends(ranks)) report("bound_out_of_order", "stages");
    if (!ascends(evidence)) report("bound_out_of_order", "evidence");
    const { purge, retention } = duties;
    if (purge.state === "done" && purge.evidence.length === 0) report("purge_not_shown");
    if ((purge.state === "waived") !== (purge.waiver !== null)) report("purge_not_waived");
    if ((retention.state === "kept") !== (retention.until !== null)) report("retention_undecided");
    const { possible, owner, conditions } = predicate.readmission;
    if (possible && (owner === null || conditions.length === 0)) report("readmission_undecided");
  });
}

/** Signatures of the completion by other keys than those that the organisations attest with. */
export function keyProblems({ attestations }: CompletionPredicate, signers: readonly Signature[]): Problem[] {
  return problemsOf("completion", (report) => {
    for (const { organisation, keyId } of signers) {
      const own = attestations.find((attestation) => attestation.organisation === organisation);
      if (own !== undefined && own.key_id !== keyId) report("key_not_attested", organisation);
    }
  });
}

/** Compares the completion with the stages that verified; unless all did (`isWhole`), nothing is reported as absent. */
export function bindingProblems(stated: Omit<Bound, "report">): Problem[] {
  return problemsOf("completion", (report) => {
    const bound = { ...stated, report };
    checkBoundStages(bound);
    checkBoundEvidence(bound);
    checkRevisions(bound);
    checkOutOfReach(bound);
    checkTimes(bound);
    checkTrigger(bound);
    checkOwner(bound);
    checkKept(bound);
    checkPurge(bound);
  });
}

interface Bound extends CompletionPredicate {
  readonly bound: readonly StageStatement[];
  readonly items: Evidence;
  readonly isWhole: boolean;
  readonly report: Report;
}

function checkOrganisations(predicate: CompletionPredicate, report: Report): void {
  const { remover, partner, attestations, static_tests, revisions, stages } = predicate;
  const parties = [remover, partner];
  const named = [...attestations, ...static_tests, ...revisions, ...stages];
  for (const name of new Set(named.map(({ organisation }) => organisation))) {
    if (!parties.includes(name)) report("not_a_party", name);
  }
  const tested = static_tests.map(({ organisation }) => organisation);
  for (const party of new Set(parties)) {
    const owners = attestations.filter(({ organisation }) => organisation === party);
    if (owners.length === 0) report("attestation_missing", party);
    if (owners.length > 1) report("attestation_repeated", party);
    if (!tested.includes(party)) report("static_tests_missing", party);
  }
}

function checkBoundStages({ stages, bound, isWhole, report }: Bound): void {
  const held = new Map(bound.map((stage) => [statementDigest(stage), stage]));
  const named = new Set(stages.map((stage) => `${placeOf(stage)} ${stage.statement}`));
  for (const [digest, stage] of held) {
    const place = placeOf(stage.predicate);
    if (!named.has(`${place} ${digest}`)) report("stage_not_bound", digest, place);
  }
  if (!isWhole) return;
  for (const stage of stages) {
    if (!held.has(stage.statement)) report("stage_bound_but_absent", stage.statement, placeOf(stage));
  }
}

function checkBoundEvidence({ evidence, bound, isWhole, report }: Bound): void {
  const named = evidenceOf(bound);
  const listed = new Set(evidence);
  for (const digest of named) if (!listed.has(digest)) report("evidence_not_bound", digest);
  if (!isWhole) return;
  for (const digest of listed) if (!named.has(digest)) report("evidence_bound_but_absent", digest);
}

export function evidenceOf(stages: readonly StageStatement[]): ReadonlySet<string> {
  return new Set(stages.flatMap(({ predicate }) => predicate.evidence));
}

export function revisionsOf(stages: readonly StageStatement[]): CompletionPredicate["revisions"] {
  return stages.flatMap(({ predicate: { organisation, stage, revision, render } }) => {
    const plane = PLANE_OF_STAGE[stage];
    if (plane === null || revision === null || render === null) return [];
    return [{ organisation, plane, revision, render }];
  });
}

/** What the completion of these stages names of them. */
export function boundBy(all: readonly StageStatement[]) {
  const stages = all.map((one) => {
    const { organisation, stage } = one.predicate;
    return { organisation, stage, statement: statementDigest(one) };
  });
  return { revisions: revisionsOf(all), stages, evidence: [...evidenceOf(all)].sort() };
}

/** Whatever is wrong with a completion, and with all stages in the order of a record. */
export function wholeProblems(all: CompletionStatement, stages: readonly StageStatement[], items: Evidence) {
  const { predicate } = all;
  return [
    ...stages.flatMap((stage) => judgeStage(stage, items).problems),
    ...stages.flatMap((stage) => strayProblems(predicate, stage, placeOf(stage.predicate))),
    ...sequenceProblems(predicate, stages),
    ...completionProblems(all),
    ...bindingProblems({ ...predicate, bound: stages, items, isWhole: true }),
  ];
}

function checkRevisions({ revisions, bound, isWhole, report }: Bound): void {
  if (!isWhole) return;
  // A statement that stands twice counts once.
  const byPlace = new Map(bound.map((stage) => [placeOf(stage.predicate), stage]));
  const [first] = bound;
  const ordered = first === undefined ? [] : inOrder(first.predicate, byPlace);
  if (!isDeepStrictEqual(revisions, revisionsOf(ordered))) report("revisions_differ");
}

/** What every stage lists, each once. Whoever writes it down waives nothing in the other's name. */
export function outOfReachIn(stages: readonly StageStatement[]): CompletionPredicate["out_of_reach"] {
  const all = stages.flatMap(({ predicate }) => predicate.out_of_reach);
  return [...new Map(all.map((one) => [wholeOf(one), one])).values()];
}

function wholeOf({ subject, reason, waived_by, waiver }: OutOfReachEntry): string {
  return JSON.stringify([subject, reason, waived_by, waiver]);
}

function checkOutOfReach({ out_of_reach, bound, isWhole, report }: Bound): void {
  const listed = new Set(out_of_reach.map(wholeOf));
  for (const { predicate } of bound) {
    for (const entry of predicate.out_of_reach) {
      if (!listed.has(wholeOf(entry))) report("out_of_reach_dropped", entry.subject, placeOf(predicate));
    }
  }
  if (!isWhole) return;
  const stated = new Set(outOfReachIn(bound).map(wholeOf));
  for (const entry of out_of_reach) {
    if (!stated.has(wholeOf(entry))) report("out_of_reach_not_stated", entry.subject);
  }
}

function checkTimes({ attestations, static_tests, completed_at, bound, report }: Bound): void {
  for (const { organisation, attested_at } of attestations) {
    const own = bound.filter(({ predicate }) => predicate.organisation === organisation);
    if (own.some(({ predicate }) => predicate.closed_at > attested_at)) {
      report("times_out_of_order", `attested_at of ${organisation}`);
    }
  }
  const before = [
    ...bound.map(({ predicate }) => predicate.closed_at),
    ...attestations.map(({ attested_at }) => attested_at),
    ...static_tests.map(({ at }) => at),
  ];
  if (before.some((time) => time > completed_at)) report("times_out_of_order", "completed_at");
}

/** The remover writes down why the partnership ends; what the partner has said of that in its own part has to agree. */
function checkTrigger({ trigger, bound, report }: Bound): void {
  for (const { predicate } of bound) {
    for (const word of predicate.attested) {
      if (!word.startsWith(TRIGGER_WORD) || word === `${TRIGGER_WORD}${trigger}`) continue;
      report("trigger_differs", `${predicate.organisation}: ${word.slice(TRIGGER_WORD.length)}`);
    }
  }
}

/** The remover writes down who attests for the partner, and what tests passed there; the partner alone can have said so. */
function checkOwner({ partner, attestations, static_tests, bound, report }: Bound): void {
  const own = bound.find(({ predicate }) => predicate.organisation === partner && isDuties(predicate));
  if (own === undefined) return;
  const attested = ownerIn(own.predicate.attested);
  for (const { organisation, owner } of attestations) {
    if (organisation === partner && owner !== attested) report("owner_not_attested", owner);
  }
  for (const { organisation, command } of static_tests) {
    const isStated = organisation !== partner || own.predicate.attested.includes(command);
    if (!isStated) report("static_test_not_attested", command);
  }
}

/** What the partner has signed of how long the remover keeps its data, the completion does not change. */
function checkKept({ remover, duties: { retention, backup_expiry }, bound, report }: Bound): void {
  const own = bound.find(({ predicate }) => predicate.organisation === remover && isDuties(predicate));
  if (own === undefined) return;
  const stated: readonly string[] = keeping(retention, backup_expiry.by);
  const attested = own.predicate.attested.filter(isKeeping);
  const isOfBoth = (word: string) => stated.includes(word) && attested.includes(word);
  for (const word of [...stated, ...attested]) if (!isOfBoth(word)) report("duties_differ", word);
}

const isDuties = ({ stage }: StageStatement["predicate"]): boolean => PLANE_OF_STAGE[stage] === null;

function checkPurge({ partner, duties: { purge }, bound, items, isWhole, report }: Bound): void {
  if (!isWhole) return;
  const shown = evidenceOf(bound.filter(({ predicate }) => isDuties(predicate)));
  const isWaived = [...shown].some((digest) => {
    const item = items.get(digest);
    // What an absent item would have shown is not known.
    if (item === undefined) return true;
    return item.probe === "purge_waived" && item.reason === purge.waiver && item.partner === partner;
  });
  if (purge.state === "waived" && purge.waiver !== null && !isWaived) {
    report("purge_not_waived", purge.waiver);
  }
  const held = purge.evidence.flatMap((digest) => items.get(digest) ?? []);
  for (const digest of purge.evidence) {
    const item = items.get(digest);
    if (!shown.has(digest)) report("purge_not_shown", digest);
    else if (item !== undefined && !isOfPurge(item)) report("purge_of_another_kind", digest);
  }
  // A missing item is reported as missing. What the partner deleted of the remover's data is no purge here.
  const isAll = held.length === purge.evidence.length && held.length > 0 && held.every(isOfPurge);
  const isShown = held.some((item) => showsPurge(item) && item.partner === partner);
  if (purge.state === "done" && isAll && !isShown) report("purge_of_another_kind");
}
