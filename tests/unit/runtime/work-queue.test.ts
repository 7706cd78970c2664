import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { DrawbridgeError } from "../../../src/domain/errors.ts";
import { WorkQueue, type WorkQueueOptions } from "../../../src/runtime/work-queue.ts";
import { ManualClock, settled } from "../../support/manual-clock.ts";

/** A queue of numbered items that end when the test says so. */
function queue(due: number[], options: Partial<WorkQueueOptions<number>> = {}) {
  const ends = new Map<number, { resolve: () => void; reject: (error: unknown) => void }>();
  const errors: unknown[] = [];
  const clock = new ManualClock(0);
  const made = new WorkQueue<number>({
    clock,
    concurrency: 2,
    claim: async (limit) => due.splice(0, limit),
    work: (item) => new Promise((resolve, reject) => ends.set(item, { resolve, reject })),
    onError: (error) => errors.push(error),
    ...options,
  });
  const begun = () => [...ends.keys()];
  return { queue: made, due, ends, errors, clock, begun };
}

const lost = new DrawbridgeError("lease_lost", "another holds it");

describe("work queue", () => {
  it("fills a slot as soon as it is free, however long another item hangs", async () => {
    const { queue: running, ends, begun } = queue([1, 2, 3, 4]);
    running.start();
    await settled();
    ends.get(2)?.resolve();
    await settled();
    assert.deepEqual(begun(), [1, 2, 3]);
    ends.get(3)?.resolve();
    await settled();
    assert.deepEqual(begun(), [1, 2, 3, 4]);
    for (const item of [1, 4]) ends.get(item)?.resolve();
    await running.drain();
  });

  it("drops an item that another process holds, and reports any other failure", async () => {
    const { queue: running, ends, errors } = queue([1, 2]);
    running.start();
    await settled();
    const failure = new Error("the database is away");
    ends.get(1)?.reject(failure);
    ends.get(2)?.reject(lost);
    await settled();
    assert.deepEqual(errors, [failure]);
    await running.drain();
  });

  it("puts off an item whose work failed, and leaves one that another process holds", async () => {
    const putOff: number[] = [];
    const failure = new Error("the database is away");
    const {
      queue: running,
      ends,
      errors,
    } = queue([1, 2], {
      putOff: async (item) => {
        putOff.push(item);
        throw failure;
      },
    });
    running.start();
    await settled();
    ends.get(1)?.reject(failure);
    ends.get(2)?.reject(lost);
    await settled();
    assert.deepEqual([putOff, errors], [[1], [failure]]);
    await running.drain();
  });

  it("gives back what a claim brings after the drain began, and waits for what is in progress", async () => {
    const givenBack: (readonly number[])[] = [];
    let answer = (_items: number[]) => {};
    const claims = [async () => [1], () => new Promise<number[]>((resolve) => (answer = resolve))];
    const { queue: running, ends } = queue([], {
      claim: async () => (await claims.shift()?.()) ?? [],
      giveBack: async (items) => void givenBack.push(items),
    });
    running.start();
    await settled();
    running.wake();
    await settled();
    let isDrained = false;
    const drained = running.drain().then(() => {
      isDrained = true;
    });
    answer([2]);
    await settled();
    assert.deepEqual([givenBack, isDrained], [[[2]], false]);
    ends.get(1)?.resolve();
    await drained;
  });

  it("gives back what its owner claims itself after the drain began", async () => {
    const givenBack: (readonly number[])[] = [];
    const { queue: running, begun } = queue([], { giveBack: async (items) => void givenBack.push(items) });
    running.start();
    await settled();
    const use = running.reserve();
    const drained = running.drain();
    use?.(1);
    await drained;
    assert.deepEqual([begun(), givenBack], [[], [[1]]]);
  });

  it("tells the work of what its owner claimed itself that a drain began", async () => {
    let isTold = false;
    const work = (_item: number, draining?: AbortSignal) =>
      new Promise<void>((resolve) => {
        draining?.addEventListener("abort", () => {
          isTold = true;
          resolve();
        });
        if (draining === undefined) resolve();
      });
    const { queue: running } = queue([], { work });
    running.start();
    await settled();
    running.reserve()?.(1);
    await settled();
    await running.drain();
    assert.equal(isTold, true);
  });

  it("keeps a slot for what its owner claims itself, while no claim may take it", async () => {
    const { queue: running, due, ends, begun } = queue([]);
    assert.equal(running.reserve(), undefined, "before the start");
    running.start();
    assert.equal(running.reserve(), undefined, "during a claim");
    await settled();
    const [first, second] = [running.reserve(), running.reserve()];
    assert.equal(running.reserve(), undefined, "without a free slot");
    due.push(2);
    running.wake();
    await settled();
    assert.deepEqual(begun(), []);
    second?.(undefined);
    first?.(1);
    await settled();
    assert.deepEqual(begun(), [1, 2]);
    for (const { resolve } of ends.values()) resolve();
    await running.drain();
    assert.equal(running.reserve(), undefined, "after the end");
  });
});
