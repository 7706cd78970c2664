import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { allEnded, Batches } from "../../../src/runtime/concurrency.ts";
import { settled } from "../../support/manual-clock.ts";

describe("Batches", () => {
  it("works on what comes during a batch in the next one, and gives each item its own result", async () => {
    const batches: (readonly number[])[] = [];
    const gates = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const work = new Batches(async (items: readonly number[]) => {
      batches.push(items);
      await gates[batches.length - 1]?.promise;
      return items.map((item) => item * 10);
    });
    const results = Promise.all([1, 2, 3].map((item) => work.run(item)));
    assert.deepEqual(batches, [[1]]);
    gates[0]?.resolve();
    gates[1]?.resolve();
    assert.deepEqual(await results, [10, 20, 30]);
    assert.deepEqual(batches, [[1], [2, 3]]);
  });

  it("rejects every item of a batch that fails, and works on the next one", async () => {
    let fails = true;
    const work = new Batches(async (items: readonly number[]) => {
      await Promise.resolve();
      if (fails && items.includes(2)) throw new Error("the connection broke");
      return items;
    });
    const outcomes = await Promise.allSettled([1, 2, 3].map((item) => work.run(item)));
    assert.deepEqual(
      outcomes.map(({ status }) => status),
      ["fulfilled", "rejected", "rejected"],
    );
    fails = false;
    assert.equal(await work.run(4), 4);
  });
});

describe("allEnded", () => {
  it("all work ends before its first failure is reported", async () => {
    let ended = false;
    const slow = settled().then(() => {
      ended = true;
    });
    await assert.rejects(allEnded([Promise.reject(new Error("first")), slow]), /first/);
    assert.equal(ended, true);
  });
});
