// What this process owns among those on one database: the machines of ghosts, shared out evenly, and the work that one
// process does at a time.
// Invariants: a ghost has one owner, and the fence of its store stands behind that; what is given up is closed first, each
// ghost by itself; a process that drains has no share of them, and one that loses its connection owns and claims nothing until
// it has a new one; nothing but its own connection keeps it from observing, else the server would end that.
import type { Logger } from "pino";
import type { Clock } from "../domain/clock.ts";
import { errorName } from "../domain/errors.ts";
import type { GhostMxid } from "../domain/identifiers.ts";
import { resultWithin } from "../runtime/concurrency.ts";
import { QUERY_TIMEOUT_MS } from "./ledger/postgres-servers.ts";
import { IDLE_MS_MAX, type ProcessConnection } from "./ledger/processes.ts";

export const ROLES = ["audit", "avatars", "catchup", "retention"] as const;
export type Role = (typeof ROLES)[number];

export interface OwnershipOptions {
  readonly open: (onNotified: (message: string) => void) => Promise<ProcessConnection>;
  /** Releases the leases of processes that have ended; returns how many. */
  readonly releaseEnded: (now: number) => Promise<number>;
  /** The ghosts that have machines, configured or recorded; undefined where none has one. */
  readonly ghosts: (() => Promise<readonly GhostMxid[]>) | undefined;
  /** Whether the ghost's machine is open, or was tried to be opened: before, nothing is claimed for it. */
  readonly isSettled: (ghost: GhostMxid) => boolean;
  readonly onTaken: () => void;
  /** Closes the machine of a ghost; `hasLost`: another process may have taken it already. */
  readonly close: (ghost: GhostMxid, hasLost: boolean) => Promise<void>;
  /** This process counts as ended, and its leases are released. */
  readonly onLost: () => void;
  readonly onReleased: () => void;
  readonly onNotified: (message: string) => void;
  readonly onObserved?: (processes: number, ghosts: number) => void;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Shorter than the second after which the server ends an idle connection. */
const POLL_MS = 250;
/** How often what a process that has ended held is released again. */
const RELEASE_MS = 1_000;
/** How soon a connection is opened again: until then nobody answers in encrypted rooms. */
const CONNECT_AGAIN_MS = 100;

export interface Claimant {
  readonly holder: string;
  /** Whose work in encrypted rooms this process can do; undefined: everybody's. */
  readonly ghosts: readonly GhostMxid[] | undefined;
}

export class Ownership {
  readonly #options: OwnershipOptions;
  readonly #ending = new AbortController();
  #connection: ProcessConnection | undefined;
  #owned = new Set<string>();
  readonly #closing = new Set<string>();
  #live: readonly string[] = [];
  #aliveUntil = Number.NEGATIVE_INFINITY;
  #releasesUntil = Number.NEGATIVE_INFINITY;
  #releasesAt = 0;
  /** A release, and who was alive when it began. */
  #releasing: { readonly live: readonly string[]; readonly done: Promise<boolean> } | undefined;
  #givesUpGhosts = false;
  #running: Promise<void> | undefined;

  constructor(options: OwnershipOptions) {
    this.#options = options;
  }

