// The catchup of rooms: finds the events that the homeserver's transactions lost, and passes them to intake.
// Invariants: a position moves only after everything before it is durable; what does not fit into the memory's bound is
// read again; in quiet times events are held for one round, so that those which the homeserver is about to send do not
// count as lost; events that were handled are not passed on; one reading at a time.
import { LRUCache } from "lru-cache";
import type { Logger } from "pino";
import { sha256 } from "../../domain/digest.ts";
import { isLeaseLost } from "../../domain/errors.ts";
import type { EventId, GhostMxid, RoomId } from "../../domain/identifiers.ts";
import { mapConcurrent, Serial } from "../../runtime/concurrency.ts";
import type { ReadPositions } from "../ledger/ghosts.ts";
import type { RoomOrder } from "../ledger/room-order.ts";
import type { Ghosts } from "../matrix/ghosts.ts";
import { type Outcome, ok, reasonOf } from "../matrix/request-result.ts";
import {
  type EventsByRoom,
  type FoundBounds,
  FoundBudget,
  type FoundEvent,
  mergeByRoom,
  orderOf,
  type Page,
  type RawEvent,
  unknownIn,
  whileMember,
  withoutRedacted,
  withoutSuperseded,
} from "./found-events.ts";
import type { Reader, SyncApi } from "./sync-api.ts";

export interface RoomCatchupOptions {
  readonly api: Pick<SyncApi, "position" | "changes" | "pageBack" | "event">;
  readonly ghosts: Pick<Ghosts, "readyGhost">;
  readonly positions: ReadPositions;
  readonly handled: (events: readonly EventId[]) => Promise<ReadonlySet<EventId>>;
  readonly intake: (
    transaction: MissedTransaction & { readonly order: RoomOrder },
  ) => Promise<{ readonly admitted: number }>;
  /** Makes a ghost read the state of these rooms, or of all its rooms. */
  readonly catchupRoomState: (ghost: GhostMxid, rooms: readonly RoomId[] | undefined) => Promise<void>;
  readonly log: Logger;
  readonly bounds?: FoundBounds;
}

export interface RoomCatchupResult {
  /** False when the homeserver did not answer for some ghost. A refusal is an answer. */
  readonly complete: boolean;
  readonly events: number;
  readonly admitted: number;
}

const CONCURRENCY = 4;

