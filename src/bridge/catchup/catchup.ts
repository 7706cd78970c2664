// The catchup: reads what the homeserver's transactions lost (docs/decisions/0009), at the bridge's start, after the
// homeserver was away, and in quiet times to move the positions. Invariants: transactions stay the one live path; what a
// catchup finds goes through the same intake, before the transactions that come meanwhile, which wait for it within a bound.
import type { Clock } from "../../domain/clock.ts";
import { errorName } from "../../domain/errors.ts";
import type { GhostMxid } from "../../domain/identifiers.ts";
import { backoffMs } from "../../runtime/backoff.ts";
import { resultWithin } from "../../runtime/concurrency.ts";
import { WorkLoop } from "../../runtime/work-loop.ts";
import type { AgentDirectory } from "../agents/loaded-agents.ts";
import type { HomeserverOptions } from "../matrix/http.ts";
import type { RetryCause } from "../matrix/request-result.ts";
import { createRoomCatchup, type RoomCatchupOptions, type RoomCatchupResult } from "./room-catchup.ts";
import { SyncApi } from "./sync-api.ts";

export type CatchupCause = "start" | "homeserver_back" | "quiet";

export interface CatchupMetrics {
  homeserverUp(isUp: boolean): void;
  catchup(cause: CatchupCause, result: RoomCatchupResult): void;
  failed(): void;
}

export interface CatchupOptions extends Omit<RoomCatchupOptions, "api" | "bounds"> {
  readonly homeserver: HomeserverOptions;
  readonly agents: Pick<AgentDirectory, "current">;
  readonly rooms: boolean;
  /** Whether the rounds in quiet times are this process's. After a downtime each process reads. */
  readonly isTurn: () => boolean;
  readonly catchup?: ((ghost: GhostMxid, signal: AbortSignal) => Promise<unknown>) | undefined;
  readonly clock: Clock;
  readonly metrics: CatchupMetrics;
  readonly quietMs?: number;
}

const QUIET_MS = 60_000;
/** Synapse may count the bridge as down for a while, and send new events last. */
const AFTERMATH_MS = 60_000;
const AFTERMATH_ROUND_MS = 5_000;
/** A homeserver takes some 10 ms to answer for each. */
const QUIET_MS_PER_GHOST = 500;
const GATE_MS_MAX = 5_000;
const AGAIN = { firstMs: 250, maxMs: 8_000 };
/** What cannot be read by then is left to the rounds in quiet times. */
const ATTEMPTS_MAX = 7;
const NO_GHOST_MS = 5_000;

