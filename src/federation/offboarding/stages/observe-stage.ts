// Observes one stage of one's own, and judges it by the evaluation that the record will be verified by: applies its plane
// where that is asked for, asks the operator's own parts, probes from outside, and reads the records of other programs.
// Invariant: everything that a condition may rest on is a sealed item, without content.
import { resolve } from "node:path";
import { DrawbridgeError, undefinedFor } from "../../../domain/errors.ts";
import { evaluateStage, LEFT_ALONE, type StageWork } from "../../../records/conditions/evaluate.ts";
import { type EvidenceItem, isOwnRoom } from "../../../records/format/evidence-item.ts";
import { pollUntil } from "../../../runtime/concurrency.ts";
import { collectStream } from "../../evidence/record-streams.ts";
import type { PlaneName } from "../../plane-order.ts";
import { type Drift, notNamed, OUT_OF_REACH, type OutOfReach } from "../../planes/plane.ts";
import { acceptedState } from "../../reconcile/accept-head.ts";
import { timestamp } from "../../reconcile/context.ts";
import { desiredPlane } from "../../reconcile/desired-state.ts";
import { READMISSIONS } from "../../registry/committed-records.ts";
import { type Partner, partnerEntry, planeState } from "../../registry/partner.ts";
import { parseRevision } from "../../repository/repository.ts";
import { checkRepository } from "../../work-tree/check.ts";
import { observePlane, RECONCILED, type Seal, sealFor, subjectWord } from "../../workflow/observe-plane.ts";
import { removal, removalStep } from "../../workflow/procedures.ts";
import { HINTS, judged, type Objection, objectTo, type Reached, runStep } from "../../workflow/run-step.ts";
import { BASELINE_HINT, type RecordFacts, type RunContext, registryBefore } from "../run/context.ts";
import { counterpartyIn, readDutiesEvidence, readStage, type StageProgress } from "../run/run-file.ts";

export const NOT_OUR_ROOM = "not_our_room";

/** By room ID or server name; or by an item's subject, or its probe. */
type NotReached = Omit<OutOfReach, "partner">;
type Shown = Readonly<{ items: readonly EvidenceItem[]; outOfReach: readonly NotReached[] }>;
type Found = Shown & { readonly objections: readonly Objection[] };
type Evidence = Parameters<typeof judged>[1];

const VIOLATIONS_MAX = 20;
const VIOLATION = { withinMs: 3_000, everyMs: 100 };

type ObservedStage = Pick<StageProgress, "stage" | "opened_at" | "scope">;
type ObservedPlane = ObservedStage & { readonly plane: PlaneName };

/** Reports drift where it applies nothing. @throws DrawbridgeError `head_refused`, `repository_unusable` */
export async function observeStage(context: RunContext, progress: ObservedStage, how: "apply" | "observe") {
  const { run, clock } = context;
  const { plane, conditions } = removalStep(run.kind, progress.stage);
  const partner = counterpartyIn(run);
  const seal = sealFor(clock, partner, plane ?? "transport");
  if (plane !== null && conditions !== null) {
    const { observed } = await runStep(context, {
      ...{ plane, partner, how, onBadHead: removal(run.kind).onBadHead },
      observe: (reached) => observeClosed(context, { ...progress, plane }, reached),
      evaluate: (_reached, observed) => observed.conditions,
    });
    return observed;
  }
  const inForce = { revision: null, render: null };
  if (conditions !== null) return stageResult(context, progress, inForce, await observeDuties(context, seal));
  const about = { probe: LEFT_ALONE, layer: "none", vantage: "nobody", verdict: "unknown" } as const;
  const items = [seal({ ...about, reason: `left_alone_by_${run.kind}` })];
  return stageResult(context, progress, inForce, { items, outOfReach: [], objections: [] });
}

function stageResult(
  { clock, outside, run: { kind, self, remover, partner } }: RunContext,
  { stage, scope, opened_at }: ObservedStage,
  inForce: Pick<StageWork, "revision" | "render">,
  { items, outOfReach, objections }: Found,
) {
  const at = timestamp(clock.now());
  const work = {
    ...{ kind, stage, organisation: self, remover, partner, scope, opened_at, closed_at: at },
    ...{ ...inForce, out_of_reach: outOfReach },
  };
  const conditions = judgeStage(work, { items, fromOutside: outside !== undefined }, objections);
  return { at, ...inForce, conditions, items, outOfReach };
}

/** By the evaluation of the record; `work.closed_at` is when the observation ended. */
export function judgeStage(work: StageWork, observed: Evidence, objections: Found["objections"] = []) {
  const conditions = evaluateStage(work, observed.items).map((one) => judged(one, observed));
  return objectTo(conditions, objections);
}

