// Observes one stage of one's own: applies its plane where that is asked for, asks the operator's own parts, probes
// from outside, and reads what the records of other programs say since the stage was opened.
// Invariant: everything that a condition may rest on is a sealed item, without content.
import { resolve } from "node:path";
import { DrawbridgeError } from "../../../domain/errors.ts";
import type { EvidenceItem } from "../../../records/format/evidence-item.ts";
import { PLANE_OF_STAGE } from "../../../records/format/stages.ts";
import { collectStream } from "../../evidence/record-streams.ts";
import type { PlaneName } from "../../plane-order.ts";
import type { Drift } from "../../planes/plane.ts";
import { probeFromInside } from "../../probes/inside.ts";
import { currentState } from "../../reconcile/accept-head.ts";
import { type DesiredState, desiredPlane } from "../../reconcile/desired-state.ts";
import { partnerEntry } from "../../registry/find-partner.ts";
import type { Partner, PartnerEntry } from "../../registry/partner.ts";
import { type Applied, readPlane } from "../../state/plane-records.ts";
import { checkRepository } from "../../work-tree/check.ts";
import { reconcilePlane } from "../../workflow/reconcile-plane.ts";
import type { OffboardingContext } from "../run/context.ts";
import { readDutiesEvidence, type StageProgress } from "../run/progress.ts";
import { counterpartyOf, type Run } from "../run/run.ts";
import { DeclaredEvidence } from "./declared-evidence.ts";
import { publicForOthers } from "./exit-conditions.ts";
import { NOT_OUR_ROOM, NOTHING_OBSERVED, type Observation } from "./observation.ts";

type OutOfReach = Observation["outOfReach"][number];

const VIOLATIONS_MAX = 20;
const VIOLATION_WITHIN_MS = 3_000;
const POLL_MS = 100;

export interface StageObservation {
  readonly observation: Observation;
  /** What was in force; null where there is no plane. */
  readonly revision: string | null;
  readonly render: string | null;
}

type ObservedStage = Pick<StageProgress, "stage" | "opened_at" | "homeserver_started_at">;

/**
 * @param how `apply`: the plane is applied at the head first; `observe`: nothing is touched, and what was changed by
 *   hand is reported
 * @throws DrawbridgeError `head_refused`, `repository_unusable`, `secret_unavailable`
 */
export async function observeStage(
  context: OffboardingContext,
  run: Run,
  progress: ObservedStage,
  how: "apply" | "observe",
): Promise<StageObservation> {
  const plane = PLANE_OF_STAGE[progress.stage];
  return plane === null
    ? observeDuties(context, run)
    : observePlane(context, run, { ...progress, plane }, how);
}

async function observePlane(
  context: OffboardingContext,
  run: Run,
  progress: ObservedStage & { readonly plane: PlaneName },
  how: "apply" | "observe",
): Promise<StageObservation> {
  const { config } = context;
  const { stage, plane } = progress;
  const other = counterpartyOf(run);
  const { desired, applied } = await reached(context, plane, how);
  const entry = partnerEntry(desired.registry, other);
  const runs = { gateway: config.gateway !== undefined, bridge: config.card !== undefined };
  const observed =
    entry === undefined
      ? { items: [], drift: [] }
      : await evidenceOf(context, run, progress, { desired, entry, applied, runs }, how);
  const leftOver = (applied?.outOfReach ?? []).filter(({ partner }) => partner === other);
  const observation: Observation = {
    ...NOTHING_OBSERVED,
    ...{ stage, plane },
    partner: entry?.partner,
    runs,
    applied,
    drift: observed.drift,
    items: observed.items,
    outOfReach: [
      ...leftOver.map(({ subject, reason, hint }) => ({ subject: subjectWord(subject), reason, hint })),
      ...unclearRooms(observed.items, leftOver),
      ...roomsOfOthers(observed.items, leftOver),
    ],
    fromOutside: context.outside !== undefined,
    policyBefore: { digest: run.baseline.policy_digest, excluded: run.baseline.policy_excluded },
    startedBefore: progress.homeserver_started_at,
  };
  return { observation, revision: desired.revision, render: desired.planes[plane].digest };
}

