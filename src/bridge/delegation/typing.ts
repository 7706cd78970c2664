// Shows in a room that a ghost is typing while its agent works. Invariant: an answer that comes within a second costs the
// homeserver no request for it. After a failover, those would be half of all requests.
import type { Clock } from "../../domain/clock.ts";
import type { GhostMxid, RoomId } from "../../domain/identifiers.ts";
import { ENDED_EARLY } from "../../runtime/concurrency.ts";

const AFTER_MS = 1_000;
/** A status message follows before it ends. */
const SHOWN_MS = 8_000;

/** @param show tells the homeserver for how long the ghost is typing, 0 to end it; never rejects */
export function createTyping(clock: Clock, show: (room: RoomId, ghost: GhostMxid, ms: number) => unknown) {
  const typing = new Map<string, { readonly ended: AbortController; readonly shownAt: number }>();
  return (room: RoomId, ghost: GhostMxid, isTyping: boolean): void => {
    const key = `${ghost} ${room}`;
    const known = typing.get(key);
    if (isTyping && (known === undefined || clock.now() >= known.shownAt + SHOWN_MS)) {
      const ended = new AbortController();
      typing.set(key, { ended, shownAt: clock.now() + AFTER_MS });
      const shown = () => show(room, ghost, SHOWN_MS);
      void clock.sleep(AFTER_MS, ended.signal).then(shown, () => undefined);
    } else if (!isTyping && known !== undefined) {
      typing.delete(key);
      known.ended.abort(ENDED_EARLY);
      if (clock.now() >= known.shownAt) void show(room, ghost, 0);
    }
  };
}
