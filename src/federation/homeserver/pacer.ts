// The pace of writes to a homeserver, shared by everybody who writes to it in this process.
// Invariant: between the beginnings of two writes lies at least the configured time.
import type { Clock } from "../../domain/clock.ts";

export class Pacer {
  readonly #clock: Clock;
  readonly #paceMs: number;
  #nextAt = 0;

  constructor(clock: Clock, paceMs: number) {
    this.#clock = clock;
    this.#paceMs = paceMs;
  }

  /** Resolves when the caller may write. */
  async turn(): Promise<void> {
    if (this.#paceMs === 0) return;
    const now = this.#clock.now();
    const at = Math.max(now, this.#nextAt);
    this.#nextAt = at + this.#paceMs;
    if (at > now) await this.#clock.sleep(at - now);
  }
}
