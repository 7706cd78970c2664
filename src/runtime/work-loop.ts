// The loop that workers of the bridge and the issuer run: look for due work, do it, look again when woken or after a
// while. Invariants: one round at a time; a wake during a round starts the next one at once; a round that throws is
// reported and retried after a back-off; drain() resolves when the round in flight has ended, and none starts after it.
import type { Clock } from "../domain/clock.ts";
import { type Backoff, backoffMs } from "./backoff.ts";
import { ENDED_EARLY } from "./concurrency.ts";

export interface WorkLoopOptions {
  readonly clock: Clock;
  /** One round; true when more may be due at once. The signal aborts when the loop drains: claim nothing more then. */
  readonly round: (signal: AbortSignal) => Promise<unknown>;
  readonly onError: (error: unknown) => void;
  readonly pollIntervalMs?: number;
  /** The wait after each round that threw; without it the waits double, up to 2 s. */
  readonly errorWaitMs?: number;
}

/** The longest wait after rounds that threw, one after another: about as long as work waits beyond a failover of the database. */
const ERROR_WAIT_MS_MAX = 2_000;

export class WorkLoop {
  readonly #options: WorkLoopOptions;
  readonly #pollIntervalMs: number;
  readonly #backoff: Backoff;
  readonly #draining = new AbortController();
  #woken = false;
  #interrupt: (() => void) | undefined;
  #running: Promise<void> | undefined;

  constructor(options: WorkLoopOptions) {
    this.#options = options;
    this.#pollIntervalMs = options.pollIntervalMs ?? 1_000;
    const { errorWaitMs = this.#pollIntervalMs } = options;
    this.#backoff = { firstMs: errorWaitMs, maxMs: options.errorWaitMs ?? ERROR_WAIT_MS_MAX };
  }

  /** Aborts when the loop drains. */
  get draining(): AbortSignal {
    return this.#draining.signal;
  }

  start(): void {
    this.#running ??= this.#run();
  }

  wake(): void {
    this.#woken = true;
    this.#interrupt?.();
  }

  async drain(): Promise<void> {
    this.#draining.abort();
    this.#interrupt?.();
    await this.#running;
  }

  async #run(): Promise<void> {
    let failures = 0;
    while (!this.#draining.signal.aborted) {
      this.#woken = false;
      let more = false;
      try {
        more = (await this.#options.round(this.#draining.signal)) === true;
        failures = 0;
      } catch (error) {
        failures += 1;
        this.#options.onError(error);
      }
      if (more) continue;
      const delayMs = failures === 0 ? this.#pollIntervalMs : backoffMs(this.#backoff, failures - 1);
      await this.#wait(delayMs, failures > 0);
    }
  }

  /** After a failure a wake does not cut the wait short: a failing store is not to be hammered by arrivals. */
  async #wait(delayMs: number, failed: boolean): Promise<void> {
    if (this.#draining.signal.aborted || (this.#woken && !failed)) return;
    const waiting = new AbortController();
    this.#interrupt = () => {
      if (!failed || this.#draining.signal.aborted) waiting.abort(ENDED_EARLY);
    };
    await this.#options.clock.sleep(delayMs, waiting.signal).catch(() => undefined);
    this.#interrupt = undefined;
  }
}