export function createCatchup(options: CatchupOptions) {
  const { agents, rooms, isTurn, catchup, clock, log, metrics, quietMs = QUIET_MS } = options;
  const api = new SyncApi(options.homeserver);
  const watched = { ...options, api };
  const roomCatchup = createRoomCatchup({ ...options, api });
  const aftermathMs = Math.min(AFTERMATH_ROUND_MS, quietMs);
  const quiet = new WorkLoop({ clock, round: quietRound, onError: noteFailure, pollIntervalMs: aftermathMs });
  const ending = new AbortController();
  const { signal } = ending;
  /** Until it is resolved transactions wait, within a bound. */
  let gate = Promise.withResolvers<void>();
  let passed: Promise<unknown> | undefined;
  let running: Promise<void> | undefined;
  /** When transactions last waited for a catchup to its end; undefined while one is due. */
  let caughtUpAt: number | undefined;
  let quietAt = 0;

  function start(): void {
    // Where nothing is caught up the homeserver is watched all the same: the metrics say whether it answers.
    if (!rooms && catchup === undefined) gate.resolve();
    running ??= run();
    if (rooms) quiet.start();
  }

  async function drain(): Promise<void> {
    ending.abort();
    gate.resolve();
    await Promise.all([api.close(), quiet.drain(), running]);
  }

  async function ready(): Promise<void> {
    // The first that waits sets the bound for all.
    passed ??= resultWithin(clock, GATE_MS_MAX, gate.promise);
    await passed;
  }

  async function run(): Promise<void> {
    let cause: CatchupCause = "start";
    while (!signal.aborted) {
      try {
        await runUntilStopped(cause);
        cause = "homeserver_back";
      } catch (error) {
        if (signal.aborted) return;
        noteFailure(error);
        await clock.sleep(AGAIN.firstMs, signal).catch(() => undefined);
      }
    }
  }

  async function runUntilStopped(cause: CatchupCause): Promise<void> {
    await untilServing(watched, signal);
    metrics.homeserverUp(true);
    await catchUp(cause);
    gate.resolve();
    caughtUpAt = quietAt = clock.now();
    quiet.wake();
    let ghosts = await currentGhosts();
    for (; ghosts.length === 0; ghosts = await currentGhosts()) await clock.sleep(NO_GHOST_MS, signal);
    await untilStopped(watched, ghosts, signal);
    gate = Promise.withResolvers();
    passed = undefined;
    caughtUpAt = undefined;
    metrics.homeserverUp(false);
    log.warn({ event: "homeserver_away" }, "the homeserver has stopped, or is out of reach");
  }

  async function catchUp(cause: CatchupCause): Promise<void> {
    for (let attempts = 0; attempts < ATTEMPTS_MAX; attempts++) {
      signal.throwIfAborted();
      try {
        const ghosts = await currentGhosts();
        await catchUpKeys(ghosts);
        if (!rooms) return;
        const result = await roomCatchup.afterDowntime(ghosts, signal);
        metrics.catchup(cause, result);
        if (result.complete) return;
      } catch (error) {
        noteFailure(error);
      }
      await clock.sleep(backoffMs(AGAIN, attempts), signal);
    }
  }

  async function catchUpKeys(ghosts: readonly GhostMxid[]): Promise<void> {
    const ended = await Promise.allSettled(ghosts.map((ghost) => catchup?.(ghost, signal)));
    const failed = ended.filter(({ status }) => status === "rejected").length;
    if (failed > 0)
      log.warn({ ghosts: failed }, "the catchup of keys failed; intake envelopes that wait start it again");
  }

  async function quietRound(round: AbortSignal): Promise<void> {
    const now = clock.now();
    if (!isTurn() || caughtUpAt === undefined || now < quietAt) return;
    const ghosts = await currentGhosts();
    const intervalMs = now - caughtUpAt < AFTERMATH_MS ? aftermathMs : quietMs;
    quietAt = now + Math.max(intervalMs, ghosts.length * QUIET_MS_PER_GHOST);
    metrics.catchup("quiet", await roomCatchup.quietly(ghosts, AbortSignal.any([round, signal])));
  }

  async function currentGhosts(): Promise<readonly GhostMxid[]> {
    return [...(await agents.current()).byGhost.keys()].sort();
  }

  function noteFailure(error: unknown): void {
    metrics.failed();
    // A database error's message may hold a row's values.
    log.warn({ err: errorName(error) }, "the catchup failed");
  }

  return { start, drain, ready };
}

export interface WatchOptions extends Pick<CatchupOptions, "ghosts" | "clock"> {
  readonly api: Pick<SyncApi, "position" | "wait" | "isServing">;
}

const PAUSE_MS = 100;
const CAUSES_OF_STOP: ReadonlySet<RetryCause> = new Set(["network", "timeout", "server_error", "malformed"]);
const BACK_POLL = { firstMs: 100, maxMs: 500 };
/** After a refusal, or an answer that asks to wait: neither means that the homeserver stopped. */
const REFUSED_PAUSE_MS = 5_000;

// The request is held open but for a pause far shorter than any start of a homeserver, so every stop is detected.
/** Resolves when a request held open as the first ghost that is not refused shows a stop. @throws the signal's reason */
export async function untilStopped(
  { api, ghosts, clock }: WatchOptions,
  among: readonly GhostMxid[],
  signal: AbortSignal,
): Promise<void> {
  let since: string | undefined;
  for (let refusals = 0; ; ) {
    signal.throwIfAborted();
    const ghost = among[refusals % among.length];
    if (ghost === undefined) throw new TypeError("there is no ghost to watch as");
    const ready = await ghosts.readyGhost(ghost, signal);
    const reader = { ghost, signal };
    const ask = () => (since === undefined ? api.position(reader) : api.wait(reader, since));
    const outcome = ready.kind === "ok" ? await ask() : ready;
    if (outcome.kind === "ok") {
      const isFirst = since === undefined;
      since = outcome.value;
      if (!isFirst) await clock.sleep(PAUSE_MS, signal);
    } else if (outcome.kind === "retry" && CAUSES_OF_STOP.has(outcome.cause)) {
      signal.throwIfAborted();
      return;
    } else {
      since = undefined;
      refusals += 1;
      await clock.sleep(REFUSED_PAUSE_MS, signal);
    }
  }
}

/** Resolves when the homeserver serves. @throws the signal's reason */
export async function untilServing({ api, clock }: Omit<WatchOptions, "ghosts">, signal: AbortSignal) {
  for (let attempts = 0; !(await api.isServing()); attempts++) {
    await clock.sleep(backoffMs(BACK_POLL, attempts), signal);
  }
}
