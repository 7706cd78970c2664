// One plane brought to what one revision wants. Invariants: nobody else works on the plane meanwhile; what is
// about to be applied is recorded before, and what was reached is recorded after, so that a kill at any
// instant leads to the same end; what somebody changed by hand is kept and told before it is put right.

import { DrawbridgeError } from "../../domain/errors.ts";
import { type Backoff, backoffMs } from "../../runtime/backoff.ts";
import type { PlaneName } from "../plane-order.ts";
import type { Drift, PlaneOutcome, PlaneRuntime } from "../planes/plane.ts";
import type { Revision } from "../repository/repository.ts";
import { keepDrift } from "../state/drift-records.ts";
import type { StateFolder } from "../state/folder.ts";
import { type Applied, type PlaneRecord, readHead, readPlane, writePlane } from "../state/records.ts";
import { type ReconcileContext, SERVICE_LOCK, timestamp } from "./context.ts";
import { type DesiredState, desiredPlane } from "./desired-state.ts";
import type { LockHolder } from "./events.ts";

const BACKOFF: Readonly<Record<"failed" | "incomplete" | "deferred", Backoff>> = {
  failed: { firstMs: 5_000, maxMs: 300_000 },
  incomplete: { firstMs: 30_000, maxMs: 600_000 },
  deferred: { firstMs: 1_000, maxMs: 60_000 },
};

/**
 * Planes whose drift is looked at even before a new revision is applied. Not the rooms: looking at every room
 * takes as long as closing it, and its apply reads each room anyway.
 */
const LOOKED_AT_FIRST: ReadonlySet<PlaneName> = new Set(["gateway", "card", "border", "transport"]);

export interface StepOptions {
  /** Tries again what was left, whether it is time or not, and takes nothing for in force that was not looked at. */
  readonly force: boolean;
  /** Applies also what is in force. */
  readonly again?: boolean;
  readonly lookForDrift: boolean;
  /** The desired state of an older revision, for what may still stand there; undefined when it is gone. */
  readonly stateOf: (revision: Revision) => Promise<DesiredState | undefined>;
}

export interface StepResult {
  /** `superseded`: another process has taken up a newer revision. `waiting`: it is not time to try again. */
  readonly step: "applied" | "current" | "waiting" | "superseded";
  /** Nothing is said of a revision that is superseded. */
  readonly record: PlaneRecord;
  /** Differences found and kept in this step. */
  readonly drift: number;
  readonly changed: boolean;
}

export async function stepPlane(
  context: ReconcileContext,
  runtime: PlaneRuntime,
  desired: DesiredState,
  options: StepOptions,
): Promise<StepResult> {
  const { state, clock, reporter } = context;
  const plane = runtime.name;
  const name = `plane ${plane}`;
  const lock = await state.lock(name, clock, async () =>
    reporter.event({ event: "plane_waits", plane, holder: await holderOf(state, name) }),
  );
  try {
    const record = readPlane(state, plane, (file) => reporter.event({ event: "state_damaged", file }));
    if (readHead(state).accepted?.revision !== desired.revision) {
      // What is recorded is about another revision, and says nothing about this one.
      const unsaid = { ...record, applied: null, inForce: null };
      return { step: "superseded", record: unsaid, drift: 0, changed: false };
    }
    return await stepLocked(context, runtime, desired, record, options);
  } finally {
    await lock.release();
  }
}

/** By process IDs: the service holds a lock of its own as long as it runs. */
async function holderOf(state: StateFolder, lock: string): Promise<LockHolder> {
  const [holder, service] = await Promise.all([state.lockHolder(lock), state.lockHolder(SERVICE_LOCK)]);
  if (holder === undefined) return "unknown";
  return holder === service ? "reconciler" : "command";
}

async function stepLocked(
  context: ReconcileContext,
  runtime: PlaneRuntime,
  desired: DesiredState,
  record: PlaneRecord,
  options: StepOptions,
): Promise<StepResult> {
  const { state, clock } = context;
  const plane = runtime.name;
  const { digest } = desired.planes[plane];
  const settled = record.applying === null && record.applied?.digest === digest;
  const inForce = settled && record.applied?.outcome === "in_force";
  const { force, again = false } = options;
  const looks = options.lookForDrift || (settled ? force && !again : LOOKED_AT_FIRST.has(plane));
  const looked = looks ? await look(context, runtime, desired, record, options) : undefined;
  const drift = looked?.drift?.length ?? 0;
  const known: PlaneRecord = looked === undefined ? record : { ...record, looked: looked.mark };

  const isUnseen = force && looked !== undefined && looked.drift === undefined;
  if (inForce && drift === 0 && !isUnseen && !again) {
    const current = known.applied === null ? known : withRevision(known, desired.revision);
    if (current !== record) writePlane(state, current);
    return { step: "current", record: current, drift, changed: false };
  }
  const retryAt = settled ? (known.applied?.retryAt ?? null) : null;
  if (!force && drift === 0 && retryAt !== null && clock.now() < Date.parse(retryAt)) {
    if (known !== record) writePlane(state, known);
    return { step: "waiting", record: known, drift, changed: false };
  }
  const mark = { revision: desired.revision, digest, at: timestamp(clock.now()) };
  writePlane(state, { ...known, applying: mark });
  const attempts = settled && !inForce ? (known.applied?.attempts ?? 0) + 1 : 0;
  const { applied, changed } = await apply(context, runtime, desired, digest, attempts);
  const after = afterAttempt(known, applied, changed || drift > 0);
  writePlane(state, after);
  return { step: "applied", record: after, drift, changed };
}

