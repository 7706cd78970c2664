// The loop that workers of the bridge and the issuer run: look for due work, do it, look again when woken or after a
// while. Invariants: one round at a time; a wake during a round starts the next one at once; a round that throws is
// reported and retried after a back-off; drain() resolves when the round in flight has ended, and none starts after it.
import type { Clock } from "../domain/clock.ts";
import { isLeaseLost } from "../domain/errors.ts";
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

/** Waits until all of a round's work has ended; then rejects with the first failure, if there was one. */
export async function allEnded(work: readonly Promise<void>[]): Promise<void> {
  const results = await Promise.allSettled(work);
  const failed = results.find((result) => result.status === "rejected");
  if (failed !== undefined) throw failed.reason;
}

// Work that a store hands out under leases, claimed when due, when a slot is free, when woken. Invariants: never more than
// `concurrency` items in progress; an item waits for no other; one that another process holds by now is dropped without a
// word; any other failure is reported, and the item is put off or left to its lease; nothing is claimed after a drain began.

export interface WorkQueueOptions<Item> {
  readonly clock: Clock;
  readonly concurrency: number;
  readonly claim: (limit: number) => Promise<readonly Item[]>;
  /** Does one item. The signal aborts when the queue drains: end requests in flight, and give back what is not done. */
  readonly work: (item: Item, draining?: AbortSignal) => Promise<void>;
  readonly onError: (error: unknown) => void;
  /** Has an item whose work failed become due before its lease ends. */
  readonly putOff?: (item: Item) => Promise<void>;
  /** Gives back items that are claimed after the drain began. Without it they are begun, under an aborted signal. */
  readonly giveBack?: (items: readonly Item[]) => Promise<void>;
}

export class WorkQueue<Item> {
  readonly #options: WorkQueueOptions<Item>;
  readonly #loop: WorkLoop;
  readonly #inProgress = new Set<Promise<void>>();
  #isOpen = false;
  #isClaiming = false;

  constructor(options: WorkQueueOptions<Item>) {
    this.#options = options;
    this.#loop = new WorkLoop({
      clock: options.clock,
      round: (signal) => this.#fill(signal),
      onError: options.onError,
    });
  }

  start(): void {
    this.#isOpen = true;
    this.#loop.start();
  }

  wake(): void {
    this.#loop.wake();
  }

  async drain(): Promise<void> {
    this.#isOpen = false;
    await this.#loop.drain();
    await Promise.all(this.#inProgress);
  }

  /**
   * Takes a slot for an item that the caller is about to claim itself, and returns what uses it, or without an item gives
   * it up. Undefined when no slot is free, or a claim may be about to take it.
   */
  reserve(): ((item: Item | undefined) => void) | undefined {
    const { concurrency, giveBack } = this.#options;
    if (!this.#isOpen || this.#isClaiming || this.#inProgress.size >= concurrency) return undefined;
    const { promise, resolve } = Promise.withResolvers<Item | undefined>();
    const begun = promise.then((item) => {
      if (item === undefined) return;
      return this.#isOpen || giveBack === undefined ? this.#do(item) : giveBack([item]);
    });
    this.#begin(begun);
    return resolve;
  }

  /** Does what is due once; true when more may be due. @throws the first failure of an item, once all have ended */
  async round(draining?: AbortSignal): Promise<boolean> {
    const { claim, concurrency } = this.#options;
    const claimed = await claim(concurrency);
    await allEnded(claimed.map((item) => this.#do(item, draining)));
    return claimed.length === concurrency;
  }

  /** Fills the free slots. Each item that ends wakes the loop, so more is never due at once. */
  async #fill(draining: AbortSignal): Promise<false> {
    const { claim, concurrency, giveBack } = this.#options;
    const limit = concurrency - this.#inProgress.size;
    if (limit <= 0) return false;
    this.#isClaiming = true;
    const claimed = await claim(limit).finally(() => {
      this.#isClaiming = false;
    });
    if (draining.aborted && giveBack !== undefined) await giveBack(claimed);
    else for (const item of claimed) this.#begin(this.#do(item, draining));
    return false;
  }

  #begin(work: Promise<void>): void {
    const ended = work.catch(this.#options.onError).finally(() => {
      this.#inProgress.delete(ended);
      this.wake();
    });
    this.#inProgress.add(ended);
  }

  async #do(item: Item, draining?: AbortSignal): Promise<void> {
    const { work, putOff } = this.#options;
    try {
      await work(item, draining);
    } catch (error) {
      if (isLeaseLost(error)) return;
      // Where that fails too, its lease ends.
      await putOff?.(item).catch(() => undefined);
      throw error;
    }
  }
}