export function createRoomCatchup(options: RoomCatchupOptions) {
  const { api, positions, handled, intake, catchupRoomState, log, bounds } = options;
  const holding = new Map<GhostMxid, Pick<RoomsRead, "window" | "next">>();
  const stored = new Map<GhostMxid, string | undefined>();
  const serial = new Serial();

  /** After the homeserver or the bridge was away: reads everything up to now, and passes it on at once. */
  function afterDowntime(ghosts: readonly GhostMxid[], signal: AbortSignal): Promise<RoomCatchupResult> {
    return serial.run(async () => {
      const { read, complete } = await readAll(ghosts, signal);
      const windows = ghosts.map((ghost) => {
        const held = holding.get(ghost);
        const now = read.get(ghost)?.window ?? new Map();
        return held === undefined ? now : mergeByRoom([held.window, now]);
      });
      const passed = await passOn(withoutSuperseded(mergeByRoom(windows)), signal);
      if (!passed.complete) return passed;
      for (const ghost of ghosts) {
        const next = read.get(ghost)?.next ?? holding.get(ghost)?.next;
        holding.delete(ghost);
        if (next !== undefined) await move(ghost, next);
      }
      return { ...passed, complete };
    });
  }

  /** In quiet times: passes on what the round before read, and moves the positions there. */
  function quietly(ghosts: readonly GhostMxid[], signal: AbortSignal): Promise<RoomCatchupResult> {
    return serial.run(async () => {
      const { read, complete } = await readAll(ghosts, signal);
      const due = [...holding].filter(([ghost]) => read.has(ghost));
      const newer = mergeByRoom([...read.values()].map(({ window }) => window));
      const older = mergeByRoom(due.map(([, { window }]) => window));
      const passed = await passOn(withoutSuperseded(older, newer), signal, newer);
      if (!passed.complete) return passed;
      const overtaken = new Set<GhostMxid>();
      for (const [ghost, { next }] of due) if (!(await move(ghost, next))) overtaken.add(ghost);
      for (const [ghost, { window, next }] of read) {
        if (overtaken.has(ghost)) holding.delete(ghost);
        else holding.set(ghost, { window, next });
      }
      return { ...passed, complete };
    });
  }

  /** False when another process has moved the position meanwhile. */
  async function move(ghost: GhostMxid, next: string): Promise<boolean> {
    try {
      await positions.set(ghost, next, stored.get(ghost));
      stored.set(ghost, next);
      return true;
    } catch (error) {
      if (!isLeaseLost(error)) throw error;
      // As at each start beside another process, because both read.
      log.debug({ ghost }, "another process has moved the position of the catchup of rooms");
      return false;
    }
  }

  async function position(ghost: GhostMxid): Promise<string | undefined> {
    const next = holding.get(ghost)?.next;
    if (next !== undefined) return next;
    const known = await positions.get(ghost);
    stored.set(ghost, known);
    return known;
  }

  async function readAll(ghosts: readonly GhostMxid[], signal: AbortSignal) {
    const read = new Map<GhostMxid, RoomsRead>();
    let complete = true;
    const budget = new FoundBudget(bounds);
    await mapConcurrent(ghosts, CONCURRENCY, async (ghost) => {
      const outcome = await readOne(ghost, budget, signal);
      if (outcome.kind === "ok") read.set(ghost, outcome.value);
      else log.warn({ ghost, why: reasonOf(outcome) }, "a ghost's rooms could not be read for the catchup");
      if (outcome.kind === "retry" && outcome.cause !== "ghost_refused") complete = false;
    });
    return { read, complete };
  }

  async function readOne(ghost: GhostMxid, budget: FoundBudget, signal: AbortSignal) {
    const since = await position(ghost);
    const ready = await options.ghosts.readyGhost(ghost, signal);
    if (ready.kind !== "ok") return ready;
    const reader: Reader = { ghost, signal };
    if (since === undefined) return await begin(reader);
    const outcome = await readRooms(api, reader, since, budget);
    // A refused position is none of this homeserver. (One from the future of a restored homeserver counts as of now.)
    if (outcome.kind === "refused") return await begin(reader);
    if (outcome.kind === "retry") return outcome;
    const { cut, unread } = outcome.value;
    if (unread > 0)
      log.warn({ ghost, invitations: unread }, "invitations were too large to be read for the catchup");
    if (cut.length > 0) {
      log.warn({ ghost, rooms: cut.length }, "the catchup read only the newest events of some rooms");
      await catchupRoomState(ghost, cut);
    }
    return outcome;
  }

  async function begin(reader: Reader): Promise<Outcome<RoomsRead>> {
    const now = await api.position(reader);
    if (now.kind !== "ok") return now;
    log.info({ ghost: reader.ghost }, "the catchup of a ghost's rooms begins now");
    await catchupRoomState(reader.ghost, undefined);
    return ok({ window: new Map(), next: now.value, cut: [], unread: 0 });
  }

  async function passOn(window: EventsByRoom, signal: AbortSignal, newer: EventsByRoom = new Map()) {
    let events = 0;
    let admitted = 0;
    let complete = true;
    const known = await handled([...window.values()].flat().map(({ id }) => id));
    const unknown = unknownIn(window, (event) => known.has(event));
    const lost = withoutRedacted(unknown, window, newer);
    for await (const transaction of transactionsOf(lost, api, signal)) {
      if (transaction.kind === "ok") {
        const done = await intake({ ...transaction.value, order: orderOf(window, transaction.value.events) });
        events += transaction.value.events.length;
        admitted += done.admitted;
      } else {
        complete = false;
        log.warn({ why: reasonOf(transaction) }, "missed events could not be read again");
      }
    }
    if (events > 0)
      log.info({ events, admitted }, "the catchup found events that no transaction had brought");
    return { events, admitted, complete };
  }

  return { afterDowntime, quietly };
}

export interface RoomsRead {
  readonly window: EventsByRoom;
  readonly next: string;
  /** Rooms with more events than are read, of which the newest are. Of all others everything up to `next` is. */
  readonly cut: readonly RoomId[];
  /** Invitations that are too large to be read. */
  readonly unread: number;
}

/** A homeserver may repeat an earlier answer, so it reads until an answer holds nothing new. */
const ANSWERS_MAX = 10;
const READ_PAGES_MAX = 100;

