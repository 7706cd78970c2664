// One bridge's place among those on the same database. Ghosts' devices belong to one process at a time, so at
// `encryption.mode` `devices` and `on` one bridge serves; the one that was started last asks for the place, and the one before hands
// over: it drains, then stands in line again. With `refuse` several may serve side by side.
// Invariants: nobody serves without the place; whoever died or hangs keeps nobody waiting for its leases; one
// that handed over asks for nothing, and serves again only when nobody else has for a while; a release that asks
// and dies, again and again, is kept from asking until that one has served. Who is alone waits for nothing.
import type { Logger } from "pino";
import type { Clock } from "../domain/clock.ts";
import type { LeadershipConnection, LeadershipMode, LeadershipSelf } from "./ledger/leadership.ts";

export interface LeadershipOptions {
  readonly open: () => Promise<LeadershipConnection>;
  readonly mode: LeadershipMode;
  /** How long the one before may take to hand over, its drain included. */
  readonly patienceMs: number;
  readonly clock: Clock;
  readonly log: Logger;
}

const ASKING_POLL_MS = 100;
/** One that may share asks only after that: another may have been about to let it in. */
const SHARING_MS = 2_000;
const WATCH_MS = 1_000;
/** For so long nobody must have served before one that handed over serves again. */
const VACANT_MS = 10_000;
/** After so many askings of which nobody went on serving, the next one beside another bridge waits. */
const IN_VAIN_MAX = 3;
/** How long it waits after the last asking; twice as long after each further one, up to the other. */
const STAND_BACK_MS = 60_000;
const STAND_BACK_MS_MAX = 300_000;
/** Whoever has served for so long goes on serving. */
const PROVEN_MS = 60_000;
/** Until that is tried to be written down again. */
const PROVEN_AGAIN_MS = 10_000;
/** How long an own earlier connection may stand in the way of a new one. */
const RETAKE_ATTEMPTS = 10;
const RETAKE_MS = 200;

export class Leadership {
  readonly #options: LeadershipOptions;
  readonly #handOver = new AbortController();
  readonly #ending = new AbortController();
  #connection: LeadershipConnection | undefined;
  /** Own connections that were lost: the server may not have missed them yet. */
  #past: LeadershipSelf[] = [];
  /** The last asking that this leadership knows of: a later one is for it to hand over. */
  #ticket = 0n;
  /** When its own asking will not have been in vain; undefined when it served without, or has said so. */
  #provenAt: number | undefined;
  #watching: Promise<void> | undefined;
  #isServing = false;

  constructor(options: LeadershipOptions) {
    this.#options = options;
  }

  get isServing(): boolean {
    return this.#isServing;
  }

  /** Aborts when another is to serve, or does already. */
  get handOver(): AbortSignal {
    return this.#handOver.signal;
  }

  /**
   * Resolves when this process may serve; false when it was stopped before that.
   * @param asks whether the one before is to hand over, or it is waited until nobody serves
   * @param wouldDo whether this process could serve, as far as it can know; until then it asks no bridge beside it
   */
  async begin(asks: boolean, stop: AbortSignal, wouldDo: () => boolean = () => true): Promise<boolean> {
    const { clock, log } = this.#options;
    const line = asks ? new Asking(this.#options, wouldDo) : new Waiting(this.#options, VACANT_MS);
    let pauseMs = 0;
    while (!stop.aborted) {
      try {
        this.#connection ??= await this.#options.open();
        const ticket = await line.step(this.#connection);
        if (ticket !== undefined) return this.#serves(ticket, line.hasAsked);
        pauseMs = line.pollMs;
      } catch (error) {
        log.warn({ err: nameOf(error) }, "the database cannot be asked who serves");
        await this.#drop();
        pauseMs = WATCH_MS;
      }
      await clock.sleep(pauseMs, stop).catch(() => undefined);
    }
    return false;
  }

  #serves(ticket: bigint, hasAsked: boolean): true {
    this.#ticket = ticket;
    // Any other's number is the one of a bridge that died.
    if (hasAsked) this.#provenAt = this.#options.clock.now() + PROVEN_MS;
    this.#isServing = true;
    this.#watching = this.#watch();
    return true;
  }

  /** Gives the place up; whoever waits for it has it at once. */
  async end(): Promise<void> {
    this.#ending.abort();
    await this.#watching;
    this.#isServing = false;
    await this.#drop();
  }

  async #drop(): Promise<void> {
    const connection = this.#connection;
    this.#connection = undefined;
    await connection?.close();
  }

