// One plane brought to one revision's state. Invariants: nobody else works on the plane meanwhile; an attempt is recorded
// before and after, so that a kill at any instant leads to the same end; what was changed by hand is kept before it is
// undone.
import { DrawbridgeError } from "../../domain/errors.ts";
import { type Backoff, backoffMs } from "../../runtime/backoff.ts";
import type { PlaneName } from "../plane-order.ts";
import { type Drift, notNamed } from "../planes/plane.ts";
import type { Revision } from "../repository/repository.ts";
import {
  type Applied,
  emptyRecord,
  keepDrift,
  type PlaneRecord,
  readHead,
  readPlane,
  writePlane,
} from "../state/plane-records.ts";
import { type Federation, timestamp } from "./context.ts";
import { type DesiredState, desiredPlane } from "./desired-state.ts";

const BACKOFF: Readonly<Record<"failed" | "incomplete" | "deferred", Backoff>> = {
  failed: { firstMs: 5_000, maxMs: 300_000 },
  incomplete: { firstMs: 30_000, maxMs: 600_000 },
  deferred: { firstMs: 1_000, maxMs: 60_000 },
};

export interface PlaneStep {
  readonly context: Federation;
  readonly plane: PlaneName;
  readonly desired: DesiredState;
  /** Retries what is left over, due or not, and counts nothing as in force without a drift check. */
  readonly force?: boolean;
  readonly again?: boolean;
  readonly checkDrift?: boolean;
  /** The desired state of an older revision that may still be in force; undefined when it is gone. */
  readonly stateOf: (revision: Revision) => Promise<DesiredState | undefined>;
}

export interface AppliedPlane {
  /**
   * `superseded`: another process has accepted a newer revision. `waiting`: not due; `held`: the transport, for the rooms;
   * `busy`: another process goes on working on the plane.
   */
  readonly step: "applied" | "current" | "waiting" | "superseded" | "unmanaged" | "held" | "busy";
  /** Says nothing where the revision is superseded, or the plane is busy. */
  readonly record: PlaneRecord;
  readonly drift: number;
  readonly changed: boolean;
}

export async function stepPlane(step: PlaneStep): Promise<AppliedPlane> {
  const { context, plane, desired } = step;
  const { state, clock, reporter } = context;
  // The record is about another revision, and says nothing about this one.
  const unsaid = (step: "superseded" | "busy", record: PlaneRecord): AppliedPlane => {
    return { step, record: { ...record, applied: null, inForce: null }, drift: 0, changed: false };
  };
  let isLocked = false;
  const work = async (): Promise<AppliedPlane> => {
    isLocked = true;
    const record = readPlane(state, plane, (file) => reporter.event({ event: "state_damaged", file }));
    if (readHead(state).accepted?.revision !== desired.revision) return unsaid("superseded", record);
    if (!context.planes[plane].unmanaged) return stepLocked(step, record);
    // What is recorded is from when the plane was managed, and says nothing about it any more.
    if (record.applied !== null || record.applying !== null) writePlane(state, emptyRecord(plane));
    return { step: "unmanaged", record: emptyRecord(plane), drift: 0, changed: false };
  };
  const onWait = () => reporter.event({ event: "plane_waits", plane });
  return state.locked(`plane ${plane}`, clock, work, onWait).catch((error: unknown) => {
    // One plane on which somebody works for long keeps no other from being applied.
    if (isLocked || !(error instanceof DrawbridgeError)) throw error;
    reporter.note(plane, error.message);
    return unsaid("busy", readPlane(state, plane));
  });
}

async function stepLocked(step: PlaneStep, record: PlaneRecord): Promise<AppliedPlane> {
  const { context, plane, desired, force = false, again = false, checkDrift = false } = step;
  const { state, clock } = context;
  const { digest } = desired.planes[plane];
  const settled = record.applying === null && record.applied?.digest === digest;
  const inForce = settled && record.applied?.outcome === "in_force";
  // Before a new revision, not the rooms: checking each takes as long as closing it, and its apply reads it anyway.
  const checks = checkDrift || (settled ? force && !again : plane !== "rooms");
  const found = checks ? await findDrift(step, record) : undefined;
  const drift = found?.drift?.length ?? 0;
  const known: PlaneRecord = found === undefined ? record : { ...record, driftCheck: found.check };

  const isUnknown = force && found !== undefined && found.drift === undefined;
  if (inForce && drift === 0 && !isUnknown && !again) {
    const current = withRevision(known, desired.revision);
    if (current !== record) writePlane(state, current);
    return { step: "current", record: current, drift, changed: false };
  }
  const isLater = settled && known.applied?.retryAt != null && !isRetryDue(known.applied, clock.now());
  if (!force && drift === 0 && isLater) {
    if (known !== record) writePlane(state, known);
    return { step: "waiting", record: known, drift, changed: false };
  }
  const mark = { revision: desired.revision, digest, at: timestamp(clock.now()) };
  writePlane(state, { ...known, applying: mark });
  // A pass that has ended only because its time was over has not failed: the next one does not wait longer than it did.
  const isGoingOn = known.applied?.outOfReach.some(({ reason }) => reason === "being_invited") === true;
  const attempts = settled && !inForce && !isGoingOn ? (known.applied?.attempts ?? 0) + 1 : 0;
  const { applied, changed } = await apply(step, attempts);
  const after = afterAttempt(known, applied, changed || drift > 0);
  writePlane(state, after);
  return { step: "applied", record: after, drift, changed };
}

