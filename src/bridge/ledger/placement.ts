// Where each new delegation stands in its room, or why it is refused. Pure.
// Invariants: a pair that is known already is dropped; refusals take no place; the delegations of one
// event share its place in the room and are told apart by their ordinals.
import type { EventId } from "../../domain/identifiers.ts";
import type { Admission, NewDelegation } from "./admission.ts";
import type { TerminalReason } from "./states.ts";

/** What placing needs to know, as the database says it. */
export interface KnownPlaces {
  /** Room, encrypted, open delegations, next place. */
  readonly rooms: readonly (readonly [string, boolean, number, number])[] | null;
  /** Event and ghost of delegations that exist. */
  readonly pairs: readonly (readonly [string, string])[] | null;
}

export interface Placed {
  readonly job: NewDelegation;
  seq: number | null;
  ordinal: number | null;
  siblings: number | null;
  readonly denied: TerminalReason | null;
}

/** Gives every new pair its place in its room, or the reason it has none. */
export function place(
  jobs: readonly NewDelegation[],
  known: KnownPlaces,
  openBefore: number,
  capacity: Admission["capacity"],
): Placed[] {
  const pairs = new Set((known.pairs ?? []).map(([event, ghost]) => `${event} ${ghost}`));
  const open = new Map((known.rooms ?? []).map(([room, , count]) => [room, count]));
  const next = new Map((known.rooms ?? []).map(([room, , , seq]) => [room, seq]));
  let openGlobal = openBefore;
  const placed: Placed[] = [];
  const ofEvent = new Map<EventId, Placed[]>();
  for (const job of jobs) {
    const pair = `${job.event} ${job.ghost}`;
    if (pairs.has(pair)) continue;
    pairs.add(pair);
    const openHere = open.get(job.room) ?? 0;
    const denied =
      openHere >= capacity.room
        ? "room_capacity_exceeded"
        : openGlobal >= capacity.global
          ? "global_capacity_exceeded"
          : null;
    const entry: Placed = { job, seq: null, ordinal: null, siblings: null, denied };
    placed.push(entry);
    if (denied !== null) continue;
    open.set(job.room, openHere + 1);
    openGlobal += 1;
    const siblings = ofEvent.get(job.event) ?? [];
    const seq = siblings[0]?.seq ?? next.get(job.room) ?? 1;
    if (siblings.length === 0) next.set(job.room, seq + 1);
    entry.seq = seq;
    entry.ordinal = siblings.length;
    siblings.push(entry);
    for (const sibling of siblings) sibling.siblings = siblings.length;
    ofEvent.set(job.event, siblings);
  }
  return placed;
}

/** Distinct rooms in ascending order with how many events and jobs each admits. */
export function roomTotals(placed: readonly Placed[]): { rooms: string[]; events: number[]; jobs: number[] } {
  const totals = new Map<string, { events: number; jobs: number }>();
  for (const { job, seq, ordinal } of placed) {
    const total = totals.get(job.room) ?? { events: 0, jobs: 0 };
    totals.set(job.room, {
      events: total.events + (ordinal === 0 ? 1 : 0),
      jobs: total.jobs + (seq === null ? 0 : 1),
    });
  }
  const rooms = [...totals.keys()].sort();
  return {
    rooms,
    events: rooms.map((room) => totals.get(room)?.events ?? 0),
    jobs: rooms.map((room) => totals.get(room)?.jobs ?? 0),
  };
}