  /** Until the end: who hands over keeps the place while it drains, and the server ends a silent connection. */
  async #watch(): Promise<void> {
    const { clock, log } = this.#options;
    while (!this.#ending.signal.aborted) {
      try {
        if (this.#connection?.broken.aborted) await this.#lose();
        if (this.#connection === undefined && !this.#handOver.signal.aborted) await this.#retake();
        const asked = await this.#connection?.asked();
        if (asked !== undefined && asked > this.#ticket) this.#passOn();
        await this.#prove();
      } catch (error) {
        log.warn({ err: nameOf(error) }, "the database cannot be asked who serves");
        // What it holds, if anything, is found out on a new one.
        await this.#lose();
      }
      await clock.sleep(WATCH_MS, this.#ending.signal).catch(() => undefined);
    }
  }

  async #prove(): Promise<void> {
    if (this.#provenAt === undefined || this.#options.clock.now() < this.#provenAt) return;
    if (this.#connection === undefined || this.#handOver.signal.aborted) return;
    try {
      await this.#connection.stood(this.#ticket);
      this.#provenAt = undefined;
    } catch (error) {
      // A database that takes no writes takes no place away. A broken connection shows by itself.
      const err = error instanceof Error ? error.name : "unknown";
      this.#options.log.warn({ err }, "that this bridge came up is not written down yet");
      this.#provenAt = this.#options.clock.now() + PROVEN_AGAIN_MS;
    }
  }

  #passOn(): void {
    if (this.#handOver.signal.aborted) return;
    this.#options.log.warn({ event: "hands_over" }, "another bridge is to serve");
    this.#handOver.abort();
  }

  async #lose(): Promise<void> {
    if (this.#connection !== undefined) this.#past.push(this.#connection.self);
    await this.#drop();
  }

  async #retake(): Promise<void> {
    const { clock, mode, open } = this.#options;
    const connection = await open();
    this.#connection = connection;
    for (const past of this.#past) await connection.endPast(past);
    for (let attempt = 0; attempt < RETAKE_ATTEMPTS; attempt++) {
      if (await connection.take(mode)) {
        this.#past = [];
        return;
      }
      await clock.sleep(RETAKE_MS, this.#ending.signal);
    }
    this.#passOn();
  }
}

/** The way to the place: a step at a time, until one returns the ticket. */
interface Line {
  readonly pollMs: number;
  /** Whether the ticket is of its own asking. */
  readonly hasAsked: boolean;
  step(connection: LeadershipConnection): Promise<bigint | undefined>;
}

class Asking implements Line {
  readonly #options: LeadershipOptions;
  readonly #wouldDo: () => boolean;
  readonly #startedAt: number;
  /** Whoever stood in line before comes first. */
  readonly #behind: Waiting;
  #pollMs = ASKING_POLL_MS;
  #sharingUntil: number | undefined;
  #asking: { readonly ticket: bigint; readonly since: number } | undefined;
  #patient: Waiting | undefined;
  #hasToldWhy = false;

  constructor(options: LeadershipOptions, wouldDo: () => boolean) {
    this.#options = options;
    this.#wouldDo = wouldDo;
    this.#startedAt = options.clock.now();
    this.#behind = new Waiting(options, 2 * VACANT_MS);
  }

  get pollMs(): number {
    return this.#pollMs;
  }

  get hasAsked(): boolean {
    return this.#asking !== undefined && this.#patient === undefined;
  }

  async step(connection: LeadershipConnection): Promise<bigint | undefined> {
    if (this.#patient !== undefined) return this.#patient.step(connection);
    const { mode, clock, log, patienceMs } = this.#options;
    // First, so that whoever asks after this is one that comes later.
    const asked = await connection.asked();
    if (this.#asking === undefined && mode === "shared") {
      if (await takeAlone(connection, this.#options)) return asked;
      if (await connection.take("shared")) return asked;
      this.#sharingUntil ??= clock.now() + SHARING_MS;
      if (clock.now() < this.#sharingUntil) return undefined;
    }
    if (this.#asking === undefined) {
      const mayAsk = await this.#mayAsk(connection);
      this.#pollMs = mayAsk ? ASKING_POLL_MS : WATCH_MS;
      if (!mayAsk) return this.#behind.step(connection);
      this.#asking = { ticket: await connection.ask(clock.now()), since: clock.now() };
      return await this.#take(connection, this.#asking.ticket);
    }
    const { ticket, since } = this.#asking;
    if (asked > ticket) {
      log.warn({ event: "stands_in_line" }, "a bridge that was started later is to serve");
      this.#patient = new Waiting(this.#options, VACANT_MS);
      this.#pollMs = this.#patient.pollMs;
      return undefined;
    }
    if (clock.now() - since >= patienceMs) {
      this.#asking = { ticket, since: clock.now() };
      const ended = await connection.endOthers();
      log.warn({ event: "takes_over", ended }, "the bridge before this one does not hand over");
    }
    return await this.#take(connection, ticket);
  }

  /** Whether no bridge beside this one would have to hand over, or it may be expected to. */
  async #mayAsk(connection: LeadershipConnection): Promise<boolean> {
    const { clock, log } = this.#options;
    const { inVain, lastAt, alone } = await connection.earlier();
    if (alone) return true;
    if (!this.#wouldDo()) return false;
    if (inVain < IN_VAIN_MAX || lastAt === undefined) return true;
    const standBackMs = Math.min(STAND_BACK_MS * 2 ** (inVain - IN_VAIN_MAX), STAND_BACK_MS_MAX);
    // The clock of another machine may be ahead.
    const waitMs = Math.min(lastAt, this.#startedAt) + standBackMs - clock.now();
    if (waitMs <= 0) return true;
    if (!this.#hasToldWhy) {
      const what = "the bridges that asked before this one ended soon after: it asks the one beside it later";
      log.warn({ event: "stands_back", inVain, waitMs }, what);
    }
    this.#hasToldWhy = true;
    return false;
  }

  async #take(connection: LeadershipConnection, ticket: bigint): Promise<bigint | undefined> {
    return (await takeAlone(connection, this.#options)) ? ticket : undefined;
  }
}

class Waiting implements Line {
  readonly pollMs = WATCH_MS;
  readonly hasAsked = false;
  readonly #options: LeadershipOptions;
  readonly #vacantMs: number;
  #vacantSince: number | undefined;
  #unaskedSince = 0;
  #asked: bigint | undefined;

  /** @param vacantMs for how long nobody must have served */
  constructor(options: LeadershipOptions, vacantMs: number) {
    this.#options = options;
    this.#vacantMs = vacantMs;
  }

  async step(connection: LeadershipConnection): Promise<bigint | undefined> {
    const { clock, mode, patienceMs } = this.#options;
    const now = clock.now();
    const asked = await connection.asked();
    const isVacant = await connection.isVacant();
    if (!isVacant || asked !== this.#asked) this.#vacantSince = undefined;
    if (asked !== this.#asked) this.#unaskedSince = now;
    this.#asked = asked;
    if (!isVacant) {
      // Whoever wants the place alone has it by then, or is gone: one that joins is in nobody's way.
      const mayJoin = mode === "shared" && now - this.#unaskedSince >= patienceMs + VACANT_MS;
      if (!mayJoin || !(await connection.take("shared"))) return undefined;
      // Those that it meant to join may have ended just now.
      await takeAlone(connection, this.#options);
      return asked;
    }
    this.#vacantSince ??= now;
    if (now - this.#vacantSince < this.#vacantMs) return undefined;
    return (await takeAlone(connection, this.#options)) ? asked : undefined;
  }
}

/** Whoever is alone frees what those before it held. */
async function takeAlone(
  connection: LeadershipConnection,
  { mode, clock, log }: LeadershipOptions,
): Promise<boolean> {
  if (!(await connection.take("alone"))) return false;
  const leases = await connection.freeLeases(clock.now());
  if (mode === "shared") await connection.share();
  log.info({ event: "serves", leases }, "this bridge serves");
  return true;
}

const nameOf = (error: unknown) => (error instanceof Error ? error.name : "unknown");
