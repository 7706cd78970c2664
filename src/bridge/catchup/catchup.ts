// The catchup: reads what the homeserver's transactions lost (docs/decisions/0009), at the bridge's start, after the
// homeserver was away, and in quiet times to move the positions.
// Invariants: transactions stay the one live path; what a catchup finds goes through the same intake, before the
// transactions that come meanwhile, which wait for it within a bound.
import type { Clock } from "../../domain/clock.ts";
import { errorName } from "../../domain/errors.ts";
import type { GhostMxid } from "../../domain/identifiers.ts";
import { backoffMs } from "../../runtime/backoff.ts";
import { resultWithin } from "../../runtime/concurrency.ts";
import { WorkLoop } from "../../runtime/work-loop.ts";
import type { AgentDirectory } from "../agents/loaded-agents.ts";
import type { Ghosts } from "../matrix/ghosts.ts";
import type { HomeserverOptions } from "../matrix/http.ts";
import type { Failure, Outcome } from "../matrix/request-result.ts";
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
  /** Of a ghost's to-device messages; absent while ghosts have no keys. */
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

export class Catchup {
  readonly #options: CatchupOptions;
  readonly #api: SyncApi;
  readonly #rooms: ReturnType<typeof createRoomCatchup>;
  readonly #watch: HomeserverWatch;
  readonly #quiet: WorkLoop;
  readonly #ending = new AbortController();
  /** Until it is resolved transactions wait, within a bound. */
  #gate = Promise.withResolvers<void>();
  #passed: Promise<unknown> | undefined;
  #running: Promise<void> | undefined;
  /** When transactions last waited for a catchup to its end; undefined while one is due. */
  #caughtUpAt: number | undefined;
  #quietAt = 0;

  constructor(options: CatchupOptions) {
    const { clock, quietMs = QUIET_MS } = options;
    this.#options = options;
    this.#api = new SyncApi(options.homeserver);
    this.#rooms = createRoomCatchup({ ...options, api: this.#api });
    this.#watch = new HomeserverWatch({ ...options, api: this.#api });
    const aftermathMs = Math.min(AFTERMATH_ROUND_MS, quietMs);
    this.#quiet = new WorkLoop({
      clock,
      round: (signal) =>
        this.#quietRound(aftermathMs, quietMs, AbortSignal.any([signal, this.#ending.signal])),
      onError: (error) => this.#noteFailure(error),
      pollIntervalMs: aftermathMs,
    });
  }

  start(): void {
    const { rooms, catchup } = this.#options;
    if (!rooms && catchup === undefined) {
      this.#gate.resolve();
      return;
    }
    this.#running ??= this.#run();
    if (rooms) this.#quiet.start();
  }

  async drain(): Promise<void> {
    this.#ending.abort();
    this.#gate.resolve();
    await Promise.all([this.#api.close(), this.#quiet.drain(), this.#running]);
  }

  async ready(): Promise<void> {
    // The first that waits sets the bound for all.
    this.#passed ??= resultWithin(this.#options.clock, GATE_MS_MAX, this.#gate.promise);
    await this.#passed;
  }

  async #run(): Promise<void> {
    const { signal } = this.#ending;
    let cause: CatchupCause = "start";
    while (!signal.aborted) {
      try {
        await this.#untilStopped(cause);
        cause = "homeserver_back";
      } catch (error) {
        if (signal.aborted) return;
        this.#noteFailure(error);
        await this.#options.clock.sleep(AGAIN.firstMs, signal).catch(() => undefined);
      }
    }
  }

  async #untilStopped(cause: CatchupCause): Promise<void> {
    const { clock, log, metrics } = this.#options;
    const { signal } = this.#ending;
    await this.#watch.back(signal);
    metrics.homeserverUp(true);
    await this.#catchUp(cause);
    this.#gate.resolve();
    this.#caughtUpAt = this.#quietAt = clock.now();
    this.#quiet.wake();
    let ghosts = await this.#ghosts();
    for (; ghosts.length === 0; ghosts = await this.#ghosts()) await clock.sleep(NO_GHOST_MS, signal);
    await this.#watch.stopped(ghosts, signal);
    this.#gate = Promise.withResolvers();
    this.#passed = undefined;
    this.#caughtUpAt = undefined;
    metrics.homeserverUp(false);
    log.warn({ event: "homeserver_away" }, "the homeserver has stopped, or is out of reach");
  }

  /** Runs the catchup until it is complete, a few times at most. */
  async #catchUp(cause: CatchupCause): Promise<void> {
    const { clock, rooms, catchup, metrics } = this.#options;
    const { signal } = this.#ending;
    for (let attempts = 0; attempts < ATTEMPTS_MAX; attempts++) {
      signal.throwIfAborted();
      try {
        const ghosts = await this.#ghosts();
        await Promise.allSettled(ghosts.map((ghost) => catchup?.(ghost, signal)));
        if (!rooms) return;
        const result = await this.#rooms.afterDowntime(ghosts, signal);
        metrics.catchup(cause, result);
        if (result.complete) return;
      } catch (error) {
        this.#noteFailure(error);
      }
      await clock.sleep(backoffMs(AGAIN, attempts), signal);
    }
  }

  async #quietRound(aftermathMs: number, quietMs: number, signal: AbortSignal): Promise<void> {
    const now = this.#options.clock.now();
    if (!this.#options.isTurn() || this.#caughtUpAt === undefined || now < this.#quietAt) return;
    const ghosts = await this.#ghosts();
    const intervalMs = now - this.#caughtUpAt < AFTERMATH_MS ? aftermathMs : quietMs;
    this.#quietAt = now + Math.max(intervalMs, ghosts.length * QUIET_MS_PER_GHOST);
    this.#options.metrics.catchup("quiet", await this.#rooms.quietly(ghosts, signal));
  }

  async #ghosts(): Promise<readonly GhostMxid[]> {
    return [...(await this.#options.agents.current()).byGhost.keys()].sort();
  }

  #noteFailure(error: unknown): void {
    const { log, metrics } = this.#options;
    metrics.failed();
    // A database error's message may hold a row's values.
    log.warn({ err: errorName(error) }, "the catchup failed");
  }
}

