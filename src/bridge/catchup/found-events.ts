// Events that ghosts found when they read their rooms, put together as transactions would have brought them. Pure.
// Invariants: the events of a room stay in the homeserver's order, each once; nothing is taken from a time when the ghost
// was not in the room; only the last membership of a user is passed on, and no event that was removed meanwhile; events and
// their contents stay below a bound.
import type { EventId, GhostMxid, RoomId } from "../../domain/identifiers.ts";
import { membersOf, type UnknownObject } from "../../domain/json.ts";
import { redactedBy } from "../intake/read-events.ts";
import type { RoomOrder } from "../ledger/room-order.ts";

export type RawEvent = UnknownObject;

export type Page = { readonly ghost: GhostMxid; readonly room: RoomId; readonly from: string };

export interface FoundEvent {
  readonly id: EventId;
  readonly member: string | undefined;
  readonly membershipBefore: unknown;
  readonly redacts: EventId | undefined;
  /** Undefined above the bound: then it is read again. */
  readonly raw: RawEvent | undefined;
  readonly page: Page;
}

export const FOUND_BOUNDS = {
  /** Of the contents, as JSON in UTF-16 units. */
  charactersMax: 32 * 1024 * 1024,
  /** Each takes about 300 bytes besides. */
  eventsMax: 200_000,
};
export type FoundBounds = typeof FOUND_BOUNDS;

export class FoundBudget {
  #characters: number;
  #events: number;

  constructor(bounds: FoundBounds = FOUND_BOUNDS) {
    this.#characters = bounds.charactersMax;
    this.#events = bounds.eventsMax;
  }

  get isSpent(): boolean {
    return this.#events <= 0;
  }

  found(event: RawEvent, page: Page, isWhole: boolean): FoundEvent {
    this.#events -= 1;
    const length = isWhole && this.#characters > 0 ? JSON.stringify(event).length : Number.POSITIVE_INFINITY;
    const isKept = length <= this.#characters;
    if (isKept) this.#characters -= length;
    const { type, state_key: stateKey, content } = event;
    const unsigned = event["unsigned"] as { prev_content?: { membership?: unknown } } | undefined;
    return {
      id: event["event_id"] as EventId,
      member: type === "m.room.member" && typeof stateKey === "string" ? stateKey : undefined,
      membershipBefore: unsigned?.prev_content?.membership,
      redacts: type === "m.room.redaction" ? redactedBy(event, membersOf(content)) : undefined,
      raw: isKept ? event : undefined,
      page,
    };
  }
}

export type EventsByRoom = ReadonlyMap<RoomId, readonly FoundEvent[]>;

/** The events while the ghost was a member, its own joins and leaves included: a homeserver sends no others. */
export function whileMember(events: readonly FoundEvent[], ghost: GhostMxid): FoundEvent[] {
  const kept: FoundEvent[] = [];
  let isInside = true;
  for (const event of events.toReversed()) {
    if (event.member === ghost) {
      kept.push(event);
      isInside = event.membershipBefore === "join";
    } else if (isInside) {
      kept.push(event);
    }
  }
  return kept.reverse();
}

/** Merges two views of one room: what only the second has goes right before what both have next. */
function mergeViews(first: readonly FoundEvent[], second: readonly FoundEvent[]): FoundEvent[] {
  const place = new Map(first.map(({ id }, index) => [id, index]));
  const merged: FoundEvent[] = [];
  let waiting: FoundEvent[] = [];
  let next = 0;
  for (const event of second) {
    const index = place.get(event.id);
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

export function mergeByRoom(windows: readonly EventsByRoom[]): EventsByRoom {
  const merged = new Map<RoomId, readonly FoundEvent[]>();
  for (const window of windows) {
    for (const [room, events] of window) {
      const known = merged.get(room);
      merged.set(room, known === undefined ? events : mergeViews(known, events));
    }
  }
  return merged;
}

/** The events without memberships that later or newer ones supersede. */
export function withoutSuperseded(window: EventsByRoom, newer: EventsByRoom = new Map()): EventsByRoom {
  const kept = new Map<RoomId, readonly FoundEvent[]>();
  for (const [room, events] of window) {
    const superseded = new Set((newer.get(room) ?? []).map(({ member }) => member));
    const current = events.toReversed().filter(({ member }) => {
      if (member === undefined) return true;
      const isLast = !superseded.has(member);
      superseded.add(member);
      return isLast;
    });
    kept.set(room, current.reverse());
  }
  return kept;
}

export function unknownIn(window: EventsByRoom, isKnown: (event: EventId) => boolean): EventsByRoom {
  const left = [...window].map(([room, events]) => [room, events.filter(({ id }) => !isKnown(id))] as const);
  return new Map(left.filter(([, events]) => events.length > 0));
}

/** What was lost, without what redactions in these windows remove: they may have been handled before what they remove is. */
export function withoutRedacted(lost: EventsByRoom, ...windows: readonly EventsByRoom[]): EventsByRoom {
  const left = [...lost].map(([room, events]) => {
    const redacted = new Set(windows.flatMap((one) => one.get(room) ?? []).map(({ redacts }) => redacts));
    return [room, events.filter(({ id }) => !redacted.has(id))] as const;
  });
  return new Map(left);
}

/** The order of the rooms of these events, each from the first of them on. */
export function orderOf(window: EventsByRoom, found: readonly RawEvent[]): RoomOrder {
  const ids = new Set(found.map((event) => event["event_id"]));
  const order = new Map<RoomId, readonly EventId[]>();
  for (const [room, events] of window) {
    const inOrder = events.map(({ id }) => id);
    const first = inOrder.findIndex((id) => ids.has(id));
    if (first >= 0) order.set(room, inOrder.slice(first));
  }
  return order;
}
