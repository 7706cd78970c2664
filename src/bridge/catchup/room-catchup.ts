// Rooms read back: what the homeserver lost on the way of its transactions is found and handed to intake.
// Invariants:
// - a position moves only after everything before it is durable, so nothing between two positions is missed;
// - what is held of it is bounded; what finds no room is read again, a page at a time, when it is handed on;
// - in quiet times what was read is held for one round before it is handed on, so that what the homeserver
//   is just about to bring is not taken for lost; what a transaction brought meanwhile is not handed on;
// - one reading at a time.
import type { Logger } from "pino";
import { DrawbridgeError } from "../../domain/errors.ts";
import type { GhostMxid, RoomId } from "../../domain/identifiers.ts";
import type { ReadPositions } from "../ledger/ghosts.ts";
import type { Ghosts } from "../matrix/ghosts.ts";
import type { Outcome } from "../matrix/outcome.ts";
import { FOUND_BOUNDS, type FoundBounds, FoundBudget } from "./found-event.ts";
import type { HandledEvents } from "./handled-events.ts";
import { type MissedTransaction, transactionsOf } from "./missed-transactions.ts";
import { type RoomsRead, readRooms } from "./room-reader.ts";
import type { Reader, SyncApi } from "./sync-api.ts";
import { mergeWindows, unknownIn, type Window, withoutSuperseded } from "./window.ts";

export interface RoomCatchupOptions {
  readonly api: Pick<SyncApi, "position" | "changes" | "pageBack" | "event">;
  readonly ghosts: Pick<Ghosts, "readyGhost">;
  readonly positions: ReadPositions;
  readonly handled: HandledEvents;
  /** Commits events as intake does; rejects when they are not durable. Returns how many were unknown. */
  readonly intake: (transaction: MissedTransaction) => Promise<{ readonly admitted: number }>;
  /** Has a ghost ask who is in these rooms, or in all of its own: not all that happened there is told here. */
  readonly catchupRoomState: (ghost: GhostMxid, rooms: readonly RoomId[] | undefined) => Promise<void>;
  readonly log: Logger;
  readonly bounds?: FoundBounds;
}

export interface RoomCatchupResult {
  /** False when the homeserver did not answer for some ghost: it is to be done again. A refusal is an answer. */
  readonly complete: boolean;
  /** Events that no transaction had brought. */
  readonly events: number;
  /** What became of them: delegations, or events that wait for their keys. */
  readonly admitted: number;
}

interface Held {
  readonly window: Window;
  readonly next: string;
}

const CONCURRENCY = 4;

export class RoomCatchup {
  readonly #options: RoomCatchupOptions;
  readonly #held = new Map<GhostMxid, Held>();
  /** Where each position stands in the ledger, as it was last read or written here. */
  readonly #stored = new Map<GhostMxid, string | undefined>();
  #turn: Promise<unknown> = Promise.resolve();

  constructor(options: RoomCatchupOptions) {
    this.#options = options;
  }

