// Makes transactions of missed events, as the homeserver would have sent them, one after the other on demand.
// Invariants: the events of a room stay in their order; no more than one transaction and a few pages of events are held;
// the same events make the same transactions, whether their contents were held or read again.
import { LRUCache } from "lru-cache";
import { sha256 } from "../../domain/digest.ts";
import type { EventId } from "../../domain/identifiers.ts";
import { type Outcome, ok } from "../matrix/request-result.ts";
import type { EventsByRoom, FoundEvent, Page, RawEvent } from "./found-events.ts";
import type { SyncApi } from "./sync-api.ts";

/** As many events as a homeserver puts into a transaction. */
const EVENTS_MAX = 100;

export interface MissedTransaction {
  /** Of the events: the same ones read again are the same transaction. */
  readonly transactionId: string;
  readonly events: readonly RawEvent[];
}

export type RereadApi = Pick<SyncApi, "pageBack" | "event">;

/** Transactions of the events, room by room. They end with the first event that cannot be read again now. */
export async function* transactionsOf(
  window: EventsByRoom,
  api: RereadApi,
  signal?: AbortSignal,
): AsyncGenerator<Outcome<MissedTransaction>, void> {
  const reread = rereading(api, signal);
  const all = [...window.values()].flat();
  for (let from = 0; from < all.length; from += EVENTS_MAX) {
    const events: RawEvent[] = [];
    for (const found of all.slice(from, from + EVENTS_MAX)) {
      const read = found.raw === undefined ? await reread(found) : ok(found.raw);
      // Refused: the ghost that found it may no longer read it.
      if (read.kind === "refused") continue;
      if (read.kind === "retry") return yield read;
      events.push(read.value);
    }
    const digest = sha256(JSON.stringify({ events })).toString("hex");
    if (events.length > 0) yield ok({ transactionId: `catchup-${digest.slice(0, 32)}`, events });
  }
}

const PAGES_MAX = 4;

/** Reads events again whose contents were not held, a page at a time. */
function rereading(api: RereadApi, signal: AbortSignal | undefined) {
  const pages = new LRUCache<string, ReadonlyMap<EventId, RawEvent>>({ max: PAGES_MAX });
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
