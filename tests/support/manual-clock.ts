// A clock that stands still until the test moves it, and the machine's own with waits that the test ends.
import { type Clock, systemClock } from "../../src/domain/clock.ts";

interface Sleeper {
  readonly at: number;
  readonly wake: () => void;
}

export class ManualClock implements Clock {
  #now: number;
  #sleepers: Sleeper[] = [];

  constructor(now: number) {
    this.#now = now;
  }

  now(): number {
    return this.#now;
  }

  /** When the sleepers of this moment will wake, earliest first. */
  get wakeTimes(): readonly number[] {
    return this.#sleepers.map(({ at }) => at).sort((left, right) => left - right);
  }

  sleep(delayMs: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) {
        reject(signal.reason);
        return;
      }
      const sleeper = { at: this.#now + delayMs, wake: resolve };
      this.#sleepers.push(sleeper);
      signal?.addEventListener("abort", () => {
        this.#sleepers = this.#sleepers.filter((one) => one !== sleeper);
        reject(signal.reason);
      });
    });
  }

  /** Moves time, wakes whom it is due for, and lets them run. */
  async advance(ms: number): Promise<void> {
    this.#now += ms;
    const due = this.#sleepers.filter(({ at }) => at <= this.#now);
    this.#sleepers = this.#sleepers.filter(({ at }) => at > this.#now);
    for (const { wake } of due) wake();
    await settled();
  }
}

/** Below it a wait takes its time: a connection to a database ends when nothing is said on it for a second. */
const LONG_MS = 1_000;

/** So much slower the clock runs, so that a machine that is busy makes nothing late. */
const SLOWNESS = 20;

/** A slow clock, on which a longer wait ends only when the test sets it ahead: nothing is found by polling. */
export class SkippingClock implements Clock {
  readonly #begun = systemClock.now();
  readonly #long = new ManualClock(this.#begun);
  #aheadMs = 0;
  #isFree = false;
  /** How long each wait was to be, in the order in which they began. */
  readonly waits: number[] = [];

  now(): number {
    return this.#begun + Math.floor((systemClock.now() - this.#begun) / SLOWNESS) + this.#aheadMs;
  }

  sleep(delayMs: number, signal?: AbortSignal): Promise<void> {
    this.waits.push(delayMs);
    if (delayMs < LONG_MS || this.#isFree) return systemClock.sleep(delayMs, signal);
    return this.#long.sleep(this.now() + delayMs - this.#long.now(), signal);
  }

  /** Sets the clock ahead, and ends the waits that are over by then. */
  async skip(ms: number): Promise<void> {
    this.#aheadMs += ms;
    await this.#long.advance(this.now() - this.#long.now());
  }

  /** Ends every wait; later ones take their time. For the end of a test. */
  async free(): Promise<void> {
    this.#isFree = true;
    await this.#long.advance(Number.MAX_SAFE_INTEGER - this.#long.now());
  }
}

/** Resolves when everything that can run without time or I/O has run. */
export function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
