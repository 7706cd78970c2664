// Repeats a partner's attempts while it is contained, restored or removed, and records when each kind was refused
// for the first time and when it was last let in.
// Invariants: nothing but counters, times and codes is kept; an attempt without an answer counts neither way.
import type { Clock } from "../../src/domain/clock.ts";
import type { PlaneName } from "../../src/federation/plane-order.ts";
import { pollFor } from "../lab.ts";

/** The outcome of one attempt. */
export interface AttemptFinding {
  readonly verdict: "open" | "closed" | "unknown";
  readonly layer: string;
  readonly status: number | null;
  readonly reason: string | null;
}

/** Something that the partner keeps trying. */
export interface WatchedAttempt {
  readonly kind: string;
  /** The plane that is the first to refuse it; null where none is concerned. */
  readonly plane: PlaneName | null;
  /** Pause between two attempts; 50 ms when absent. */
  readonly pauseMs?: number;
  readonly attempt: () => Promise<AttemptFinding>;
}

/** A finding, and how long after the count began its answer arrived. */
export interface Timed extends AttemptFinding {
  readonly afterMs: number;
}

/** The attempts of one kind since the count began. */
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

type Tally = { -readonly [Field in Exclude<keyof Observed, "kind" | "plane">]: Observed[Field] };

const emptyTally = (): Tally => ({
  ...{ passed: 0, refused: 0, unclear: 0 },
  ...{ firstPass: null, lastPass: null, firstRefusal: null, lastRefusal: null },
});

/** Whether attempts of this kind are refused and none was let in since. */
export function isShut({ lastPass, lastRefusal }: Observed): boolean {
  return lastRefusal !== null && (lastPass === null || lastRefusal.afterMs > lastPass.afterMs);
}

export class AttemptWatch {
  readonly #attempts: readonly WatchedAttempt[];
  readonly #clock: Clock;
  readonly #tallies = new Map<string, Tally>();
  readonly #stop = new AbortController();
  readonly #loops: Promise<void>[] = [];
  #countedSince: number;

  constructor(attempts: readonly WatchedAttempt[], clock: Clock) {
    this.#attempts = attempts;
    this.#clock = clock;
    this.#countedSince = clock.now();
  }

  start(): void {
    for (const { kind } of this.#attempts) this.#tallies.set(kind, emptyTally());
    this.#loops.push(...this.#attempts.map((attempt) => this.#keepTrying(attempt)));
  }

  /** Forgets earlier attempts and counts from now on; returns the time. */
  countFromNow(): number {
    this.#countedSince = this.#clock.now();
    for (const { kind } of this.#attempts) this.#tallies.set(kind, emptyTally());
    return this.#countedSince;
  }

  /** Waits until `isSo` holds of every kind of attempt; false when it does not within the time. */
  async until(isSo: (observed: Observed) => boolean, timeoutMs: number): Promise<boolean> {
    const times = { timeoutMs, everyMs: POLL_MS };
    return (await pollFor(() => this.observed().every(isSo) || undefined, times, this.#clock)) ?? false;
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
      const since = this.#countedSince;
      const finding = await attempt().catch(
        (): AttemptFinding => ({ verdict: "unknown", layer: "network", status: null, reason: null }),
      );
      // An attempt that was in flight when the count began belongs to neither side of it.
      if (since === this.#countedSince) this.#count(kind, finding);
      await this.#clock.sleep(pauseMs, this.#stop.signal).catch(() => undefined);
    }
  }

  #count(kind: string, { verdict, layer, status, reason }: AttemptFinding): void {
    const tally = this.#tallies.get(kind);
    if (tally === undefined) return;
    const timed: Timed = { verdict, layer, status, reason, afterMs: this.#clock.now() - this.#countedSince };
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
