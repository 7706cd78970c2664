// Makes transactions of missed events, as the homeserver would have sent them, one after the other on demand.
// Invariants: the events of a room stay in their order; no more than one transaction and a few pages of events are held
// here; the same events make the same transactions, whether their contents were held or read again.
import { LRUCache } from "lru-cache";
import { sha256 } from "../../domain/digest.ts";
import type { EventId } from "../../domain/identifiers.ts";
import type { Outcome } from "../matrix/request-result.ts";
import type { EventsByRoom, FoundEvent, Page, RawEvent } from "./found-events.ts";
import type { SyncApi } from "./sync-api.ts";

/** As many events as a homeserver puts into a transaction. */
const EVENTS_MAX = 100;

/** A body as the homeserver would have sent it. */
export interface MissedTransaction {
  /** A digest of the body, so that the same events read again are the same transaction. */
  readonly transactionId: string;
  readonly body: Uint8Array;
  readonly events: readonly RawEvent[];
}

export type RereadApi = Pick<SyncApi, "pageBack" | "event">;

/** Transactions of the events, room by room. They end with the first event that cannot be read again now. */
export async function* transactionsOf(
  window: EventsByRoom,
  api: RereadApi,
  signal?: AbortSignal,
): AsyncGenerator<Outcome<MissedTransaction>, void> {
  const reread = new Reread(api, signal);
  const all = [...window.values()].flat();
  for (let from = 0; from < all.length; from += EVENTS_MAX) {
    const events: RawEvent[] = [];
    for (const found of all.slice(from, from + EVENTS_MAX)) {
      const read = found.raw === undefined ? await reread.event(found) : ok(found.raw);
      // Refused: the ghost that found it may no longer read it.
      if (read.kind === "refused") continue;
      if (read.kind === "retry") return yield read;
      events.push(read.value);
    }
    const body = Buffer.from(JSON.stringify({ events }));
    const transactionId = `catchup-${sha256(body).toString("hex").slice(0, 32)}`;
    if (events.length > 0) yield ok({ transactionId, body, events });
  }
}

const ok = <T>(value: T) => ({ kind: "ok", value }) as const;

/** Pages that are held at a time: several ghosts may have found the events of one room. */
const PAGES_MAX = 4;

/** Reads events again whose contents were not held, a page at a time. */
class Reread {
  readonly #api: RereadApi;
  readonly #signal: AbortSignal | undefined;
  readonly #pages = new LRUCache<string, ReadonlyMap<EventId, RawEvent>>({ max: PAGES_MAX });

  constructor(api: RereadApi, signal: AbortSignal | undefined) {
    this.#api = api;
    this.#signal = signal;
  }

  async event({ id, page }: FoundEvent): Promise<Outcome<RawEvent>> {
    const events = await this.#page(page);
    if (events.kind === "retry") return events;
    const event = events.kind === "ok" ? events.value.get(id) : undefined;
    if (event !== undefined) return ok(event);
    // The page has changed since: events of another server came, which belong before this one.
    return await this.#api.event({ ghost: page.ghost, signal: this.#signal }, page.room, id);
  }

  async #page({ ghost, room, from }: Page): Promise<Outcome<ReadonlyMap<EventId, RawEvent>>> {
    const key = JSON.stringify([ghost, room, from]);
    const known = this.#pages.get(key);
    if (known !== undefined) return ok(known);
    const read = await this.#api.pageBack({ ghost, signal: this.#signal }, room, from, undefined);
    if (read.kind === "retry") return read;
    const events = new Map(
      (read.kind === "ok" ? read.value.events : []).map((event) => [event["event_id"] as EventId, event]),
    );
    this.#pages.set(key, events);
    return ok(events);
  }
}
