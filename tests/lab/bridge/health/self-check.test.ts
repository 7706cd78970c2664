// The start-up self-check against a real Synapse: what is wrong is named, with its hint.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, describe, it, type TestContext } from "node:test";
import { type SelfCheckDependencies, selfCheck } from "../../../../src/bridge/health/homeserver-checks.ts";
import { ghostSide } from "../../../support/ghosts.ts";
import { ghost } from "../../../support/ledger.ts";
import { startSynapse, type TestSynapse } from "../../../support/synapse.ts";

let synapse: TestSynapse;
before(async () => {
  synapse = await startSynapse();
});
after(() => synapse.dispose());

function deps(t: TestContext, more: Partial<SelfCheckDependencies> = {}, asToken = synapse.asToken) {
  const { homeserver, ghosts } = ghostSide(t, synapse.url, { asToken });
  return { config: synapse.config, homeserver, ghosts, ghost: ghost(), listening: true, ...more };
}

/** A bridge that answers the homeserver's calls if they carry the token. */
async function listen(t: TestContext, hsToken: string): Promise<void> {
  const server = createServer((request, response) => {
    response.statusCode = request.headers.authorization === `Bearer ${hsToken}` ? 200 : 403;
    response.end("{}");
  });
  await new Promise<void>((resolve) => server.listen(synapse.bridge.port, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
}

const failures = async (dependencies: SelfCheckDependencies) =>
  (await selfCheck(dependencies)).filter(({ ok }) => !ok);

describe("self-check against Synapse", () => {
  it("every check passes with the registration that the bridge renders", async (t) => {
    await listen(t, synapse.hsToken);
    assert.deepEqual(
      await selfCheck(deps(t)),
      ["homeserver_reachable", "token_accepted", "bridge_reachable", "ghost_registers", "ghost_device"].map(
        (name) => ({
          ...{ name, ok: true, hint: undefined },
          ...(name === "bridge_reachable" && { blocking: false }),
        }),
      ),
    );
  });

  it("each fault is found, with its hint", async (t) => {
    await t.test("a bridge that does not listen fails bridge_reachable, with its address", async (t) => {
      const [failure, ...more] = await failures(deps(t));
      assert.deepEqual(more, []);
      assert.equal(failure?.name, "bridge_reachable");
      assert.match(failure?.hint ?? "", /cannot reach the bridge at http:\/\/127\.0\.0\.1:\d+/);
    });
    await t.test("another hs_token is named by the hint", async (t) => {
      await listen(t, "another");
      assert.match((await failures(deps(t)))[0]?.hint ?? "", /another hs_token/);
    });
    await t.test("another as_token fails token_accepted", async (t) => {
      const [failure] = await failures(deps(t, {}, "another"));
      assert.equal(failure?.name, "token_accepted");
      assert.match(failure?.hint ?? "", /does not accept the as_token \(M_UNKNOWN_TOKEN\)/);
    });
    await t.test(
      "another server name is told by the user that the homeserver takes the bridge for",
      async (t) => {
        const { appservice, homeserver } = synapse.config;
        const config = { appservice: { ...appservice, senderLocalpart: "other" }, homeserver };
        assert.match(
          (await failures(deps(t, { config })))[0]?.hint ?? "",
          /takes the bridge for @drawbridge:a.test/,
        );
      },
    );
    await t.test("another registration ID is named by the hint", async (t) => {
      const { appservice, homeserver } = synapse.config;
      const config = { appservice: { ...appservice, id: "other" }, homeserver };
      assert.match((await failures(deps(t, { config })))[0]?.hint ?? "", /registration with another ID/);
    });
    await t.test("a ghost outside the registration's namespace fails ghost_registers", async (t) => {
      const outside = ghost().replace("agent_", "elsewhere_") as ReturnType<typeof ghost>;
      const [failure] = await failures(deps(t, { ghost: outside, listening: false }));
      assert.equal(failure?.name, "ghost_registers");
      assert.match(failure?.hint ?? "", /check appservice.ghostPrefix/);
    });
    await t.test(
      "a homeserver that is down fails homeserver_reachable, and nothing else is checked",
      async (t) => {
        await synapse.stop();
        const checks = await selfCheck(deps(t));
        assert.deepEqual(
          checks.map(({ name, ok }) => [name, ok]),
          [["homeserver_reachable", false]],
        );
        assert.match(checks[0]?.hint ?? "", /No Matrix homeserver answers at .*\(network\)/);
      },
    );
  });
});
