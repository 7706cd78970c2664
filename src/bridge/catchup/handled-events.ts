// The events that transactions brought lately, so that what is read back besides is known to be lost.
// Invariant: an event stays known for two whole turns after the one it came in, unless there are more of
// them than the bound; one that is forgotten is handed to intake again, which knows it by its own keys.
import type { EventId } from "../../domain/identifiers.ts";

const EVENTS_MAX = 100_000;

export class HandledEvents {
  #present = new Set<EventId>();
  #past: readonly ReadonlySet<EventId>[] = [];

  add(events: Iterable<EventId>): void {
    for (const event of events) this.#present.add(event);
    if (this.#present.size > EVENTS_MAX) this.turn();
  }

  has(event: EventId): boolean {
    return this.#present.has(event) || this.#past.some((events) => events.has(event));
  }

  /** Forgets what came before the last turn but one. */
  turn(): void {
    this.#past = [this.#present, ...this.#past.slice(0, 1)];
    this.#present = new Set();
  }
}
