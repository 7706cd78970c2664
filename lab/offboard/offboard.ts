// Removes one organisation from the other between their two operators, while the removed one keeps trying to come in
// and everybody else goes on writing; and reports what was seen.
import { type Lab, SOURCES } from "../lab.ts";
import {
  type AttemptFinding,
  AttemptWatch,
  isShut,
  type Observed,
  type WatchedAttempt,
} from "../observe/attempt-watch.ts";
import { type BystanderSummary, BystanderTraffic } from "../observe/bystanders.ts";
import { Operator } from "../observe/operator.ts";
import { partnerAttempts } from "../observe/partner-attempts.ts";
import { comparePrograms, type ProgramsAfter, programsOf } from "../observe/restarts.ts";
import { COMPLETE_ORGANISATIONS, type CompleteOrganisation } from "../organisations.ts";
import { formatDuration, type Progress } from "../progress.ts";
import type { Seed } from "../seed/seed-file.ts";
import { type Kind, openBoth, type RoomChoice } from "./open.ts";
import { type Signer, signersOf, stagesIn, type Waived, waivedIn } from "./record.ts";
import { type Verified, verify } from "./verify.ts";
import { type ClosedStage, removeBetween, type WorkflowHooks } from "./workflow.ts";

export interface ObservedStage extends ClosedStage {
  /** Since the removal began. */
  readonly closedAfterMs: number;
  /** The longest time that a message of a bystander took meanwhile; null where none was sent. */
  readonly interruptionMs: number | null;
}

interface Contained {
  readonly organisation: CompleteOrganisation;
  /** Since the removal began. */
  readonly afterMs: number;
}

export interface Offboarded {
  readonly run: string;
  readonly kind: Kind;
  readonly remover: CompleteOrganisation;
  readonly partner: CompleteOrganisation;
  /** Milliseconds since the Unix epoch. */
  readonly decidedAt: number;
  readonly completedAt: number;
  readonly record: {
    readonly file: string;
    /** Both public keys, for `drawbridge verify`. */
    readonly trustFile: string;
    readonly signers: readonly Signer[];
  };
  /** Of an emergency: when its first step was done at each. */
  readonly contained: readonly Contained[];
  readonly stages: readonly ObservedStage[];
  /** What the partner tried meanwhile. */
  readonly attempts: readonly Observed[];
  readonly neighbours: readonly BystanderSummary[];
  readonly programs: Readonly<Record<CompleteOrganisation, ProgramsAfter>>;
  readonly verified: Verified;
  /** What neither operator could reach and a role waived, by the record. */
  readonly waived: readonly Waived[];
  /** Whether both verifiers accept the record, nothing is let in, no message was lost, and only homeservers restarted. */
  readonly holds: boolean;
}

const SETTLE_MS = 60_000;
/** A removal takes minutes: more attempts load the machine, and show no more. */
const TRY_EVERY_MS = 2_000;
const RESTARTED = ["homeserver"];

/**
 * @param scope.rooms what becomes of shared rooms; undefined for what the registries say
 * @param scope.opening a stage, and what is waited for before it is opened at either
 * @throws DrawbridgeError `usage` when the partner is removed already; `program_failed`
 */
