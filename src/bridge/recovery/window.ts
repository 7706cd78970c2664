// What ghosts read back of their rooms, made into what the transactions would have brought. Pure.
// Invariants: the events of a room stay in the homeserver's order, each once; nothing of the time when a
// ghost was not in a room is taken from what it reads; of several memberships of one user only the last
// is told, because the earlier ones are no longer so.
import { sha256 } from "../../domain/digest.ts";
import type { EventId, GhostMxid, RoomId } from "../../domain/identifiers.ts";
import type { RawEvent } from "./sync-api.ts";

/** Events of rooms, oldest first in each. */
export type Window = ReadonlyMap<RoomId, readonly RawEvent[]>;

/** As many events as a homeserver puts into a transaction. */
const EVENTS_MAX = 100;

const isMembership = (event: RawEvent) => event["type"] === "m.room.member";

function membershipBefore(event: RawEvent): unknown {
  const unsigned = event["unsigned"] as { prev_content?: { membership?: unknown } } | undefined;
  return unsigned?.prev_content?.membership;
}

/**
 * The events of a room's end that a ghost was there for, its own comings and goings included. A member may
 * read what was said before it came; a homeserver brings that to no appservice.
 */
export function whileMember(events: readonly RawEvent[], ghost: GhostMxid): RawEvent[] {
  const kept: RawEvent[] = [];
  let isInside = true;
  for (const event of events.toReversed()) {
    if (isMembership(event) && event["state_key"] === ghost) {
      kept.push(event);
      isInside = membershipBefore(event) === "join";
    } else if (isInside) {
      kept.push(event);
    }
  }
  return kept.reverse();
}

/** Two views of one room in one: what only the second has stands right before what both have next. */
function mergeViews(first: readonly RawEvent[], second: readonly RawEvent[]): RawEvent[] {
  const place = new Map(first.map((event, index) => [event["event_id"], index]));
  const merged: RawEvent[] = [];
  let waiting: RawEvent[] = [];
  let next = 0;
  for (const event of second) {
    const index = place.get(event["event_id"]);
    if (index === undefined) {
      waiting.push(event);
    } else if (index >= next) {
      merged.push(...first.slice(next, index), ...waiting, event);
      waiting = [];
      next = index + 1;
    }
  }
  return [...merged, ...first.slice(next), ...waiting];
}

/** What several ghosts read, as one. */
export function mergeWindows(windows: readonly Window[]): Window {
  const merged = new Map<RoomId, readonly RawEvent[]>();
  for (const window of windows) {
    for (const [room, events] of window) {
      const known = merged.get(room);
      merged.set(room, known === undefined ? events : mergeViews(known, events));
    }
  }
  return merged;
}

const member = (room: RoomId, event: RawEvent) => `${room} ${String(event["state_key"])}`;

/**
 * The window without memberships that are no longer so, by what came after them in it or in a newer one.
 */
export function withoutSuperseded(window: Window, newer: Window = new Map()): Window {
  const kept = new Map<RoomId, readonly RawEvent[]>();
  for (const [room, events] of window) {
    const told = new Set((newer.get(room) ?? []).filter(isMembership).map((event) => member(room, event)));
    const current = events.toReversed().filter((event) => {
      if (!isMembership(event)) return true;
      const isLast = !told.has(member(room, event));
      told.add(member(room, event));
      return isLast;
    });
    kept.set(room, current.reverse());
  }
  return kept;
}

/** The events of a window that `isKnown` does not hold for. */
export function unknownIn(window: Window, isKnown: (event: EventId) => boolean): Window {
  const left = [...window].map(
    ([room, events]) => [room, events.filter((event) => !isKnown(event["event_id"] as EventId))] as const,
  );
  return new Map(left.filter(([, events]) => events.length > 0));
}

/** A body as the homeserver would have sent it. */
export interface RecoveredTransaction {
  /** Of the body alone: the same events read again are the same transaction. */
  readonly transactionId: string;
  readonly body: Uint8Array;
  readonly events: readonly RawEvent[];
}

/** A window as transactions, room by room. */
export function transactionsOf(window: Window): RecoveredTransaction[] {
  const all = [...window.values()].flat();
  return Array.from({ length: Math.ceil(all.length / EVENTS_MAX) }, (_, index) => {
    const events = all.slice(index * EVENTS_MAX, (index + 1) * EVENTS_MAX);
    const body = Buffer.from(JSON.stringify({ events }));
    return { transactionId: `recovered-${sha256(body).toString("hex").slice(0, 32)}`, body, events };
  });
}