  /** Undefined while this process has no connection: then it must claim nothing. */
  get claimant(): Claimant | undefined {
    if (this.#connection === undefined || this.#connection.broken.aborted) return undefined;
    const ghosts = this.#options.ghosts && this.ghosts.filter(this.#options.isSettled);
    return { holder: this.#connection.process, ghosts };
  }

  /** False once the server may have ended the connection: a process that was stopped hears of that later than the others do. */
  get isAlive(): boolean {
    return this.#connection?.broken.aborted === false && this.#options.clock.now() < this.#aliveUntil;
  }

  get ghosts(): readonly GhostMxid[] {
    return [...this.#owned].filter((name) => name.startsWith("@")) as GhostMxid[];
  }

  owns(name: GhostMxid | Role): boolean {
    return this.#owned.has(name) && this.#connection?.broken.aborted === false;
  }

  /** Resolves after the first round, which releases the leases of processes that have ended; or when `stop` aborts. */
  async start(stop: AbortSignal): Promise<void> {
    const first = Promise.withResolvers<void>();
    stop.addEventListener("abort", () => first.resolve(), { once: true });
    this.#running = this.#run(first.resolve);
    await first.promise;
  }

  /** Tells the other processes, if there are any. */
  notify(message: string): void {
    if (this.#live.length > 1) void this.#connection?.notify(message).catch(() => undefined);
  }

  /** Closes its ghosts' machines for other processes to take, and takes none from then on. */
  async giveUpGhosts(): Promise<void> {
    const sharing = this.#givesUpGhosts ? undefined : this.#connection;
    this.#givesUpGhosts = true;
    await sharing?.leave().catch(() => undefined);
    await this.#giveUp(this.ghosts);
  }

  async end(): Promise<void> {
    await this.giveUpGhosts();
    this.#ending.abort();
    await this.#running;
    const connection = this.#connection;
    this.#connection = undefined;
    await connection?.giveUp([...this.#owned]).catch(() => undefined);
    await connection?.close();
  }

  async #run(onFirst: () => void): Promise<void> {
    const { clock, log } = this.#options;
    const { signal } = this.#ending;
    while (!signal.aborted) {
      try {
        await this.#connect();
        if (await this.#observe()) onFirst();
      } catch (error) {
        log.warn({ err: errorName(error) }, "the bridge processes could not be observed");
        await this.#connection?.close();
      }
      const isConnected = this.#connection?.broken.aborted === false;
      await clock.sleep(isConnected ? POLL_MS : CONNECT_AGAIN_MS, signal).catch(() => undefined);
    }
    onFirst();
  }

  async #connect(): Promise<void> {
    if (this.#connection?.broken.aborted === false) return;
    const { open, onNotified, onLost, clock, log } = this.#options;
    if (this.#connection !== undefined) {
      log.warn({ event: "process_connection_lost" }, "other processes take over what this one owned");
      this.#connection = undefined;
      onLost();
      void this.#giveUp(this.ghosts, true);
      this.#owned = new Set();
    }
    this.#live = [];
    this.#releasing = undefined;
    const askedAt = clock.now();
    this.#connection = await open(onNotified);
    this.#aliveUntil = askedAt + IDLE_MS_MAX;
    if (this.#givesUpGhosts) await this.#connection.leave();
    log.info({ event: "process", process: this.#connection.process }, "this process takes part");
  }

  /** @returns whether the leases of every process that has ended are released */
  async #observe(): Promise<boolean> {
    const connection = this.#connection;
    if (connection === undefined) return false;
    const { clock, ghosts: wanted, onTaken, onObserved } = this.#options;
    const askedAt = clock.now();
    const found = await connection.observe();
    this.#aliveUntil = askedAt + IDLE_MS_MAX;
    const hasEnded = this.#live.length === 0 || this.#live.some((one) => !found.live.includes(one));
    // What the server was committing for the process when it ended can come after this observation.
    if (hasEnded) this.#releasesUntil = clock.now() + QUERY_TIMEOUT_MS;
    const isDue = clock.now() <= this.#releasesUntil && clock.now() >= this.#releasesAt;
    if (hasEnded || isDue || this.#releasing !== undefined) {
      this.#releasing ??= { live: found.live, done: this.#release(hasEnded) };
      const { live, done } = this.#releasing;
      // One that takes longer counts for the next observation: else it would be made again and again.
      const isReleased = await resultWithin(clock, POLL_MS, done);
      if (isReleased !== undefined) this.#releasing = undefined;
      if (isReleased !== true || live.some((one) => !found.live.includes(one))) return false;
    }
    this.#live = found.live;
    const isFree = (name: string) => {
      if (this.#closing.has(name)) return false;
      const owner = found.owners.get(name) ?? "";
      // What this process could not give up is free for it again.
      return owner === connection.process ? !this.#owned.has(name) : !found.live.includes(owner);
    };
    const all = wanted === undefined || this.#givesUpGhosts ? [] : await wanted();
    const own = all.filter((ghost) => this.#owned.has(ghost));
    // The most ghosts that a process has when they are shared out evenly.
    const share = Math.ceil(all.length / Math.max(1, found.sharing));
    const free = all.filter(isFree).slice(0, Math.max(0, share - own.length));
    const names = [...free, ...ROLES.filter(isFree)];
    if (names.length > 0) {
      const taken = await connection.take(names);
      for (const name of taken) this.#owned.add(name);
      if (taken.some((name) => name.startsWith("@"))) onTaken();
    }
    void this.#giveUp(this.#givesUpGhosts ? this.ghosts : own.slice(share));
    onObserved?.(found.live.length, this.ghosts.length);
    return true;
  }

  /** The release uses the pool: its failure does not say that this process hangs, and the next one repeats it. */
  async #release(hasEnded: boolean): Promise<boolean> {
    const { clock, log, releaseEnded, onReleased } = this.#options;
    try {
      const released = await releaseEnded(clock.now());
      this.#releasesAt = clock.now() + RELEASE_MS;
      if (released > 0) log.info({ event: "leases_released", released }, "a process has ended");
      if (hasEnded || released > 0) onReleased();
      return true;
    } catch (error) {
      log.warn({ err: errorName(error) }, "the leases of a process that has ended are not released yet");
      return false;
    }
  }

  async #giveUp(ghosts: readonly GhostMxid[], hasLost = false): Promise<void> {
    const { close, log } = this.#options;
    const giveUp = async (ghost: GhostMxid) => {
      if (this.#closing.has(ghost)) return;
      this.#closing.add(ghost);
      this.#owned.delete(ghost);
      try {
        await close(ghost, hasLost);
        if (!hasLost) await this.#connection?.giveUp([ghost]);
      } catch (error) {
        log.warn({ err: errorName(error) }, "a ghost could not be given up");
      }
      this.#closing.delete(ghost);
    };
    await Promise.all(ghosts.map(giveUp));
  }
}