export async function readRooms(
  api: Pick<SyncApi, "changes" | "pageBack">,
  reader: Reader,
  since: string,
  budget: FoundBudget,
): Promise<Outcome<RoomsRead>> {
  const { ghost } = reader;
  const window = new Map<RoomId, readonly FoundEvent[]>();
  const cut: RoomId[] = [];
  let position = since;
  let unread = 0;
  let hasNew = true;
  const add = (room: RoomId, events: readonly FoundEvent[]) => {
    if (events.length === 0) return;
    hasNew = true;
    window.set(room, [...(window.get(room) ?? []), ...events]);
  };
  for (let answers = 0; hasNew && answers < ANSWERS_MAX; answers++) {
    const outcome = await api.changes(reader, position);
    if (outcome.kind !== "ok") return outcome;
    const changes = outcome.value;
    unread += changes.unread;
    hasNew = false;
    for (const [room, { events, before }] of changes.rooms) {
      const last = { ghost, room, from: changes.next };
      const end = events.map((event) => budget.found(event, last, changes.isWhole));
      const earlier: FoundEvent[] = [];
      let from = before;
      for (let pages = 0; from !== undefined; pages++) {
        if (pages === READ_PAGES_MAX || budget.isSpent) {
          cut.push(room);
          break;
        }
        const at = { ghost, room, from };
        const page = await api.pageBack(reader, room, from, position);
        // Refused: the ghost may no longer read there. The events of the answer stay.
        if (page.kind === "retry") return page;
        if (page.kind === "refused") break;
        earlier.push(...page.value.events.map((event) => budget.found(event, at, true)));
        from = page.value.next;
      }
      // Of a room that was left, the page before its end holds that end again.
      const known = new Set(end.map(({ id }) => id));
      const start = earlier.reverse().filter(({ id }) => !known.has(id));
      add(room, whileMember([...start, ...end], ghost));
    }
    for (const [room, invitation] of changes.invitations) {
      // An invitation is small and cannot be read again, so its content is always held.
      const found = budget.found(invitation, { ghost, room, from: changes.next }, true);
      add(room, [{ ...found, raw: invitation }]);
    }
    position = changes.next;
  }
  return ok({ window, next: position, cut, unread });
}

/** As many events as a homeserver puts into a transaction. */
const EVENTS_MAX = 100;

export interface MissedTransaction {
  readonly transactionId: string;
  readonly events: readonly RawEvent[];
}

export type RereadApi = Pick<SyncApi, "pageBack" | "event">;

/** Transactions of the events, room by room. They end with the first event that cannot be read again now. */
export async function* transactionsOf(window: EventsByRoom, api: RereadApi, signal?: AbortSignal) {
  const reread = rereading(api, signal);
  const all = [...window.values()].flat();
  for (let from = 0; from < all.length; from += EVENTS_MAX) {
    const events: RawEvent[] = [];
    for (const found of all.slice(from, from + EVENTS_MAX)) {
      const read = found.raw === undefined ? await reread(found) : ok(found.raw);
      // Refused: the ghost that found it may no longer read it.
      if (read.kind === "refused") continue;
      if (read.kind === "retry") {
        yield read;
        return;
      }
      events.push(read.value);
    }
    const digest = sha256(JSON.stringify({ events })).toString("hex");
    if (events.length > 0) yield ok({ transactionId: `catchup-${digest.slice(0, 32)}`, events });
  }
}

const HELD_PAGES_MAX = 4;

function rereading(api: RereadApi, signal: AbortSignal | undefined) {
  const pages = new LRUCache<string, ReadonlyMap<EventId, RawEvent>>({ max: HELD_PAGES_MAX });
  const pageAt = async ({ ghost, room, from }: Page): Promise<Outcome<ReadonlyMap<EventId, RawEvent>>> => {
    const key = JSON.stringify([ghost, room, from]);
    const known = pages.get(key);
    if (known !== undefined) return ok(known);
    const read = await api.pageBack({ ghost, signal }, room, from, undefined);
    if (read.kind === "retry") return read;
    const found = read.kind === "ok" ? read.value.events : [];
    const events = new Map(found.map((event) => [event["event_id"] as EventId, event]));
    pages.set(key, events);
    return ok(events);
  };
  return async ({ id, page }: FoundEvent): Promise<Outcome<RawEvent>> => {
    const events = await pageAt(page);
    if (events.kind !== "ok") return events;
    const event = events.value.get(id);
    if (event !== undefined) return ok(event);
    // The page has changed since: events of another server came, which belong before this one.
    return await api.event({ ghost: page.ghost, signal }, page.room, id);
  };
}
