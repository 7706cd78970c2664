import assert from "node:assert/strict";
import { describe, it } from "node:test";
import * as z from "zod";
import { systemClock, systemRandom } from "../../../../src/domain/clock.ts";
import { openStateFolder } from "../../../../src/federation/state/folder.ts";
import { temporaryFolder } from "../../../support/temporary.ts";

describe("StateFolder", () => {
  it("locked lets one of several in, the next when it has ended or failed, and others elsewhere [GIT-1]", async (t) => {
    const state = openStateFolder(temporaryFolder(t), systemRandom);
    const order: string[] = [];
    const inside = Promise.withResolvers<void>();
    const waiting = Promise.withResolvers<void>();
    const first = state.locked("one", systemClock, async () => {
      order.push("first begins");
      inside.resolve();
      await waiting.promise;
      await state.locked("other", systemClock, async () => order.push("another lock"));
      order.push("first ends");
      throw new Error("the work failed");
    });
    await inside.promise;
    const second = state.locked("one", systemClock, async () => order.push("second"), waiting.resolve);
    // One that was let in too early never waits.
    void second.then(() => waiting.resolve());
    await Promise.all([assert.rejects(first, /the work failed/), second]);
    assert.deepEqual(order, ["first begins", "another lock", "first ends", "second"]);
    const lock = await state.tryLock("one");
    assert.notEqual(lock, undefined);
    await lock?.release();
  });

  it("read reports a damaged file as failed, and asks nobody to move away what is held nowhere else", (t) => {
    const state = openStateFolder(temporaryFolder(t), systemRandom);
    state.writeText("offboarding/run.json", "{");
    const damaged = { code: "state_unreadable", hint: /do not move it away/ };
    assert.throws(() => state.read(z.strictObject({}), "offboarding/run.json"), damaged);
  });
});
