import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createRecentEvents } from "../../../../src/bridge/intake/open-encrypted.ts";
import type { EventId } from "../../../../src/domain/identifiers.ts";
import { ManualClock } from "../../../support/manual-clock.ts";

const named = (name: string | number) => ({ event: `$${name}` as EventId, raw: { name } });

describe("recent encrypted events", () => {
  it("gives each event once, and not after ten seconds", async () => {
    const clock = new ManualClock(1_000);
    const recent = createRecentEvents(clock);
    recent.keep([named("one"), named("two")]);
    assert.deepEqual(recent.take("$one" as EventId), { name: "one" });
    assert.equal(recent.take("$one" as EventId), undefined);
    await clock.advance(10_001);
    assert.equal(recent.take("$two" as EventId), undefined);
  });

  it("holds 256 events at most, the latest", () => {
    const recent = createRecentEvents(new ManualClock(1_000));
    for (let n = 0; n < 300; n++) recent.keep([named(n)]);
    const left = Array.from({ length: 300 }, (_, n) => n).filter(
      (n) => recent.take(`$${n}` as EventId) !== undefined,
    );
    assert.deepEqual([left.length, left[0]], [256, 44]);
  });
});
