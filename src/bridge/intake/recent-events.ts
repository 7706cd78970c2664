// Encrypted events that came while no machine of their ghosts answered in this process, as after a failover of the
// database: the first attempt to open them need not fetch them again.
// Invariant: they are in memory alone and bounded in number; each is taken once and within ten seconds.
import type { Clock } from "../../domain/clock.ts";
import type { EventId } from "../../domain/identifiers.ts";
import type { UnknownObject } from "../../domain/json.ts";
import type { EncryptedEvent } from "./read-events.ts";

const EVENTS_MAX = 256;
const KEPT_MS = 10_000;

export class RecentEvents {
  readonly #clock: Pick<Clock, "now">;
  readonly #kept = new Map<EventId, { readonly raw: UnknownObject; readonly until: number }>();

  constructor(clock: Pick<Clock, "now">) {
    this.#clock = clock;
  }

  keep(events: readonly Pick<EncryptedEvent, "event" | "raw">[]): void {
    const now = this.#clock.now();
    for (const { event, raw } of events) {
      this.#kept.delete(event);
      this.#kept.set(event, { raw, until: now + KEPT_MS });
    }
    for (const [event, { until }] of this.#kept) {
      if (this.#kept.size <= EVENTS_MAX && until > now) break;
      this.#kept.delete(event);
    }
  }

  /** The event as the homeserver sent it, unless that was too long ago or it was taken before. */
  take(event: EventId): UnknownObject | undefined {
    const found = this.#kept.get(event);
    this.#kept.delete(event);
    return found !== undefined && found.until > this.#clock.now() ? found.raw : undefined;
  }
}
