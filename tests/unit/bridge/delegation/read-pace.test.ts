import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createReadPace } from "../../../../src/bridge/delegation/read-pace.ts";
import type { AgentId } from "../../../../src/domain/identifiers.ts";
import { ManualClock } from "../../../support/manual-clock.ts";

const DOCS = "docs" as AgentId;
const MiB = 1024 * 1024;

describe("the pace at which an agent is read", () => {
  it("lets an agent rest that has sent more than its burst, for as long as that takes at its pace [DEL-10]", () => {
    const clock = new ManualClock(1_000_000);
    const pace = createReadPace(clock);
    pace.read(DOCS, 40 * MiB);
    assert.equal(pace.restMs(DOCS), 0);
    pace.read(DOCS, 8 * MiB);
    assert.equal(pace.restMs(DOCS), 2_000);
    clock.advance(2_000);
    assert.equal(pace.restMs(DOCS), 0);
    pace.read(DOCS, 100_000 * MiB);
    assert.equal(pace.restMs(DOCS), 600_000);
  });

  it("lets no agent rest because the clock was set back [DEL-10]", () => {
    for (const backMs of [60_000, 3_600_000]) {
      const clock = new ManualClock(10_000_000);
      const pace = createReadPace(clock);
      pace.read(DOCS, 1_000);
      clock.advance(-backMs);
      assert.equal(pace.restMs(DOCS), 0);
      pace.read(DOCS, 1_000);
      assert.equal(pace.restMs(DOCS), 0, `after ${backMs} ms`);
    }
  });
});
