// A time limit on one exchange, by the injected clock. Invariant: whatever happens, the timer is stopped
// and the exchange's signal is aborted, so no connection outlives its call.
import type { Clock } from "../../../domain/clock.ts";
import { ENDED_EARLY } from "../../../runtime/concurrency.ts";

/** The reason of the abort when the time is up. */
export class TimeUp extends Error {}

export function startLimit(clock: Clock, limitMs: number, parent: AbortSignal | undefined) {
  const controller = new AbortController();
  const timer = new AbortController();
  const signal = parent === undefined ? controller.signal : AbortSignal.any([parent, controller.signal]);
  clock.sleep(limitMs, timer.signal).then(
    () => controller.abort(new TimeUp()),
    () => undefined,
  );
  const expired = new Promise<never>((_resolve, reject) => {
    const fail = () => reject(signal.reason);
    if (signal.aborted) fail();
    else signal.addEventListener("abort", fail, { once: true });
  });
  expired.catch(() => undefined);
  return {
    signal,
    /** Rejects when the signal aborts; never resolves. */
    expired,
    /** The time no longer matters; the parent's signal still does. */
    stopClock: () => timer.abort(ENDED_EARLY),
    /** The exchange is over: its connection may be dropped. */
    end: () => {
      timer.abort(ENDED_EARLY);
      controller.abort(ENDED_EARLY);
    },
  };
}
