// What ghosts read back of their rooms, made into what the transactions would have brought. Pure.
// Invariants: the events of a room stay in the homeserver's order, each once; nothing of the time when a
// ghost was not in a room is taken from what it reads; of several memberships of one user only the last
// is told, because the earlier ones are no longer so.
import type { EventId, GhostMxid, RoomId } from "../../domain/identifiers.ts";
import type { FoundEvent } from "./found-event.ts";

/** Events of rooms, oldest first in each. */
export type Window = ReadonlyMap<RoomId, readonly FoundEvent[]>;

/**
 * The events of a room's end that a ghost was there for, its own comings and goings included. A member may
 * read what was said before it came; a homeserver brings that to no appservice.
 */
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

/** Two views of one room in one: what only the second has stands right before what both have next. */
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

/** What several ghosts read, as one. */
export function mergeWindows(windows: readonly Window[]): Window {
  const merged = new Map<RoomId, readonly FoundEvent[]>();
  for (const window of windows) {
    for (const [room, events] of window) {
      const known = merged.get(room);
      merged.set(room, known === undefined ? events : mergeViews(known, events));
    }
  }
  return merged;
}

/**
 * The window without memberships that are no longer so, by what came after them in it or in a newer one.
 */
export function withoutSuperseded(window: Window, newer: Window = new Map()): Window {
  const kept = new Map<RoomId, readonly FoundEvent[]>();
  for (const [room, events] of window) {
    const told = new Set((newer.get(room) ?? []).map(({ member }) => member));
    const current = events.toReversed().filter(({ member }) => {
      if (member === undefined) return true;
      const isLast = !told.has(member);
      told.add(member);
      return isLast;
    });
    kept.set(room, current.reverse());
  }
  return kept;
}

/** The events of a window that `isKnown` does not hold for. */
export function unknownIn(window: Window, isKnown: (event: EventId) => boolean): Window {
  const left = [...window].map(([room, events]) => [room, events.filter(({ id }) => !isKnown(id))] as const);
  return new Map(left.filter(([, events]) => events.length > 0));
}