/**
 * What is remembered behind an attempt: one more at the state that stood there does not make it younger.
 * @param repaired whether something stood there otherwise: it was found so, or this attempt has changed it
 */
function afterAttempt(before: PlaneRecord, applied: Applied, repaired: boolean): PlaneRecord {
  const { revision, digest, at } = applied;
  // Not where another state was tried in between, whether or not that attempt is known to have ended.
  const isSame =
    before.applied?.digest === digest && (before.applying === null || before.applying.digest === digest);
  const firstAt = isSame ? (before.applied?.firstAt ?? at) : at;
  const isStanding = before.inForce?.digest === digest && before.inForce.at >= firstAt;
  const standing = isSame && isStanding ? before.inForce : null;
  // What an attempt has changed that did not end in force, the next one finds in its place already.
  const isAfterFailure = before.applying !== null || before.applied?.outcome !== "in_force";
  return {
    ...before,
    applying: null,
    applied: { ...applied, firstAt },
    inForce:
      applied.outcome !== "in_force"
        ? before.inForce
        : standing === null
          ? { revision, digest, at, repairedAt: null }
          : {
              revision,
              digest,
              at: standing.at,
              repairedAt: repaired || isAfterFailure ? at : standing.repairedAt,
            },
  };
}

/** The same files in a newer revision: nothing to do on the real parts. */
function withRevision(record: PlaneRecord, revision: Revision): PlaneRecord {
  if (record.applied === null || record.applied.revision === revision) return record;
  return {
    ...record,
    applied: { ...record.applied, revision },
    inForce: record.inForce === null ? null : { ...record.inForce, revision },
  };
}

/**
 * What stands on the real parts that no attempt of ours has put there: after an attempt that ended nobody
 * knows how, it must differ from what stood before as well as from what was being applied.
 */
async function look(
  context: ReconcileContext,
  runtime: PlaneRuntime,
  desired: DesiredState,
  record: PlaneRecord,
  options: StepOptions,
): Promise<{ drift: readonly Drift[] | undefined; mark: PlaneRecord["looked"] } | undefined> {
  const { state, clock, reporter } = context;
  const candidates = new Map(
    [record.inForce, record.applied, record.applying].flatMap((mark) =>
      mark === null ? [] : [[mark.digest, mark.revision] as const],
    ),
  );
  if (candidates.size === 0) return undefined;
  const plane = runtime.name;
  const at = timestamp(clock.now());
  try {
    let found: readonly Drift[] | undefined;
    for (const [digest, revision] of candidates) {
      const meant = digest === desired.planes[plane].digest ? desired : await options.stateOf(revision);
      if (meant === undefined) continue;
      const drift = await runtime.drift(desiredPlane(meant, plane));
      found =
        found?.filter((one) =>
          drift.some((other) => other.subject === one.subject && other.found === one.found),
        ) ?? drift;
    }
    for (const drift of found ?? []) {
      const record = keepDrift(state, drift, desired.revision, at);
      reporter.event({ event: "drift", record });
    }
    return { drift: found, mark: { at, drift: found?.length ?? null } };
  } catch (error) {
    // It cannot be looked at now; the attempt to apply will tell more, and nothing is taken as clean.
    reporter.event({ event: "drift_unknown", plane, code: codeOf(error) });
    return { drift: undefined, mark: { at, drift: null } };
  }
}

async function apply(
  context: ReconcileContext,
  runtime: PlaneRuntime,
  desired: DesiredState,
  digest: string,
  attempts: number,
): Promise<{ applied: Applied; changed: boolean }> {
  const { clock, reporter } = context;
  const { name: plane } = runtime;
  const { revision } = desired;
  reporter.event({ event: "plane_begun", plane, revision });
  const begun = clock.now();
  const { outcome, hint } = await attempt(runtime, desired, reporter);
  const now = clock.now();
  const askedMs = outcome.state === "deferred" ? outcome.retryAfterMs : 0;
  const applied: Applied = {
    revision,
    digest,
    at: timestamp(now),
    firstAt: null,
    outcome: outcome.state,
    reason: "reason" in outcome ? outcome.reason : null,
    outOfReach: outcome.state === "incomplete" ? [...outcome.outOfReach] : [],
    attempts,
    retryAt:
      outcome.state === "in_force"
        ? null
        : timestamp(now + backoffMs(BACKOFF[outcome.state], attempts, askedMs)),
  };
  const changed = "changed" in outcome && outcome.changed;
  const { outOfReach, retryAt, reason } = applied;
  reporter.event({
    ...{ event: "plane_ended", plane, revision, digest, outcome: outcome.state, changed },
    ...{ reason, hint, outOfReach, retryAt, durationMs: now - begun },
  });
  return { applied, changed };
}

type Attempted = PlaneOutcome | { readonly state: "failed"; readonly reason: string };

async function attempt(
  runtime: PlaneRuntime,
  desired: DesiredState,
  reporter: ReconcileContext["reporter"],
): Promise<{ outcome: Attempted; hint: string | null }> {
  try {
    const progress = { note: (text: string) => reporter.note(runtime.name, text) };
    return { outcome: await runtime.apply(desiredPlane(desired, runtime.name), progress), hint: null };
  } catch (error) {
    reporter.note(runtime.name, error instanceof Error ? error.message : "failed");
    const hint = error instanceof DrawbridgeError ? (error.hint ?? null) : null;
    return { outcome: { state: "failed", reason: codeOf(error) }, hint };
  }
}

function codeOf(error: unknown): string {
  return error instanceof DrawbridgeError ? error.code : "internal";
}