async function observeClosed(context: RunContext, progress: ObservedPlane, reached: Reached) {
  const { plane } = progress;
  const other = counterpartyIn(context.run);
  const { desired, applied, pass } = reached;
  const partner = partnerEntry(desired.registry, other)?.partner;
  // What could not be compared does not count as clean: the probes report it as unknown.
  const drift =
    partner !== undefined && pass === undefined
      ? await context.planes[plane].drift(desiredPlane(desired, plane)).catch(undefinedFor())
      : [];
  const items = partner === undefined ? [] : await evidenceOf(context, progress, partner, reached);
  const leftOver = (applied?.outOfReach ?? []).filter((one) => one.partner === other);
  const inForce = { revision: desired.revision, render: desired.planes[plane].digest };
  const objection = objectionTo(plane, partner, notNamed(drift ?? [], applied?.outOfReach ?? []));
  const left = leftOver.map(({ subject, reason, hint }) => ({ subject: subjectWord(subject), reason, hint }));
  const outOfReach = [...left, ...unclearRooms(items, leftOver), ...roomsOfOthers(items, leftOver)];
  const objections = objection ? [{ condition: "in_force", probe: RECONCILED, ...objection }] : [];
  return stageResult(context, progress, inForce, { items, outOfReach, objections });
}

function objectionTo(plane: PlaneName, partner: Partner | undefined, [changed]: readonly Drift[]) {
  if (partner === undefined) {
    const hint = "Put its file back, with every plane closed, until the run has ended.";
    return { found: "the registry has no entry for the counterparty any more", hint };
  }
  // Containment closes planes for a while; a removal closes them for good.
  if (planeState(partner, plane) === "open" || partner.planes[plane] === "open") return declaredOpen(plane);
  if (changed === undefined) return undefined;
  const { kind, subject } = changed;
  const comes = `a closed partner may come into a room where nothing can be done: ${subject}`;
  const [found, more] =
    kind === OUT_OF_REACH
      ? [comes, ": it replaces the room, or names why not."]
      : [`the ${plane} plane was changed by hand: ${subject} (${kind})`, ", and find out who changed it."];
  return { found, hint: `Run drawbridge reconcile --once --plane ${plane}${more}` };
}

export const declaredOpen = (plane: string) =>
  ({
    found: `the registry declares the ${plane} plane open`,
    hint: `Run drawbridge offboarding next, which closes it again; see git log for who opened it.`,
  }) as const;

/** The rooms that a removal has to cover. @throws DrawbridgeError `homeserver_unavailable` when they are not known */
export function roomsIn(items: readonly EvidenceItem[]): string[] {
  const failed = items.find(({ probe }) => probe === "plane");
  if (failed === undefined) return [...new Set(items.filter(isOwnRoom).map(subjectOf))].sort();
  const what = "the rooms that this removal has to cover are not known";
  throw new DrawbridgeError("homeserver_unavailable", what, {
    hint: `The homeserver did not list them (${failed.reason}). Start it, then run this again: the stage is not open yet.`,
  });
}

/** What happens to the counterparty that leaves a trace outside the parts of the plane, besides what is observed of them. */
async function evidenceOf(
  context: RunContext,
  { stage, plane, opened_at: openedAt, scope }: ObservedPlane,
  partner: Partner,
  reached: Reached,
): Promise<readonly EvidenceItem[]> {
  const stop = stage === "a2a_discovery" ? (readStage(context.run, "a2a_stop")?.proof?.items ?? []) : [];
  const refused = stop.filter(({ probe, verdict }) => probe === "invoke" && verdict === "closed");
  const { items } = await observePlane(context, reached, {
    ...{ plane, direction: "closed", scope, before: await entryBefore(context, reached) },
    outside: context.outside,
    refusals: (agent) => refused.filter(({ subject }) => subject === agent),
  });
  return plane === "border" ? [...items, ...(await violationsSince(context, partner, openedAt))] : items;
}

/** The counterparty's entry in the registry when the run was opened. A scope that was made smaller shows no absence. */
async function entryBefore(context: RunContext, { desired }: Reached): Promise<Partner | undefined> {
  const { run } = context;
  const { revision } = run.baseline;
  // The scope of a partial removal is that of each stage.
  if (run.kind === "partial" || desired.revision === revision) return undefined;
  const base = parseRevision(revision);
  if (base === undefined || !(await context.repository.isAncestor(base, desired.revision))) {
    const what = `the run was opened at ${revision}, which the branch does not hold`;
    throw new DrawbridgeError("head_refused", what, { hint: BASELINE_HINT });
  }
  return partnerEntry(await registryBefore(context, run), counterpartyIn(run))?.partner;
}

