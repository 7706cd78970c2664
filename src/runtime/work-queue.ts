// Work that a store hands out under leases: claimed when it is due, done side by side, claimed again when a slot is
// free, when woken, or after a while. Invariants: never more than `concurrency` items in progress; an item waits for no
// other item, so that one that hangs delays only itself; an item that another process holds by now is dropped without a
// word; any other failure of an item is reported and leaves it to its lease; a claim that fails backs the next ones off;
// nothing is claimed after a drain began.
import type { Clock } from "../domain/clock.ts";
import { isLeaseLost } from "../domain/errors.ts";
import { allEnded, WorkLoop } from "./work-loop.ts";

export interface WorkQueueOptions<Item> {
  readonly clock: Clock;
  /** Items in progress at a time. */
  readonly concurrency: number;
  /** Claims items that are due, `limit` at most. */
  readonly claim: (limit: number) => Promise<readonly Item[]>;
  /** Does one item. The signal aborts when the queue drains: end requests in flight, and give back what is not done. */
  readonly work: (item: Item, draining?: AbortSignal) => Promise<void>;
  /** Told of a claim, or an item, that failed. */
  readonly onError: (error: unknown) => void;
  /** Gives back items that a claim brings after the drain began. Without it they are begun, under an aborted signal. */
  readonly giveBack?: (items: readonly Item[]) => Promise<void>;
}

export class WorkQueue<Item> {
  readonly #options: WorkQueueOptions<Item>;
  readonly #loop: WorkLoop;
  readonly #inProgress = new Set<Promise<void>>();

  constructor(options: WorkQueueOptions<Item>) {
    this.#options = options;
    this.#loop = new WorkLoop({
      clock: options.clock,
      round: (signal) => this.#fill(signal),
      onError: options.onError,
    });
  }

  /** Starts claiming; a second call does nothing. */
  start(): void {
    this.#loop.start();
  }

  /** Something may be due: claim at once. */
  wake(): void {
    this.#loop.wake();
  }

  /** Claims nothing more; resolves when nothing is in progress. */
  async drain(): Promise<void> {
    await this.#loop.drain();
    await Promise.all(this.#inProgress);
  }

  /**
   * Does what is due once, for a caller that does not start the queue; true when more may be due.
   * @throws the first failure of an item, once all have ended
   */
  async round(draining?: AbortSignal): Promise<boolean> {
    const { claim, concurrency, work } = this.#options;
    const claimed = await claim(concurrency);
    await allEnded(claimed.map((item) => unlessLost(work(item, draining))));
    return claimed.length === concurrency;
  }

  /** Fills the free slots. Each item that ends wakes the loop, so more is never due at once. */
  async #fill(draining: AbortSignal): Promise<false> {
    const { claim, concurrency, giveBack } = this.#options;
    const limit = concurrency - this.#inProgress.size;
    if (limit <= 0) return false;
    const claimed = await claim(limit);
    if (draining.aborted && giveBack !== undefined) await giveBack(claimed);
    else for (const item of claimed) this.#begin(item, draining);
    return false;
  }

  #begin(item: Item, draining: AbortSignal): void {
    const { work, onError } = this.#options;
    const ended = unlessLost(work(item, draining))
      .catch(onError)
      .finally(() => {
        this.#inProgress.delete(ended);
        this.wake();
      });
    this.#inProgress.add(ended);
  }
}

async function unlessLost(work: Promise<void>): Promise<void> {
  try {
    await work;
  } catch (error) {
    if (!isLeaseLost(error)) throw error;
  }
}