async function reached(
  { federation }: OffboardingContext,
  plane: PlaneName,
  how: "apply" | "observe",
): Promise<{ readonly desired: DesiredState; readonly applied: Applied | null }> {
  if (how === "apply") {
    const pass = await reconcilePlane(federation, plane);
    const applied = pass.planes.find((report) => report.plane === plane)?.record.applied ?? null;
    if (pass.desired !== undefined) return { desired: pass.desired, applied };
  }
  const { desired } = await currentState(federation);
  return { desired, applied: readPlane(federation.state, plane).applied };
}

interface Reached {
  readonly desired: DesiredState;
  readonly entry: PartnerEntry;
  readonly applied: Applied | null;
  readonly runs: Observation["runs"];
}

async function evidenceOf(
  context: OffboardingContext,
  run: Run,
  { plane, opened_at: openedAt }: { readonly plane: PlaneName; readonly opened_at: string },
  { desired, entry, applied, runs }: Reached,
  how: "apply" | "observe",
): Promise<{ readonly items: readonly EvidenceItem[]; readonly drift: readonly Drift[] }> {
  const { federation, config } = context;
  const { planes, clock } = federation;
  const declared = new DeclaredEvidence(run, plane, clock);
  const drift = how === "observe" ? await driftOf(context, plane, desired) : [];
  const inside = await probeFromInside(planes, desired, entry, [plane], clock);
  const outside = (await context.outside?.(run.self, entry, [plane], inside)) ?? [];
  const own = [
    declared.reconciled(applied, entry.partner, desired),
    ...(plane === "gateway" ? declared.gateway(entry.partner, desired, runs) : []),
    ...(plane === "card" ? declared.card(entry.partner, desired, runs, publicForOthers(inside)) : []),
  ];
  const violations =
    plane === "border"
      ? await violationsSince(config, entry.partner, openedAt, declared, context.outside !== undefined, clock)
      : [];
  return { items: [...own, ...inside, ...outside, ...violations], drift };
}

async function driftOf(
  { federation }: OffboardingContext,
  plane: PlaneName,
  desired: DesiredState,
): Promise<readonly Drift[]> {
  try {
    return await federation.planes[plane].drift(desiredPlane(desired, plane));
  } catch (error) {
    // The plane does not count as clean: the probes report as unknown what could not be compared.
    if (error instanceof DrawbridgeError) return [];
    throw error;
  }
}

/** Rooms of which something is unknown, unless the plane itself has named them. */
function unclearRooms(items: readonly EvidenceItem[], named: readonly OutOfReach[]): readonly OutOfReach[] {
  const known = new Set(named.map(({ subject }) => subject));
  const unclear = items.filter(
    ({ plane, vantage, verdict, subject }) =>
      plane === "rooms" &&
      verdict === "unknown" &&
      subject?.startsWith("!") === true &&
      vantage !== "partner",
  );
  const bySubject = new Map(unclear.map((item) => [item.subject ?? "", item]));
  return [...bySubject]
    .filter(([subject, { probe }]) => !known.has(subject) && probe.startsWith("room_"))
    .map(([subject, { reason }]) => ({
      subject,
      reason: reason ?? "unknown",
      hint: "Run the step again; or waive the room by name.",
    }));
}

const ENTRY: ReadonlySet<string> = new Set(["make_join", "message_to_target", "state_to_target"]);

/**
 * Rooms of third parties that our people are in and that let the counterparty in: the rooms plane governs none
 * of them, and says nothing of them. What they relay by way of others stays when the transport is closed.
 */