/** What is unknown of rooms, each reason of a room once, unless the plane itself has named it. */
function unclearRooms(items: readonly EvidenceItem[], named: readonly NotReached[]): readonly NotReached[] {
  const whole = ({ subject, reason }: Pick<NotReached, "subject" | "reason">) => `${subject} ${reason}`;
  const hint = "Run the step again; or waive the room by name.";
  const unclear = items
    .filter(
      ({ plane, probe, vantage, verdict }) =>
        plane === "rooms" && verdict === "unknown" && vantage !== "partner" && probe.startsWith("room_"),
    )
    .map((item) => ({ subject: subjectOf(item), reason: item.reason ?? "unknown", hint }));
  const known = new Set(named.map(whole));
  return [...new Map(unclear.map((one) => [whole(one), one]))].flatMap(([key, one]) =>
    known.has(key) ? [] : one,
  );
}

const ENTRY: ReadonlySet<string> = new Set(["make_join", "message_to_target", "state_to_target"]);

/** Rooms of third parties that our people are in and that let the counterparty in: the rooms plane governs none of them. */
function roomsOfOthers(items: readonly EvidenceItem[], named: readonly NotReached[]): readonly NotReached[] {
  const known = new Set([...items.filter(isOwnRoom).map(subjectOf), ...named.map(({ subject }) => subject)]);
  const entered = items.filter(
    ({ probe, vantage, verdict }) => vantage === "partner" && verdict === "open" && ENTRY.has(probe),
  );
  const hint = "Have its owner exclude the counterparty, or take your people out of it.";
  return [...new Set(entered.map(subjectOf))]
    .filter((room) => !known.has(room))
    .map((subject) => ({ subject, reason: NOT_OUR_ROOM, hint }));
}

const subjectOf = ({ subject }: EvidenceItem): string => subject ?? "";

/** Denials of the counterparty since the stage was opened; the border writes them a moment after it denies. */
async function violationsSince({ config, outside, clock }: RunContext, partner: Partner, openedAt: string) {
  const file = resolve(config.directory, config.border.violationsFile);
  const window = { since: openedAt, until: "9999-12-31T23:59:59.999Z" };
  const seal = sealFor(clock, partner.serverName, "border");
  const read = async () => {
    const { items } = await collectStream("border_violations", file, partner, window);
    return items.flatMap(({ facts, at, line_digest }) => {
      if (facts.stream !== "border_violations" || facts.reason !== "server_not_allowed") return [];
      const { room, event, policy_digest, reason } = facts;
      return seal({
        ...{ probe: "violation", layer: "border", verdict: "closed", subject: event ?? room, reason },
        references: [line_digest, ...(policy_digest === null ? [] : [policy_digest])],
        at: new Date(at).toISOString(),
      });
    });
  };
  const denials = await pollUntil(clock, VIOLATION, read, (one) => one.length > 0 || outside === undefined);
  return denials.slice(-VIOLATIONS_MAX);
}

const STATIC_TESTS = "check_federation";
const DUTIES = "duties";

async function observeDuties(context: RunContext, seal: Seal): Promise<Found> {
  const { desired, repository } = await acceptedState(context, removal(context.run.kind).onBadHead);
  const { revision } = desired;
  const objections: Objection[] = [];
  const items = [...readDutiesEvidence(context.run)];
  const registry = await repository.read(revision, ["registry"]);
  const rendered = await repository.read(revision, ["rendered", "kubernetes"]);
  const readmissions = await repository.read(revision, [READMISSIONS]);
  const failed = checkRepository(registry, rendered, readmissions).find(({ result }) => result !== "ok");
  if (failed === undefined) {
    const about = { layer: "registry", verdict: "closed", reason: "passed" } as const;
    items.push(seal({ probe: STATIC_TESTS, ...about, references: [revision] }));
  } else {
    const found = `${failed.name}: ${failed.found[0] ?? "failed"}`;
    const hint = HINTS["static_tests_pass"] ?? "";
    objections.push({ condition: "static_tests_pass", probe: STATIC_TESTS, found, hint });
  }
  try {
    items.push(...recorded(context.facts(context.run), seal));
  } catch (error) {
    if (!(error instanceof DrawbridgeError)) throw error;
    const found = error.message.split("\n")[0] ?? "";
    objections.push({ condition: "duties_recorded", probe: DUTIES, found, hint: error.hint ?? "" });
  }
  const unclear = items.filter(({ verdict }) => verdict === "unknown");
  const hint = "Delete it by hand.";
  const outOfReach = unclear.map(({ subject, probe, reason }) => {
    return { subject: subject ?? probe, reason: reason ?? "unknown", hint };
  });
  return { items, outOfReach, objections };
}

function recorded({ retention, backupsExpireBy, purgeWaiver }: RecordFacts, seal: Seal) {
  const about = { layer: "private_record", verdict: "closed" } as const;
  const kept = `retention=${retention.state}${retention.until === null ? "" : `:${retention.until}`}`;
  const references = [kept, `backups_expire_by=${backupsExpireBy}`, "replicated_history=not_retracted"];
  const duties = seal({ probe: DUTIES, ...about, reason: "recorded", references });
  if (purgeWaiver === null) return [duties];
  return [duties, seal({ probe: "purge_waived", ...about, reason: purgeWaiver })];
}