export async function offboard(
  scope: {
    readonly lab: Lab;
    readonly seed: Seed;
    /** The organisation that removes the other. */
    readonly org: CompleteOrganisation;
    readonly kind: Kind;
    readonly rooms?: RoomChoice | undefined;
    readonly opening?: WorkflowHooks["opening"];
  },
  progress: Progress,
): Promise<Offboarded> {
  const { lab, seed, org, kind } = scope;
  const { clock } = SOURCES;
  const remover = new Operator(lab, org);
  const partner = new Operator(lab, remover.counterparty);
  const before = await programsOfBoth(lab);
  const { run, openedBefore } = await openBoth(scope, remover, partner, progress);
  const traffic = await BystanderTraffic.open(lab, seed);
  const { attempts: tried, close } = partnerAttempts(seed, remover, true);
  const slowly = tried.map((one) => ({ ...one, pauseMs: TRY_EVERY_MS, attempt: () => attemptOf(one) }));
  const watch = new AttemptWatch(slowly, clock);
  const closed: ClosedStage[] = [];
  const contained: Contained[] = [];
  traffic.start();
  watch.start();
  const triedSince = watch.countFromNow();
  const decidedAt = openedBefore ?? triedSince;
  let recordFile: string;
  let completedAt: number;
  let attempts: readonly Observed[];
  let neighbours: readonly BystanderSummary[];
  try {
    recordFile = await removeBetween([remover, partner], run, {
      opening: scope.opening,
      note: (text) => progress.note(text),
      step: (organisation, text) =>
        progress.done(`${organisation}: ${text}, ${formatDuration(clock.now() - decidedAt)} after the start`),
      contained(organisation, at) {
        contained.push({ organisation, afterMs: at - decidedAt });
      },
      closed: (stage) => void closed.push(stage),
    });
    completedAt = clock.now();
    progress.note("waiting until every attempt of the partner is refused");
    await watch.until(isShut, SETTLE_MS);
  } finally {
    attempts = await watch.stop();
    neighbours = await traffic.stop();
    await close();
  }
  progress.note("two verifiers read the record");
  const verified = await verify(lab, recordFile, [remover, partner]);
  const recorded = stagesIn(recordFile, lab);
  const stages = recorded.map(({ outOfReach: _, ...stage }): ObservedStage => {
    const live = closed.find((one) => one.organisation === stage.organisation && one.stage === stage.stage);
    return {
      ...stage,
      planeNumber: live?.planeNumber ?? null,
      closedAfterMs: stage.closedAt - decidedAt,
      interruptionMs:
        live === undefined ? null : traffic.longestWithin(stage.organisation, stage.openedAt, stage.closedAt),
    };
  });
  const after = await programsOfBoth(lab);
  const programs = Object.fromEntries(
    COMPLETE_ORGANISATIONS.map((name) => [name, comparePrograms(before[name], after[name])]),
  ) as Offboarded["programs"];
  return {
    ...{ run, kind, remover: org, partner: partner.organisation, decidedAt, completedAt },
    record: {
      file: recordFile,
      trustFile: lab.paths.organisation(org).trustFile,
      signers: signersOf(lab, recordFile),
    },
    ...{ contained, stages, attempts, neighbours, programs, verified, waived: waivedIn(recorded) },
    holds:
      verified.drawbridge &&
      verified.foreign &&
      attempts.every(isShut) &&
      neighbours.every(({ lost, messages }) => lost === 0 && messages > 0) &&
      Object.values(programs).every(({ restarted }) => restarted.every((name) => RESTARTED.includes(name))),
  };
}

/**
 * A person who tries to join is answered by the own homeserver: that no other server admits the join, or by the room's rules
 * as far as it knows them; whoever is refused is not let in. And a homeserver that was cut off before it learned of a ban goes
 * on letting its people write and join, which nobody else sees: the last attempt decides, so that what was only late counts
 * as let in.
 */
async function attemptOf({ kind, attempt }: WatchedAttempt): Promise<AttemptFinding> {
  const found = await attempt();
  const { verdict, layer, status, reason } = found;
  if (status === null || status === 429) return found;
  if (kind === "join of a person" && status >= 400 && (verdict === "unknown" || layer === "room_rules")) {
    return { ...found, verdict: "closed", reason: reason ?? "no_server_lets_it_in" };
  }
  return verdict === "unknown" && reason === "not_arrived" ? { ...found, verdict: "closed" } : found;
}

async function programsOfBoth(lab: Lab) {
  const found = await Promise.all(
    COMPLETE_ORGANISATIONS.map(async (name) => [name, await programsOf(lab, name)] as const),
  );
  return Object.fromEntries(found) as Record<CompleteOrganisation, Awaited<ReturnType<typeof programsOf>>>;
}
