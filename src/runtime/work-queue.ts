// Work that a store hands out under leases, claimed when due, when a slot is free, when woken. Invariants: never more than
// `concurrency` items in progress; an item waits for no other; one that another process holds by now is dropped without a
// word; any other failure is reported, and the item is put off or left to its lease; no claim begins after a drain began.
import type { Clock } from "../domain/clock.ts";
import { isLeaseLost } from "../domain/errors.ts";
import { allEnded } from "./concurrency.ts";
import { WorkLoop } from "./work-loop.ts";

export interface WorkQueueOptions<Item> {
  readonly clock: Clock;
  readonly concurrency: number;
  /** @param inProgress what was claimed before and has not ended */
  readonly claim: (limit: number, inProgress: readonly Item[]) => Promise<readonly Item[]>;
  /** Does one item. The signal aborts when the queue drains: end requests in flight, and give back what is not done. */
  readonly work: (item: Item, draining: AbortSignal) => Promise<void>;
  readonly onError: (error: unknown) => void;
  /** Has an item whose work failed become due before its lease ends. */
  readonly putOff?: (item: Item) => Promise<void>;
  /** Gives back what a claim that was under way brings after the drain began. Without it they are begun, under an aborted signal. */
  readonly giveBack?: (items: readonly Item[]) => Promise<void>;
}

export class WorkQueue<Item> {
  readonly #options: WorkQueueOptions<Item>;
  readonly #loop: WorkLoop;
  readonly #inProgress = new Set<Promise<void>>();
  readonly #items = new Set<Item>();
  #isOpen = false;
  #isClaiming = false;

  constructor(options: WorkQueueOptions<Item>) {
    this.#options = options;
    this.#loop = new WorkLoop({
      clock: options.clock,
      round: () => this.#fill(),
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
  async round(): Promise<boolean> {
    const { claim, concurrency } = this.#options;
    const claimed = await claim(concurrency, [...this.#items]);
    await allEnded(claimed.map((item) => this.#do(item)));
    return claimed.length === concurrency;
  }

  /** Fills the free slots. Each item that ends wakes the loop, so more is never due at once. */
  async #fill(): Promise<false> {
    const { claim, concurrency, giveBack } = this.#options;
    const limit = concurrency - this.#inProgress.size;
    if (limit <= 0) return false;
    this.#isClaiming = true;
    const claimed = await claim(limit, [...this.#items]).finally(() => {
      this.#isClaiming = false;
    });
    if (this.#loop.draining.aborted && giveBack !== undefined) await giveBack(claimed);
    else for (const item of claimed) this.#begin(this.#do(item));
    return false;
  }

  #begin(work: Promise<void>): void {
    const ended = work.catch(this.#options.onError).finally(() => {
      this.#inProgress.delete(ended);
      this.wake();
    });
    this.#inProgress.add(ended);
  }

  async #do(item: Item): Promise<void> {
    const { work, putOff } = this.#options;
    this.#items.add(item);
    try {
      await work(item, this.#loop.draining);
    } catch (error) {
      if (isLeaseLost(error)) return;
      // Where that fails too, its lease ends.
      await putOff?.(item).catch(() => undefined);
      throw error;
    } finally {
      this.#items.delete(item);
    }
  }
}
