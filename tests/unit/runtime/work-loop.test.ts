import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { WorkLoop } from "../../../src/runtime/work-loop.ts";
import { ManualClock, settled } from "../../support/manual-clock.ts";

function loop(round: () => Promise<boolean>) {
  const clock = new ManualClock(0);
  const errors: unknown[] = [];
  const made = new WorkLoop({ clock, round, onError: (error) => errors.push(error) });
  return { clock, errors, loop: made };
}

describe("work loop", () => {
  it("a work loop polls once a second, and at once while more is due", async () => {
    let rounds = 0;
    const more = [true, true, false, false];
    const { clock, loop: running } = loop(async () => more[rounds++] ?? false);
    running.start();
    running.start();
    await settled();
    assert.equal(rounds, 3);
    await clock.advance(999);
    assert.equal(rounds, 3);
    await clock.advance(1);
    assert.equal(rounds, 4);
    await running.drain();
  });

  it("a wake starts a round before its time, and one during a round is not lost", async () => {
    let rounds = 0;
    const release: (() => void)[] = [];
    const { loop: running } = loop(
      () =>
        new Promise((resolve) => {
          rounds += 1;
          release.push(() => resolve(false));
        }),
    );
    running.start();
    running.wake();
    running.wake();
    assert.equal(rounds, 1);
    release[0]?.();
    await settled();
    assert.equal(rounds, 2, "the wake during the first round starts the second");
    release[1]?.();
    await settled();
    assert.equal(rounds, 2, "two wakes make one round");
    running.wake();
    await settled();
    assert.equal(rounds, 3, "a wake while it waits starts one");
    release[2]?.();
    await running.drain();
  });

  it("a round that throws is reported and retried with growing waits, even when woken", async () => {
    let rounds = 0;
    const {
      clock,
      errors,
      loop: running,
    } = loop(async () => {
      rounds += 1;
      throw new Error("the database is away");
    });
    running.start();
    for (const waitMs of [1_000, 2_000, 2_000, 2_000]) {
      await settled();
      running.wake();
      await settled();
      assert.deepEqual(clock.wakeTimes, [clock.now() + waitMs]);
      await clock.advance(waitMs);
    }
    assert.equal(rounds, 5);
    assert.equal(errors.length, 5);
    await running.drain();
  });

  it("a drain waits for the round in flight and starts no other", async () => {
    let rounds = 0;
    let release: (() => void) | undefined;
    const { loop: running } = loop(
      () =>
        new Promise((resolve) => {
          rounds += 1;
          release = () => resolve(true);
        }),
    );
    running.start();
    let drained = false;
    const drain = running.drain().then(() => {
      drained = true;
    });
    await settled();
    assert.equal(drained, false);
    release?.();
    await drain;
    assert.equal(rounds, 1);
  });
});
