import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { UserId } from "../../../../src/domain/identifiers.ts";
import { lentTokens, SynapseAdminApi } from "../../../../src/federation/homeserver/synapse-admin-api.ts";
import { scriptedHomeserver } from "../../../support/http-server.ts";
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

  for (const what of ["locked", "suspended", "shadow_banned"]) {
    it(`nobody acts as a user who is ${what}, although the homeserver would lend a token [PLN-2]`, async (t) => {
      const { url } = await scriptedHomeserver(t, ({ path, method }) => {
        if (path.endsWith("/login")) return { body: { access_token: "token" } };
        if (method === "GET" && path.includes("/v2/users/"))
          return { body: { [what]: path.includes("alice") } };
        return { status: 404, body: {} };
      });
      const clock = new ManualClock(0);
      const operator = new SynapseAdminApi(url, "token", clock);
      t.after(() => operator.close());
      const tokens = lentTokens(operator, "@operator:a.test" as UserId, clock);
      assert.equal(await tokens.as(ALICE), undefined);
      assert.notEqual(await tokens.as("@bob:a.test" as UserId), undefined);
      assert.deepEqual([...tokens.unusable], [ALICE]);
    });
  }
});
