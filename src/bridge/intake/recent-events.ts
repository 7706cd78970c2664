// Encrypted events that came while no machine of their ghosts answered in this process, as after a failover of the
// database: the first attempt to open them need not fetch them again.
// Invariant: they are in memory alone and bounded in number; each is taken once and within ten seconds.
import { LRUCache } from "lru-cache";
import type { Clock } from "../../domain/clock.ts";
import type { EventId } from "../../domain/identifiers.ts";
import type { UnknownObject } from "../../domain/json.ts";
import type { EncryptedEvent } from "./read-events.ts";

export type RecentEvents = ReturnType<typeof createRecentEvents>;

export function createRecentEvents(clock: Pick<Clock, "now">) {
  const kept = new LRUCache<EventId, UnknownObject>({ max: 256, ttl: 10_000, ttlResolution: 0, perf: clock });
  return {
    keep(events: readonly Pick<EncryptedEvent, "event" | "raw">[]): void {
      kept.purgeStale();
      for (const { event, raw } of events) kept.set(event, raw);
    },

    /** The event as the homeserver sent it, unless that was too long ago or it was taken before. */
    take(event: EventId): UnknownObject | undefined {
      const raw = kept.get(event);
      kept.delete(event);
      return raw;
    },
  };
}