/** Whether what an attempt has left is to be tried again; also when the clock was set back since. */
export function isRetryDue(applied: Applied | null, nowMs: number): boolean {
  if (applied?.retryAt == null) return false;
  return nowMs >= Date.parse(applied.retryAt) || nowMs < Date.parse(applied.at);
}

/** Another attempt at the state in force does not make it younger. @param repaired whether the real part differed */
function afterAttempt(before: PlaneRecord, applied: Applied, repaired: boolean): PlaneRecord {
  const { revision, digest, at } = applied;
  // An attempt at another state in between, ended or not, makes this one a new state.
  const isSame = before.applied?.digest === digest && (before.applying ?? applied).digest === digest;
  const firstAt = isSame ? (before.applied?.firstAt ?? at) : at;
  const record = { ...before, applying: null, applied: { ...applied, firstAt } };
  if (applied.outcome !== "in_force") return record;
  const { inForce } = before;
  const isStanding = isSame && inForce?.digest === digest && inForce.at >= firstAt;
  if (!isStanding) return { ...record, inForce: { revision, digest, at, repairedAt: null } };
  // An attempt that did not end in force may have changed what this one finds in place.
  const isAfterFailure = before.applying !== null || before.applied?.outcome !== "in_force";
  const repairedAt = repaired || isAfterFailure ? at : inForce.repairedAt;
  return { ...record, inForce: { ...inForce, revision, repairedAt } };
}

function withRevision(record: PlaneRecord, revision: Revision): PlaneRecord {
  const { applied, inForce } = record;
  if (applied === null || applied.revision === revision) return record;
  return { ...record, applied: { ...applied, revision }, inForce: inForce && { ...inForce, revision } };
}

/** Differences that no attempt of ours has made: from each state that may be there after an attempt without an end. */
async function findDrift({ context, plane, desired, stateOf }: PlaneStep, record: PlaneRecord) {
  const { state, clock, reporter } = context;
  const marks = [record.inForce, record.applied, record.applying].filter((mark) => mark !== null);
  const candidates = new Map(marks.map(({ digest, revision }) => [digest, revision] as const));
  if (candidates.size === 0) return undefined;
  const at = timestamp(clock.now());
  try {
    let found: readonly Drift[] | undefined;
    for (const [digest, revision] of candidates) {
      const meant = digest === desired.planes[plane].digest ? desired : await stateOf(revision);
      if (meant === undefined) continue;
      const drift = await context.planes[plane].drift(desiredPlane(meant, plane));
      const isThere = ({ subject, found }: Drift) =>
        drift.some((other) => other.subject === subject && other.found === found);
      found = found?.filter(isThere) ?? drift;
    }
    found = found && notNamed(found, record.applied?.outOfReach ?? []);
    for (const drift of found ?? []) {
      const record = keepDrift(state, plane, drift, desired.revision, at);
      reporter.event({ event: "drift", record });
    }
    if (found !== undefined) return { drift: found, check: { succeededAt: at, differences: found.length } };
  } catch (error) {
    // The attempt to apply will say more; until then the plane does not count as free of drift.
    reporter.event({ event: "drift_unknown", plane, code: codeOf(error) });
  }
  const succeededAt = record.driftCheck?.succeededAt ?? null;
  return { drift: undefined, check: { succeededAt, differences: null } };
}

async function apply({ context, plane, desired }: PlaneStep, attempts: number) {
  const { clock, reporter } = context;
  const { revision } = desired;
  const { digest } = desired.planes[plane];
  reporter.event({ event: "plane_begun", plane, revision });
  const begun = clock.now();
  const { outcome, hint } = await attempt(context, plane, desired);
  const now = clock.now();
  const askedMs = outcome.state === "deferred" ? outcome.retryAfterMs : 0;
  const retryMs = outcome.state === "in_force" ? null : backoffMs(BACKOFF[outcome.state], attempts, askedMs);
  const ended = {
    ...{ revision, digest, outcome: outcome.state },
    reason: "reason" in outcome ? outcome.reason : null,
    outOfReach: outcome.state === "incomplete" ? [...outcome.outOfReach] : [],
    retryAt: retryMs === null ? null : timestamp(now + retryMs),
  };
  const changed = "changed" in outcome && outcome.changed;
  reporter.event({ event: "plane_ended", plane, ...ended, changed, hint, durationMs: now - begun });
  const applied: Applied = { ...ended, at: timestamp(now), firstAt: null, attempts };
  return { applied, changed };
}

async function attempt({ planes, reporter }: Federation, plane: PlaneName, desired: DesiredState) {
  try {
    const note = (text: string) => reporter.note(plane, text);
    return { outcome: await planes[plane].apply(desiredPlane(desired, plane), note), hint: null };
  } catch (error) {
    reporter.note(plane, error instanceof Error ? error.message : "failed");
    const hint = error instanceof DrawbridgeError ? (error.hint ?? null) : null;
    return { outcome: { state: "failed", reason: codeOf(error) }, hint } as const;
  }
}

function codeOf(error: unknown): string {
  return error instanceof DrawbridgeError ? error.code : "internal";
}
