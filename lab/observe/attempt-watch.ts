// Watches from outside, as the partner, while its operator's counterpart breaks the glass: when is each kind of
// attempt refused for the first time, and when did one last get through? Invariants: nothing but counters,
// times and codes is kept; an attempt that nobody answered counts neither way.
import type { Clock } from "../../src/domain/clock.ts";
import type { PlaneName } from "../../src/federation/plane-order.ts";

/** What one attempt came to. */
export interface AttemptFinding {
  readonly verdict: "open" | "closed" | "unknown";
  readonly layer: string;
  readonly status: number | null;
  readonly reason: string | null;
}

/** Something that the partner keeps trying. */
export interface WatchedAttempt {
  readonly kind: string;
  /** The plane that is the first to stop it; null where none has anything to do with it. */
  readonly plane: PlaneName | null;
  /** Rest between two of them; 50 ms when absent. */
  readonly pauseMs?: number;
  readonly attempt: () => Promise<AttemptFinding>;
}

/** A verdict, and how long after the decision its answer was there. */
export interface Timed extends AttemptFinding {
  readonly afterMs: number;
}

/** Of one kind of attempt, since the decision. */
export interface Observed {
  readonly kind: string;
  readonly plane: PlaneName | null;
  readonly passed: number;
  readonly refused: number;
  readonly unclear: number;
  readonly firstPass: Timed | null;
  readonly lastPass: Timed | null;
  readonly firstRefusal: Timed | null;
  readonly lastRefusal: Timed | null;
}

const PAUSE_MS = 50;
const POLL_MS = 20;

interface Tally {
  passed: number;
  refused: number;
  unclear: number;
  firstPass: Timed | null;
  lastPass: Timed | null;
  firstRefusal: Timed | null;
  lastRefusal: Timed | null;
}

const emptyTally = (): Tally => ({
  ...{ passed: 0, refused: 0, unclear: 0 },
  ...{ firstPass: null, lastPass: null, firstRefusal: null, lastRefusal: null },
});

export class Watch {
  readonly #attempts: readonly WatchedAttempt[];
  readonly #clock: Clock;
  readonly #tallies = new Map<string, Tally>();
  readonly #stop = new AbortController();
  readonly #loops: Promise<void>[] = [];
  #decidedAt: number;

  constructor(attempts: readonly WatchedAttempt[], clock: Clock) {
    this.#attempts = attempts;
    this.#clock = clock;
    this.#decidedAt = clock.now();
  }

  start(): void {
    for (const { kind } of this.#attempts) this.#tallies.set(kind, emptyTally());
    this.#loops.push(...this.#attempts.map((attempt) => this.#keepTrying(attempt)));
  }

  /** Counts from now on; returns when that is. */
  decide(): number {
    this.#decidedAt = this.#clock.now();
    for (const { kind } of this.#attempts) this.#tallies.set(kind, emptyTally());
    return this.#decidedAt;
  }

  /** Waits until `isSo` holds of every kind of attempt; false when it does not within the time. */
  async until(isSo: (observed: Observed) => boolean, timeoutMs: number): Promise<boolean> {
    const deadline = this.#clock.now() + timeoutMs;
    while (!this.observed().every(isSo)) {
      if (this.#clock.now() > deadline) return false;
      await this.#clock.sleep(POLL_MS);
    }
    return true;
  }

  async stop(): Promise<readonly Observed[]> {
    this.#stop.abort();
    await Promise.all(this.#loops);
    return this.observed();
  }

  observed(): Observed[] {
    return this.#attempts.map(({ kind, plane }) => ({
      kind,
      plane,
      ...(this.#tallies.get(kind) ?? emptyTally()),
    }));
  }

  async #keepTrying({ kind, attempt, pauseMs = PAUSE_MS }: WatchedAttempt): Promise<void> {
    while (!this.#stop.signal.aborted) {
      const decidedAt = this.#decidedAt;
      const finding = await attempt().catch(
        (): AttemptFinding => ({ verdict: "unknown", layer: "network", status: null, reason: null }),
      );
      // One that was under way when the decision fell is neither before nor after it.
      if (decidedAt === this.#decidedAt) this.#count(kind, finding);
      await this.#clock.sleep(pauseMs, this.#stop.signal).catch(() => undefined);
    }
  }

  #count(kind: string, { verdict, layer, status, reason }: AttemptFinding): void {
    const tally = this.#tallies.get(kind);
    if (tally === undefined) return;
    const timed: Timed = { verdict, layer, status, reason, afterMs: this.#clock.now() - this.#decidedAt };
    if (verdict === "open") {
      tally.passed += 1;
      tally.firstPass ??= timed;
      tally.lastPass = timed;
    } else if (verdict === "closed") {
      tally.refused += 1;
      tally.firstRefusal ??= timed;
      tally.lastRefusal = timed;
    } else {
      tally.unclear += 1;
    }
  }
}