  /** Reads everything up to now and hands it on at once: the homeserver was away, or the bridge. */
  afterDowntime(ghosts: readonly GhostMxid[], signal: AbortSignal): Promise<RoomCatchupResult> {
    return this.#alone(async () => {
      const { read, complete } = await this.#read(ghosts, signal);
      const windows = ghosts.map((ghost) => {
        const held = this.#held.get(ghost);
        const now = read.get(ghost)?.window ?? new Map();
        return held === undefined ? now : mergeWindows([held.window, now]);
      });
      const { isDone, ...result } = await this.#handOn(withoutSuperseded(mergeWindows(windows)), signal);
      if (!isDone) return { ...result, complete: false };
      for (const ghost of ghosts) {
        const next = read.get(ghost)?.next ?? this.#held.get(ghost)?.next;
        this.#held.delete(ghost);
        if (next !== undefined) await this.#move(ghost, next);
      }
      return { ...result, complete };
    });
  }

  /** One round in quiet times: hands on what the round before read, and moves the positions there. */
  quietly(ghosts: readonly GhostMxid[], signal: AbortSignal): Promise<RoomCatchupResult> {
    return this.#alone(async () => {
      const { read, complete } = await this.#read(ghosts, signal);
      const due = [...this.#held].filter(([ghost]) => read.has(ghost));
      const newer = mergeWindows([...read.values()].map(({ window }) => window));
      const { isDone, ...result } = await this.#handOn(
        withoutSuperseded(mergeWindows(due.map(([, { window }]) => window)), newer),
        signal,
      );
      if (!isDone) return { ...result, complete: false };
      const overtaken = new Set<GhostMxid>();
      for (const [ghost, { next }] of due) if (!(await this.#move(ghost, next))) overtaken.add(ghost);
      for (const [ghost, { window, next }] of read) {
        if (overtaken.has(ghost)) this.#held.delete(ghost);
        else this.#held.set(ghost, { window, next });
      }
      this.#options.handled.turn();
      return { ...result, complete };
    });
  }

  #alone<T>(work: () => Promise<T>): Promise<T> {
    const mine = this.#turn.then(work, work);
    this.#turn = mine.catch(() => undefined);
    return mine;
  }

  /** False when another bridge has moved the position meanwhile: it is read from there next time. */
  async #move(ghost: GhostMxid, next: string): Promise<boolean> {
    try {
      await this.#options.positions.set(ghost, next, this.#stored.get(ghost));
      this.#stored.set(ghost, next);
      return true;
    } catch (error) {
      if (!(error instanceof DrawbridgeError) || error.code !== "lease_lost") throw error;
      this.#options.log.warn({ ghost }, "another bridge reads rooms back as well");
      return false;
    }
  }

  /** Where to read on from. */
  async #position(ghost: GhostMxid): Promise<string | undefined> {
    const held = this.#held.get(ghost)?.next;
    if (held !== undefined) return held;
    const stored = await this.#options.positions.get(ghost);
    this.#stored.set(ghost, stored);
    return stored;
  }

  /** What each ghost has since its position, where the homeserver tells. */
  async #read(
    ghosts: readonly GhostMxid[],
    signal: AbortSignal,
  ): Promise<{ readonly read: ReadonlyMap<GhostMxid, RoomsRead>; readonly complete: boolean }> {
    const read = new Map<GhostMxid, RoomsRead>();
    let complete = true;
    const budget = new FoundBudget(this.#options.bounds ?? FOUND_BOUNDS);
    const waiting = [...ghosts];
    const reader = async () => {
      for (let ghost = waiting.shift(); ghost !== undefined; ghost = waiting.shift()) {
        const outcome = await this.#readOne(ghost, budget, signal);
        if (outcome.kind === "ok") read.set(ghost, outcome.value);
        else this.#note(ghost, outcome);
        if (outcome.kind === "retry" && outcome.cause !== "ghost_refused") complete = false;
      }
    };
    await Promise.all(Array.from({ length: CONCURRENCY }, reader));
    return { read, complete };
  }

  async #readOne(ghost: GhostMxid, budget: FoundBudget, signal: AbortSignal): Promise<Outcome<RoomsRead>> {
    const { api, ghosts, log, catchupRoomState } = this.#options;
    const since = await this.#position(ghost);
    const ready = await ghosts.readyGhost(ghost, signal);
    if (ready.kind !== "ok") return ready;
    const reader: Reader = { ghost, signal };
    if (since === undefined) return await this.#begin(reader);
    const outcome = await readRooms(api, reader, since, budget);
    // Not a position of this homeserver. (One of its future, before it was restored, it answers as if of now.)
    if (outcome.kind === "refused") return await this.#begin(reader);
    if (outcome.kind === "retry") return outcome;
    const { cut } = outcome.value;
    if (cut.length > 0) {
      log.warn({ ghost, rooms: cut.length }, "read back the newest events only");
      await catchupRoomState(ghost, cut);
    }
    return outcome;
  }

  /** A position of now, with nothing before it. */
  async #begin(reader: Reader): Promise<Outcome<RoomsRead>> {
    const position = await this.#options.api.position(reader);
    if (position.kind !== "ok") return position;
    this.#options.log.info({ ghost: reader.ghost }, "reads back from now on");
    await this.#options.catchupRoomState(reader.ghost, undefined);
    return { kind: "ok", value: { window: new Map(), next: position.value, cut: [] } };
  }

  /** Hands on what no transaction has brought; `isDone` is false when not all of it could be read again. */
  async #handOn(
    window: Window,
    signal: AbortSignal,
  ): Promise<Omit<RoomCatchupResult, "complete"> & { readonly isDone: boolean }> {
    const { api, handled, intake, log } = this.#options;
    let events = 0;
    let admitted = 0;
    let isDone = true;
    const lost = unknownIn(window, (event) => handled.has(event));
    for await (const transaction of transactionsOf(lost, api, signal)) {
      if (transaction.kind === "ok") {
        const done = await intake(transaction.value);
        events += transaction.value.events.length;
        admitted += done.admitted;
      } else {
        isDone = false;
        log.warn({ why: failureOf(transaction) }, "what was found in rooms could not be read again");
      }
    }
    if (events > 0) log.info({ events, admitted }, "read back what no transaction had brought");
    return { events, admitted, isDone };
  }

  #note(ghost: GhostMxid, outcome: Exclude<Outcome<unknown>, { kind: "ok" }>): void {
    this.#options.log.warn({ ghost, why: failureOf(outcome) }, "rooms could not be read back");
  }
}

function failureOf(outcome: Exclude<Outcome<unknown>, { kind: "ok" }>): string {
  return outcome.kind === "retry" ? outcome.cause : outcome.errcode;
}
