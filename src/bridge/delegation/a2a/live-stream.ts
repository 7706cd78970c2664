// A stream of updates that can be waited on for a while at a time. Invariants: no update is lost when a
// wait ends early; close() ends the connection whatever it is doing, and nothing rejects unheard.
import type { Clock } from "../../../domain/clock.ts";
import { resultWithin } from "../../../runtime/concurrency.ts";
import type { AgentUpdate } from "./protocol.ts";

export type LiveStream = ReturnType<typeof liveStream>;

/** @param open starts the stream; the signal it is given ends the connection */
export function liveStream(
  clock: Clock,
  parent: AbortSignal,
  open: (signal: AbortSignal) => AsyncGenerator<AgentUpdate, void>,
) {
  const controller = new AbortController();
  const updates = open(AbortSignal.any([parent, controller.signal]));
  let pending: Promise<IteratorResult<AgentUpdate, void>> | undefined;
  return {
    /** The next update; `quiet` when there is none within `waitMs` (without a limit when undefined). */
    async next(waitMs?: number): Promise<AgentUpdate | "ended" | "quiet"> {
      pending ??= updates.next();
      try {
        const next = await (waitMs === undefined ? pending : resultWithin(clock, waitMs, pending));
        if (next === undefined) return "quiet";
        pending = undefined;
        return next.done ? "ended" : next.value;
      } catch (error) {
        pending = undefined;
        throw error;
      }
    },

    close(): void {
      controller.abort(new Error("the stream was closed"));
      pending?.catch(() => undefined);
      updates.return().catch(() => undefined);
    },
  };
}
