// The catchup: reads what the homeserver's transactions lost (docs/decisions/0009), at the bridge's start, after the
// homeserver was away, and in quiet times to move the positions.
// Invariants: transactions stay the one live path; the events of a catchup go through the same intake, before the
// transactions that come meanwhile, which wait for the catchup within a bound.
import type { Logger } from "pino";
import type { Clock } from "../../domain/clock.ts";
import type { EventId, GhostMxid } from "../../domain/identifiers.ts";
import { backoffMs } from "../../runtime/backoff.ts";
import { WorkLoop } from "../../runtime/work-loop.ts";
import type { AgentDirectory } from "../agents/directory.ts";
import type { ReadPositions } from "../ledger/ghosts.ts";
import type { Ghosts } from "../matrix/ghosts.ts";
import type { HomeserverOptions } from "../matrix/http.ts";
import { HandledEvents } from "./found-events.ts";
import { HomeserverWatch } from "./homeserver-watch.ts";
import { RoomCatchup, type RoomCatchupOptions, type RoomCatchupResult } from "./room-catchup.ts";
import { SyncApi } from "./sync-api.ts";

/** Why a catchup ran. */
export type CatchupCause = "start" | "homeserver_back" | "quiet";

export interface CatchupMetrics {
  homeserverUp(isUp: boolean): void;
  catchup(cause: CatchupCause, result: RoomCatchupResult, durationMs: number): void;
  failed(): void;
}

export interface CatchupOptions {
  readonly homeserver: HomeserverOptions;
  readonly ghosts: Pick<Ghosts, "readyGhost">;
  readonly agents: Pick<AgentDirectory, "current">;
  readonly positions: ReadPositions;
  readonly intake: RoomCatchupOptions["intake"];
  readonly catchupRoomState: RoomCatchupOptions["catchupRoomState"];
  /** Whether there is a catchup of rooms. */
  readonly rooms: boolean;
  /** The catchup of a ghost's to-device messages; absent while ghosts have no keys. */
  readonly catchup?: (ghost: GhostMxid, signal: AbortSignal) => Promise<unknown>;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: CatchupMetrics;
  /** The interval of the rounds in quiet times. */
  readonly quietMs?: number;
}

export interface Catchup {
  start(): void;
  drain(): Promise<void>;
  /**
   * Resolves when transactions may be taken: at once, unless a catchup runs whose events come before them; then when that
   * has ended, five seconds after the first transaction came at the latest.
   */
  ready(): Promise<void>;
  /** To be called with the events of each committed transaction. */
  handled(events: Iterable<EventId>): void;
}

const QUIET_MS = 60_000;
/**
 * After a stop Synapse may count the bridge as down, and send new events only after everything that was left undelivered.
 * For a minute the rounds are closer together.
 */
const AFTERMATH_MS = 60_000;
const AFTERMATH_ROUND_MS = 5_000;
/** The more ghosts, the longer the interval: a homeserver takes some 10 ms to answer for each. */
const QUIET_MS_PER_GHOST = 500;
const GATE_MS_MAX = 5_000;
const AGAIN = { firstMs: 250, maxMs: 8_000 };
/** About a quarter of a minute. What cannot be read by then is left to the rounds in quiet times. */
const ATTEMPTS_MAX = 7;
const NO_GHOST_MS = 5_000;

/** While it is shut, transactions wait, but no longer than the bound in all. */
class Gate {
  readonly #clock: Clock;
  #opening = new AbortController();
  #isOpen = false;
  #waited: Promise<void> | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  shut(): void {
    if (!this.#isOpen) return;
    this.#opening = new AbortController();
    this.#waited = undefined;
    this.#isOpen = false;
  }

  open(): void {
    this.#isOpen = true;
    this.#opening.abort();
  }

