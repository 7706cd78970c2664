// Which of several bridges on one database leads. A ghost's device belongs to one process at a time, so that only the
// leader serves, unless encrypted rooms are refused: then bridges without devices lead side by side. A bridge that
// starts requests leadership; the leader before it hands over, drains, and becomes a standby.
// Invariants: no bridge serves without leadership; a bridge that died or hangs delays no successor by its leases; a
// standby requests nothing, and leads only after a vacancy; a release that repeatedly requests leadership and dies has
// to wait between its requests, so that the older bridge leads meanwhile; a bridge with no other beside it never waits.
import type { Logger } from "pino";
import type { Clock } from "../domain/clock.ts";
import { errorName } from "../domain/errors.ts";
import type { Backend, LeadershipConnection, LeadershipMode } from "./ledger/leadership.ts";

export interface LeadershipOptions {
  readonly open: () => Promise<LeadershipConnection>;
  readonly mode: LeadershipMode;
  /** How long the present leader may take to hand over, its drain included. */
  readonly handOverTimeoutMs: number;
  readonly clock: Clock;
  readonly log: Logger;
}

/** How a bridge becomes leader: by a request that makes the present leader hand over, or by waiting for a vacancy. */
export type Candidacy = "request" | "standby";

const REQUEST_POLL_MS = 100;
/** In mode `shared`, a request is made only after this time: the lock may be about to be downgraded. */
const SHARED_GRACE_MS = 2_000;
const WATCH_MS = 1_000;
/** How long there must be no leader before a standby leads. */
const VACANCY_MS = 10_000;
/** After so many requests without an established leader, further requests beside another bridge are postponed. */
const FAILED_REQUESTS_MAX = 3;
/** How long a request is postponed after the last one; doubled with each further failure, up to the maximum. */
const POSTPONE_MS = 60_000;
const POSTPONE_MS_MAX = 300_000;
/** A leader of so long is established. */
const ESTABLISHED_AFTER_MS = 60_000;
/** When recording that has failed, it is tried again after this time. */
const ESTABLISHED_RETRY_MS = 10_000;
/** How often, and after which pauses, a lost lock is acquired again: the lost connection may still hold it. */
const REACQUIRE_ATTEMPTS = 10;
const REACQUIRE_PAUSE_MS = 200;

export class Leadership {
  readonly #options: LeadershipOptions;
  readonly #handOver = new AbortController();
  readonly #resigned = new AbortController();
  #connection: LeadershipConnection | undefined;
  /** Lost connections of this process: the server may not have noticed yet that they ended. */
  #lostBackends: Backend[] = [];
  /** The last request that this leader knows of. A later one makes it hand over. */
  #knownRequest = 0n;
  /** When this leader will be established; undefined when it made no request, or has recorded it. */
  #establishedAt: number | undefined;
  #watching: Promise<void> | undefined;
  #isLeader = false;

  constructor(options: LeadershipOptions) {
    this.#options = options;
  }

  get isLeader(): boolean {
    return this.#isLeader;
  }

  /** Aborts when another bridge is to lead, or leads already. */
  get handOver(): AbortSignal {
    return this.#handOver.signal;
  }

