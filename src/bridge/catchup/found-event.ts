// An event that a ghost found while it read its rooms back: who and what it is, and where it can be had again.
// Invariants: what decides whether and when it is handed on stays known, whatever becomes of its content; all
// contents that are held together stay below a bound, and so does the number of events.
import type { EventId, GhostMxid, RoomId } from "../../domain/identifiers.ts";

/** An event as the homeserver gave it. */
export type RawEvent = Readonly<Record<string, unknown>>;

/** Where a page of a room's past begins, which goes backwards, and who may read it. */
export interface Page {
  readonly ghost: GhostMxid;
  readonly room: RoomId;
  readonly from: string;
}

export interface FoundEvent {
  readonly id: EventId;
  /** Whose membership it tells. */
  readonly member: string | undefined;
  /** What that was before. */
  readonly membershipBefore: unknown;
  /** Undefined when there was no room for it: it is read again. */
  readonly raw: RawEvent | undefined;
  readonly page: Page;
}

/** How much one reading of all ghosts' rooms may hold. */
export interface FoundBounds {
  /** Contents, as JSON in UTF-16 units. */
  readonly charactersMax: number;
  /** Events, with content or without. Each takes about 300 bytes. */
  readonly eventsMax: number;
}

export const FOUND_BOUNDS: FoundBounds = { charactersMax: 32 * 1024 * 1024, eventsMax: 200_000 };

export class FoundBudget {
  #characters: number;
  #events: number;

  constructor(bounds: FoundBounds = FOUND_BOUNDS) {
    this.#characters = bounds.charactersMax;
    this.#events = bounds.eventsMax;
  }

  /** No more pages are to be read. */
  get isSpent(): boolean {
    return this.#events <= 0;
  }

  /** @param isWhole whether the event has its content */
  found(event: RawEvent, page: Page, isWhole: boolean): FoundEvent {
    this.#events -= 1;
    const length = isWhole && this.#characters > 0 ? JSON.stringify(event).length : Number.POSITIVE_INFINITY;
    const isKept = length <= this.#characters;
    if (isKept) this.#characters -= length;
    const isMembership = event["type"] === "m.room.member";
    const unsigned = event["unsigned"] as { prev_content?: { membership?: unknown } } | undefined;
    return {
      id: event["event_id"] as EventId,
      member: isMembership ? String(event["state_key"]) : undefined,
      membershipBefore: unsigned?.prev_content?.membership,
      raw: isKept ? event : undefined,
      page,
    };
  }
}
