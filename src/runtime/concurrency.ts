// Waiting for work with a limit of time, and running it side by side, one after another, by key, or in batches.
import type { Clock } from "../domain/clock.ts";

/** The reason of a wait that is ended early, made once: one that `abort` makes by itself captures a stack each time. */
export const ENDED_EARLY = new Error("ended early");

/** The result of the work, or undefined when it takes longer: then it goes on by itself, and its failure is nobody's. */
export async function resultWithin<T>(clock: Clock, ms: number, work: Promise<T>): Promise<T | undefined> {
  const over = new AbortController();
  const late = clock.sleep(ms, over.signal).catch(() => undefined) as Promise<undefined>;
  try {
    return await Promise.race([work, late]);
  } finally {
    over.abort(ENDED_EARLY);
    work.catch(() => undefined);
  }
}

/** The same of work that is waited for until the signal aborts. */
export async function resultUnlessAborted<T>(work: Promise<T>, signal?: AbortSignal): Promise<T | undefined> {
  const aborted = Promise.withResolvers<undefined>();
  const abort = () => aborted.resolve(undefined);
  if (signal?.aborted === true) abort();
  signal?.addEventListener("abort", abort, { once: true });
  try {
    return await Promise.race([work, aborted.promise]);
  } finally {
    signal?.removeEventListener("abort", abort);
  }
}

/** Polls until what is found is enough, or the time is over; the last finding in either case. */
export async function pollUntil<T>(
  clock: Clock,
  { withinMs, everyMs }: { readonly withinMs: number; readonly everyMs: number },
  poll: () => Promise<T>,
  isEnough: (found: T) => boolean,
): Promise<T> {
  for (const deadline = clock.now() + withinMs; ; await clock.sleep(everyMs)) {
    const found = await poll();
    if (isEnough(found) || clock.now() >= deadline) return found;
  }
}

/** Waits until all of a round's work has ended; then rejects with the first failure, if there was one. */
export async function allEnded(work: readonly Promise<void>[]): Promise<void> {
  const results = await Promise.allSettled(work);
  const failed = results.find((result) => result.status === "rejected");
  if (failed !== undefined) throw failed.reason;
}

/** Runs `work` for each item, at most `width` at a time; the first failure ends it. */
export async function mapConcurrent<Item, Result>(
  items: readonly Item[],
  width: number,
  work: (item: Item) => Promise<Result>,
): Promise<readonly Result[]> {
  const results = new Array<Result>(items.length);
  let next = 0;
  let failed = false;
  const worker = async () => {
    while (next < items.length && !failed) {
      const index = next++;
      try {
        results[index] = await work(items[index] as Item);
      } catch (error) {
        failed = true;
        throw error;
      }
    }
  };
  const workers = await Promise.allSettled(Array.from({ length: Math.min(width, items.length) }, worker));
  for (const worker of workers) if (worker.status === "rejected") throw worker.reason;
  return results;
}

/** Work that must not overlap, done in the order it was requested. Work that fails does not hold up the next. */
export class Serial {
  #last: Promise<unknown> = Promise.resolve();

  run<T>(work: () => Promise<T>): Promise<T> {
    const result = this.#last.then(work);
    this.#last = result.catch(() => undefined);
    return result;
  }

  async ended(): Promise<void> {
    await this.#last;
  }
}

/** The same for each key by itself; a key that nothing runs under is forgotten. */
export class KeyedSerial<Key> {
  readonly #last = new Map<Key, Promise<unknown>>();

  run<T>(key: Key, work: () => Promise<T>): Promise<T> {
    const result = (this.#last.get(key) ?? Promise.resolve()).then(work);
    const ended = result
      .catch(() => undefined)
      .then(() => {
        if (this.#last.get(key) === ended) this.#last.delete(key);
      });
    this.#last.set(key, ended);
    return result;
  }
}

/** Work on several items at once: those that come while a batch is worked on make the next one. */
export class Batches<Item, Result> {
  readonly #work: (items: readonly Item[]) => Promise<readonly Result[]>;
  #waiting: { readonly item: Item; readonly done: PromiseWithResolvers<Result> }[] = [];
  #isWorking = false;

  constructor(work: (items: readonly Item[]) => Promise<readonly Result[]>) {
    this.#work = work;
  }

  run(item: Item): Promise<Result> {
    const done = Promise.withResolvers<Result>();
    this.#waiting.push({ item, done });
    if (!this.#isWorking) void this.#run();
    return done.promise;
  }

  async #run(): Promise<void> {
    this.#isWorking = true;
    while (this.#waiting.length > 0) {
      const batch = this.#waiting;
      this.#waiting = [];
      try {
        const results = await this.#work(batch.map(({ item }) => item));
        for (const [index, { done }] of batch.entries()) done.resolve(results[index] as Result);
      } catch (error) {
        for (const { done } of batch) done.reject(error);
      }
    }
    this.#isWorking = false;
  }
}