  /**
   * Resolves when this bridge is leader; false when `stop` aborted before that.
   * @param canLead whether this bridge could serve, as far as it can know; until then it requests nothing from
   *   another bridge
   */
  async acquire(
    candidacy: Candidacy,
    stop: AbortSignal,
    canLead: () => boolean = () => true,
  ): Promise<boolean> {
    const { clock, log } = this.#options;
    const candidate =
      candidacy === "request"
        ? new Requester(this.#options, canLead)
        : new Standby(this.#options, VACANCY_MS);
    let pauseMs = 0;
    while (!stop.aborted) {
      try {
        this.#connection ??= await this.#options.open();
        const request = await candidate.step(this.#connection);
        if (request !== undefined) return this.#lead(request, candidate.ownsRequest);
        pauseMs = candidate.pollMs;
      } catch (error) {
        log.warn({ err: errorName(error) }, "the leadership state could not be read from the database");
        await this.#disconnect();
        pauseMs = WATCH_MS;
      }
      await clock.sleep(pauseMs, stop).catch(() => undefined);
    }
    return false;
  }

  #lead(request: bigint, ownsRequest: boolean): true {
    this.#knownRequest = request;
    // Only its own request can be established; a standby's number belongs to a bridge that has ended.
    if (ownsRequest) this.#establishedAt = this.#options.clock.now() + ESTABLISHED_AFTER_MS;
    this.#isLeader = true;
    this.#watching = this.#watch();
    return true;
  }

  /** Gives leadership up; a bridge that has requested it becomes leader at once. */
  async resign(): Promise<void> {
    this.#resigned.abort();
    await this.#watching;
    this.#isLeader = false;
    await this.#disconnect();
  }

  async #disconnect(): Promise<void> {
    const connection = this.#connection;
    this.#connection = undefined;
    await connection?.close();
  }

  /**
   * Watches for requests until this bridge resigns. It goes on while the bridge drains for a hand-over, because the
   * server ends a connection that is idle, and the drain needs the lock.
   */
  async #watch(): Promise<void> {
    const { clock, log } = this.#options;
    while (!this.#resigned.signal.aborted) {
      try {
        if (this.#connection?.broken.aborted) await this.#loseConnection();
        if (this.#connection === undefined && !this.#handOver.signal.aborted) await this.#reacquire();
        const request = await this.#connection?.lastRequest();
        if (request !== undefined && request > this.#knownRequest) this.#beginHandOver();
        await this.#recordEstablished();
      } catch (error) {
        log.warn({ err: errorName(error) }, "the leadership state could not be read from the database");
        // The next connection finds out whether the lock is still held.
        await this.#loseConnection();
      }
      await clock.sleep(WATCH_MS, this.#resigned.signal).catch(() => undefined);
    }
  }

  async #recordEstablished(): Promise<void> {
    const { clock, log } = this.#options;
    if (this.#establishedAt === undefined || clock.now() < this.#establishedAt) return;
    if (this.#connection === undefined || this.#handOver.signal.aborted) return;
    try {
      await this.#connection.recordEstablished(this.#knownRequest);
      this.#establishedAt = undefined;
    } catch (error) {
      // A read-only database refuses this update, and the lock is still held. A broken connection is noticed in #watch.
      log.warn({ err: errorName(error) }, "the established leader could not be recorded yet");
      this.#establishedAt = clock.now() + ESTABLISHED_RETRY_MS;
    }
  }

  #beginHandOver(): void {
    if (this.#handOver.signal.aborted) return;
    this.#options.log.warn({ event: "hands_over" }, "another bridge has requested leadership; handing over");
    this.#handOver.abort();
  }

  async #loseConnection(): Promise<void> {
    if (this.#connection !== undefined) this.#lostBackends.push(this.#connection.backend);
    await this.#disconnect();
  }

  async #reacquire(): Promise<void> {
    const { clock, mode, open } = this.#options;
    const connection = await open();
    this.#connection = connection;
    for (const backend of this.#lostBackends) await connection.terminate(backend);
    for (let attempt = 0; attempt < REACQUIRE_ATTEMPTS; attempt++) {
      if (await connection.acquire(mode)) {
        this.#lostBackends = [];
        return;
      }
      await clock.sleep(REACQUIRE_PAUSE_MS, this.#resigned.signal);
    }
    this.#beginHandOver();
  }
}

/** A bridge on its way to leadership: one step at a time, until a step returns the last known request. */
interface Candidate {
  readonly pollMs: number;
  /** Whether the returned request is its own. */
  readonly ownsRequest: boolean;
  step(connection: LeadershipConnection): Promise<bigint | undefined>;
}

/** Requests leadership, and takes it when the present leader has handed over, or has exceeded its time for that. */
class Requester implements Candidate {
  readonly #options: LeadershipOptions;
  readonly #canLead: () => boolean;
  readonly #startedAt: number;
  /** Waits for a vacancy while no request may be made. Its wait is longer, so that an older standby leads first. */
  readonly #unrequested: Standby;
  #pollMs = REQUEST_POLL_MS;
  #sharedGraceUntil: number | undefined;
  #request: { readonly number: bigint; readonly since: number } | undefined;
  /** Set when a later request was made: then this bridge is a standby. */
  #standby: Standby | undefined;
  #hasLoggedPostponement = false;

  constructor(options: LeadershipOptions, canLead: () => boolean) {
    this.#options = options;
    this.#canLead = canLead;
    this.#startedAt = options.clock.now();
    this.#unrequested = new Standby(options, 2 * VACANCY_MS);
  }

  get pollMs(): number {
    return this.#pollMs;
  }

  get ownsRequest(): boolean {
    return this.#request !== undefined && this.#standby === undefined;
  }

  async step(connection: LeadershipConnection): Promise<bigint | undefined> {
    if (this.#standby !== undefined) return this.#standby.step(connection);
    const { mode, clock, log, handOverTimeoutMs } = this.#options;
    // Read first: a request that is made after this is later than the leadership of this bridge.
    const lastRequest = await connection.lastRequest();
    if (this.#request === undefined && mode === "shared") {
      if (await leadAlone(connection, this.#options)) return lastRequest;
      if (await connection.acquire("shared")) return lastRequest;
      this.#sharedGraceUntil ??= clock.now() + SHARED_GRACE_MS;
      if (clock.now() < this.#sharedGraceUntil) return undefined;
    }
    if (this.#request === undefined) {
      const mayRequest = await this.#mayRequest(connection);
      this.#pollMs = mayRequest ? REQUEST_POLL_MS : WATCH_MS;
      if (!mayRequest) return this.#unrequested.step(connection);
      this.#request = { number: await connection.requestLeadership(clock.now()), since: clock.now() };
      return await this.#leadIfFree(connection, this.#request.number);
    }
    const { number, since } = this.#request;
    if (lastRequest > number) {
      log.warn({ event: "stands_by" }, "a bridge that was started later is to lead");
      this.#standby = new Standby(this.#options, VACANCY_MS);
      this.#pollMs = this.#standby.pollMs;
      return undefined;
    }
    if (clock.now() - since >= handOverTimeoutMs) {
      this.#request = { number, since: clock.now() };
      const terminated = await connection.terminateOthers();
      log.warn({ event: "takes_over", terminated }, "the present leader does not hand over");
    }
    return await this.#leadIfFree(connection, number);
  }

  /** True when no other bridge would have to hand over, or when a hand-over to this bridge is reasonable. */
  async #mayRequest(connection: LeadershipConnection): Promise<boolean> {
    const { clock, log } = this.#options;
    const { failed, lastAt, isOnlyBridge } = await connection.requestHistory();
    if (isOnlyBridge) return true;
    if (!this.#canLead()) return false;
    if (failed < FAILED_REQUESTS_MAX || lastAt === undefined) return true;
    const postponeMs = Math.min(POSTPONE_MS * 2 ** (failed - FAILED_REQUESTS_MAX), POSTPONE_MS_MAX);
    // `lastAt` is of another machine's clock, which may be ahead.
    const waitMs = Math.min(lastAt, this.#startedAt) + postponeMs - clock.now();
    if (waitMs <= 0) return true;
    if (!this.#hasLoggedPostponement) {
      const message = "earlier leaders ended soon after their requests: this bridge postpones its own";
      log.warn({ event: "postpones_request", failed, waitMs }, message);
    }
    this.#hasLoggedPostponement = true;
    return false;
  }

  async #leadIfFree(connection: LeadershipConnection, request: bigint): Promise<bigint | undefined> {
    return (await leadAlone(connection, this.#options)) ? request : undefined;
  }
}

/** Requests nothing. Leads after a vacancy, or, in mode `shared`, beside other leaders. */
class Standby implements Candidate {
  readonly pollMs = WATCH_MS;
  readonly ownsRequest = false;
  readonly #options: LeadershipOptions;
  readonly #vacancyMs: number;
  #vacantSince: number | undefined;
  #lastRequestSince = 0;
  #lastRequest: bigint | undefined;

  /** @param vacancyMs how long there must be no leader */
  constructor(options: LeadershipOptions, vacancyMs: number) {
    this.#options = options;
    this.#vacancyMs = vacancyMs;
  }

  async step(connection: LeadershipConnection): Promise<bigint | undefined> {
    const { clock, mode, handOverTimeoutMs } = this.#options;
    const now = clock.now();
    const lastRequest = await connection.lastRequest();
    const isVacant = await connection.isVacant();
    if (!isVacant || lastRequest !== this.#lastRequest) this.#vacantSince = undefined;
    if (lastRequest !== this.#lastRequest) this.#lastRequestSince = now;
    this.#lastRequest = lastRequest;
    if (!isVacant) {
      // By then a bridge that requested an exclusive lock has it or is gone, so that a shared lock delays no bridge.
      const mayJoin = mode === "shared" && now - this.#lastRequestSince >= handOverTimeoutMs + VACANCY_MS;
      if (!mayJoin || !(await connection.acquire("shared"))) return undefined;
      // The other leaders may have ended since.
      await leadAlone(connection, this.#options);
      return lastRequest;
    }
    this.#vacantSince ??= now;
    if (now - this.#vacantSince < this.#vacancyMs) return undefined;
    return (await leadAlone(connection, this.#options)) ? lastRequest : undefined;
  }
}

/** Leads when no other bridge does, and releases the leases of earlier leaders. */
async function leadAlone(
  connection: LeadershipConnection,
  { mode, clock, log }: LeadershipOptions,
): Promise<boolean> {
  if (!(await connection.acquire("exclusive"))) return false;
  const leases = await connection.releaseLeases(clock.now());
  if (mode === "shared") await connection.downgrade();
  log.info({ event: "leads", leases }, "this bridge leads");
  return true;
}