  async passed(): Promise<void> {
    if (this.#isOpen) return;
    // The first that waits sets the bound for all.
    this.#waited ??= this.#clock.sleep(GATE_MS_MAX, this.#opening.signal).catch(() => undefined);
    await this.#waited;
  }
}

export function createCatchup(options: CatchupOptions): Catchup {
  const { agents, clock, log, metrics } = options;
  const api = new SyncApi(options.homeserver);
  const handled = new HandledEvents();
  const rooms = new RoomCatchup({ ...options, api, handled });
  const watch = new HomeserverWatch({ ...options, api });
  const gate = new Gate(clock);
  const ending = new AbortController();
  let running: Promise<void> | undefined;
  /** When the last catchup that transactions waited for ended; undefined while one is due. */
  let caughtUpAt: number | undefined;
  let quietAt = 0;

  const ghostsNow = async () => [...(await agents.current()).byGhost.keys()].sort();

  const keys = async (ghosts: readonly GhostMxid[]) => {
    const { catchup } = options;
    if (catchup === undefined) return;
    const ended = await Promise.allSettled(ghosts.map((ghost) => catchup(ghost, ending.signal)));
    const failed = ended.filter(({ status }) => status === "rejected").length;
    if (failed > 0)
      log.warn({ ghosts: failed }, "the catchup of keys failed; intake envelopes that wait start it again");
  };

  const timed = async (cause: CatchupCause, read: () => Promise<RoomCatchupResult>) => {
    const begun = clock.now();
    const result = await read();
    metrics.catchup(cause, result, clock.now() - begun);
    return result;
  };

  const noteFailure = (error: unknown) => {
    metrics.failed();
    // A database error's message may hold a row's values.
    log.warn({ err: error instanceof Error ? error.name : "unknown" }, "the catchup failed");
  };

  /** Runs the catchup until it is complete, a few times at most. Later rounds read from positions that did not move. */
  const catchUpAll = async (cause: CatchupCause) => {
    for (let attempts = 0; attempts < ATTEMPTS_MAX; attempts++) {
      ending.signal.throwIfAborted();
      try {
        const ghosts = await ghostsNow();
        await keys(ghosts);
        if (!options.rooms) return;
        const { complete } = await timed(cause, () => rooms.afterDowntime(ghosts, ending.signal));
        if (complete) return;
      } catch (error) {
        noteFailure(error);
      }
      await clock.sleep(backoffMs(AGAIN, attempts), ending.signal);
    }
  };

  const ghostsToWatch = async () => {
    for (;;) {
      const ghosts = await ghostsNow();
      if (ghosts.length > 0) return ghosts;
      await clock.sleep(NO_GHOST_MS, ending.signal);
    }
  };

  const untilStopped = async (cause: CatchupCause) => {
    await watch.back(ending.signal);
    metrics.homeserverUp(true);
    await catchUpAll(cause);
    gate.open();
    caughtUpAt = quietAt = clock.now();
    quiet.wake();
    await watch.stopped(await ghostsToWatch(), ending.signal);
    gate.shut();
    caughtUpAt = undefined;
    metrics.homeserverUp(false);
    log.warn({ event: "homeserver_away" }, "the homeserver has stopped, or is out of reach");
  };

  const run = async () => {
    let cause: CatchupCause = "start";
    while (!ending.signal.aborted) {
      try {
        await untilStopped(cause);
        cause = "homeserver_back";
      } catch (error) {
        if (ending.signal.aborted) return;
        noteFailure(error);
        await clock.sleep(AGAIN.firstMs, ending.signal).catch(() => undefined);
      }
    }
  };

  const quietMs = options.quietMs ?? QUIET_MS;
  const roundMs = Math.min(AFTERMATH_ROUND_MS, quietMs);
  const quiet = new WorkLoop({
    clock,
    round: async (signal) => {
      const now = clock.now();
      if (caughtUpAt !== undefined && now >= quietAt) {
        const ghosts = await ghostsNow();
        const intervalMs = now - caughtUpAt < AFTERMATH_MS ? roundMs : quietMs;
        quietAt = now + Math.max(intervalMs, ghosts.length * QUIET_MS_PER_GHOST);
        await timed("quiet", () => rooms.quietly(ghosts, AbortSignal.any([signal, ending.signal])));
      }
      return false;
    },
    onError: noteFailure,
    pollIntervalMs: roundMs,
  });

  return {
    start: () => {
      if (!options.rooms && options.catchup === undefined) {
        gate.open();
        return;
      }
      running ??= run();
      if (options.rooms) quiet.start();
    },
    drain: async () => {
      ending.abort();
      gate.open();
      await Promise.all([api.close(), quiet.drain(), running]);
    },
    ready: () => {
      watch.poll();
      return gate.passed();
    },
    handled: (events) => handled.add(events),
  };
}
