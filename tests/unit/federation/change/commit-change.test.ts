import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { systemClock, systemRandom } from "../../../../src/domain/clock.ts";
import { untilCommitted } from "../../../../src/federation/change/commit-change.ts";
import type { Federation } from "../../../../src/federation/reconcile/context.ts";
import { openStateFolder } from "../../../../src/federation/state/folder.ts";
import { temporaryFolder } from "../../../support/temporary.ts";

describe("untilCommitted", () => {
  it("ends as failed, not as wrongly configured, where every attempt is overtaken [GIT-1]", async (t) => {
    const state = openStateFolder(temporaryFolder(t), systemRandom);
    const context = { state, clock: systemClock } as unknown as Federation;
    let attempts = 0;
    const overtaken = async () => {
      attempts += 1;
      return undefined;
    };
    await assert.rejects(untilCommitted(context, overtaken), { code: "program_failed" });
    assert.equal(attempts, 50);
  });
});
