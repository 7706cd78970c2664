import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { UserId } from "../../../../src/domain/identifiers.ts";
import { lentTokens, type SynapseAdminApi } from "../../../../src/federation/homeserver/synapse-admin-api.ts";
import { ManualClock } from "../../../support/manual-clock.ts";

const ALICE = "@alice:a.test" as UserId;

describe("LentTokens", () => {
  it("a user is asked for again after a failure, and left out only when the homeserver lends no token [PLN-2]", async () => {
    const acting = { userId: ALICE, logout: async () => undefined };
    const answers = [() => Promise.reject(new Error("502")), async () => acting, async () => undefined];
    const operator = { actAs: () => answers.shift()?.() } as unknown as SynapseAdminApi;
    const clock = new ManualClock(0);
    const tokens = lentTokens(operator, "@operator:a.test" as UserId, clock);

    await assert.rejects(tokens.as(ALICE), /502/);
    assert.equal(await tokens.as(ALICE), acting);
    assert.deepEqual([...tokens.unusable], []);
    await clock.advance(3_600_000);
    assert.equal(await tokens.as(ALICE), undefined);
    assert.deepEqual([...tokens.unusable], [ALICE]);
  });
});