function roomsOfOthers(items: readonly EvidenceItem[], named: readonly OutOfReach[]): readonly OutOfReach[] {
  const governed = new Set([
    ...items
      .filter(({ probe, vantage }) => vantage === "operator" && probe.startsWith("room_"))
      .map(subjectOf),
    ...named.map(({ subject }) => subject),
  ]);
  const entered = items.filter(
    ({ probe, vantage, verdict }) => vantage === "partner" && verdict === "open" && ENTRY.has(probe),
  );
  return [...new Set(entered.map(subjectOf))]
    .filter((room) => room.startsWith("!") && !governed.has(room))
    .map((subject) => ({
      subject,
      reason: NOT_OUR_ROOM,
      hint: "Have its owner exclude the counterparty, or take your people out of it.",
    }));
}

function subjectOf({ subject }: EvidenceItem): string {
  return subject ?? "";
}

/** Denials of the counterparty since the stage was opened; the border writes them a moment after it denies. */
async function violationsSince(
  config: OffboardingContext["config"],
  partner: Partner,
  openedAt: string,
  declared: DeclaredEvidence,
  wasTried: boolean,
  clock: OffboardingContext["federation"]["clock"],
): Promise<readonly EvidenceItem[]> {
  const file = resolve(config.directory, config.border.violationsFile);
  const about = { serverName: partner.serverName, azp: partner.azp, agents: new Set<string>() };
  const window = { since: openedAt, until: "9999-12-31T23:59:59.999Z" };
  for (const deadline = clock.now() + VIOLATION_WITHIN_MS; ; await clock.sleep(POLL_MS)) {
    const { items } = await collectStream("border_violations", file, about, window);
    const denials = items.flatMap((item) => declared.violation(item) ?? []).slice(-VIOLATIONS_MAX);
    if (denials.length > 0 || !wasTried || clock.now() >= deadline) return denials;
  }
}

async function observeDuties(context: OffboardingContext, run: Run): Promise<StageObservation> {
  const { federation } = context;
  const { desired } = await currentState(federation);
  const other = counterpartyOf(run);
  const entry = partnerEntry(desired.registry, other);
  const declared = new DeclaredEvidence(run, "transport", federation.clock);
  const staticProblems = await staticProblemsOf(context, desired.revision);
  const items = [...readDutiesEvidence(run)];
  if (staticProblems.length === 0) items.push(declared.staticTests(desired.revision));
  let duties: NonNullable<Observation["duties"]>;
  try {
    const facts = context.facts(run);
    duties = { known: true, purgeWaived: facts.purgeWaiver !== null };
    items.push(...declared.duties(facts));
  } catch (error) {
    if (!(error instanceof DrawbridgeError)) throw error;
    duties = { known: false, found: error.message.split("\n")[0] ?? "", hint: error.hint ?? "" };
  }
  const unclear = items.filter(({ verdict }) => verdict === "unknown");
  const observation: Observation = {
    ...NOTHING_OBSERVED,
    ...{ stage: "data_duties", plane: null, partner: entry?.partner, items, duties, staticProblems },
    outOfReach: unclear.map(({ subject, probe, reason }) => ({
      subject: subject ?? probe,
      reason: reason ?? "unknown",
      hint: "Delete it by hand, or waive it by name.",
    })),
  };
  return { observation, revision: null, render: null };
}

/** What the tests that need no server find in a revision: the first line of each that does not pass. */
export async function staticProblemsOf(
  { federation }: OffboardingContext,
  revision: DesiredState["revision"],
): Promise<readonly string[]> {
  const { repository } = federation;
  const registry = await repository.read(revision, ["registry"]);
  const rendered = await repository.read(revision, ["rendered", "kubernetes"]);
  return checkRepository(registry, rendered)
    .filter(({ result }) => result !== "ok")
    .map(({ name, found }) => `${name}: ${found[0] ?? "failed"}`);
}

const INVISIBLE = /[^\x21-\x7e]/g;
const LENGTH_MAX = 512;

/**
 * A subject out of reach as an identifier that can be signed and typed: `!room at server`, as the rooms plane names a
 * server that is behind, becomes `!room@server`.
 */
export function subjectWord(named: string): string {
  const word = named.replaceAll(" at ", "@").replaceAll(INVISIBLE, "_").slice(0, LENGTH_MAX);
  return word === "" ? "_" : word;
}