export interface HomeserverWatchOptions {
  readonly api: Pick<SyncApi, "position" | "wait" | "isServing">;
  readonly ghosts: Pick<Ghosts, "readyGhost">;
  readonly clock: Clock;
}

const PAUSE_MS = 100;
const BACK_POLL = { firstMs: 100, maxMs: 500 };
/** After a refusal, or an answer that asks to wait: neither means that the homeserver stopped. */
const REFUSED_PAUSE_MS = 5_000;

/**
 * Detects that the homeserver has stopped, and when it is back. A request is always held open while it counts as up, but for
 * a pause far shorter than any start of a homeserver; so every stop is detected, however short.
 */
export class HomeserverWatch {
  readonly #options: HomeserverWatchOptions;

  constructor(options: HomeserverWatchOptions) {
    this.#options = options;
  }

  /**
   * Resolves when the homeserver has stopped, or may have, by a request held open as the first ghost that is not refused.
   * @throws the signal's reason
   */
  async stopped(ghosts: readonly GhostMxid[], signal: AbortSignal): Promise<void> {
    const { api, clock } = this.#options;
    let since: string | undefined;
    for (let refusals = 0; ; ) {
      signal.throwIfAborted();
      const ghost = ghosts[refusals % ghosts.length];
      if (ghost === undefined) throw new TypeError("there is no ghost to watch as");
      const ready = await this.#options.ghosts.readyGhost(ghost, signal);
      const reader = { ghost, signal };
      let outcome: Outcome<string>;
      if (ready.kind !== "ok") outcome = ready;
      else if (since === undefined) outcome = await api.position(reader);
      else outcome = await api.wait(reader, since);
      if (outcome.kind === "ok") {
        const isFirst = since === undefined;
        since = outcome.value;
        if (!isFirst) await clock.sleep(PAUSE_MS, signal);
      } else if (meansStopped(outcome)) {
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
  async back(signal: AbortSignal): Promise<void> {
    const { api, clock } = this.#options;
    for (let attempts = 0; !(await api.isServing()); attempts++) {
      await clock.sleep(backoffMs(BACK_POLL, attempts), signal);
    }
  }
}

function meansStopped(outcome: Failure): boolean {
  if (outcome.kind === "refused") return false;
  return ["network", "timeout", "server_error", "malformed"].includes(outcome.cause);
}
