// When a room is shown that a ghost is typing.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createTyping } from "../../../../src/bridge/delegation/typing.ts";
import { ghost, room, T0 } from "../../../support/ledger.ts";
import { ManualClock } from "../../../support/manual-clock.ts";

describe("the typing notification", () => {
  function setUp() {
    const clock = new ManualClock(T0);
    const shown: number[] = [];
    const typing = createTyping(clock, async (_room, _ghost, timeoutMs) => shown.push(timeoutMs));
    return { clock, shown, typing: (isTyping: boolean) => typing(room("r"), ghost(), isTyping) };
  }

  it("is not shown when the question ends within a second", async () => {
    const { clock, shown, typing } = setUp();
    typing(true);
    await clock.advance(900);
    typing(false);
    await clock.advance(10_000);
    assert.deepEqual(shown, []);
  });

  it("is shown after a second, until the question ends", async () => {
    const { clock, shown, typing } = setUp();
    typing(true);
    await clock.advance(1_000);
    typing(true);
    await clock.advance(1_000);
    assert.deepEqual(shown, [8_000]);
    typing(false);
    typing(false);
    assert.deepEqual(shown, [8_000, 0]);
  });

  it("is shown again for a later question when it had ended by itself", async () => {
    const { clock, shown, typing } = setUp();
    typing(true);
    await clock.advance(9_000);
    typing(true);
    await clock.advance(1_000);
    assert.deepEqual(shown, [8_000, 8_000]);
  });
});
