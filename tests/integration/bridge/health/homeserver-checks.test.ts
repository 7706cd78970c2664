import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { Registry } from "prom-client";
import { createObserveServer } from "../../../../src/bridge/health/health-server.ts";
import { selfCheck } from "../../../../src/bridge/health/homeserver-checks.ts";
import type { ServerName } from "../../../../src/domain/identifiers.ts";
import { ghostSide } from "../../../support/ghosts.ts";
import { type Script, scriptedHomeserver } from "../../../support/http-server.ts";
import { ghost } from "../../../support/ledger.ts";

const WHOAMI = { user_id: "@drawbridge:a.test" };

/** The checks, on a homeserver that is well but for `script`. */
async function checksOn(t: TestContext, script: (path: string) => ReturnType<Script> | undefined) {
  const server = await scriptedHomeserver(t, ({ path, query }) => {
    const scripted = script(path);
    if (scripted !== undefined) return scripted;
    if (path.endsWith("/versions")) return { body: { versions: ["v1.12"] } };
    const device = query.get("device_id");
    if (path.endsWith("/whoami")) {
      return { body: device === null ? WHOAMI : { user_id: ghost(), device_id: device } };
    }
    return {};
  });
  const { homeserver, ghosts } = ghostSide(t, server.url);
  const config = {
    homeserver: { serverName: "a.test" as ServerName, url: server.url, requestTimeout: 1 },
    appservice: {
      id: "drawbridge",
      url: "http://127.0.0.1:1",
      senderLocalpart: "drawbridge",
      ghostPrefix: "agent_",
      asToken: { env: "A" },
      hsToken: { env: "B" },
    },
  };
  return () => selfCheck({ config, homeserver, ghosts, ghost: ghost(), listening: true });
}

/** What the first failing check says. */
async function hintOf(...on: Parameters<typeof checksOn>) {
  const check = await checksOn(...on);
  return (await check()).find(({ ok }) => !ok);
}

describe("self-check against a faulty homeserver", () => {
  it("every check passes, without a hint, when the homeserver is well", async (t) => {
    assert.equal(await hintOf(t, () => undefined), undefined);
  });

  it("a hint names the missing flag when the homeserver has no device management", async (t) => {
    const failure = await hintOf(t, (path) =>
      path.includes("/devices/") ? { status: 404, body: { errcode: "M_UNRECOGNIZED" } } : undefined,
    );
    assert.equal(failure?.name, "ghost_registers");
    assert.match(failure?.hint ?? "", /M_UNRECOGNIZED.*io\.element\.msc4190: true/);
  });

  it("a check fails when the homeserver ignores the device that a ghost acts as", async (t) => {
    const failure = await hintOf(t, (path) =>
      path.endsWith("/whoami") ? { body: { ...WHOAMI, device_id: "OTHER" } } : undefined,
    );
    assert.equal(failure?.name, "ghost_device");
    assert.match(failure?.hint ?? "", /ignores the device/);
  });

  it("a homeserver that cannot ping is distinguished from one that cannot reach the bridge", async (t) => {
    const ping = (status: number, errcode: string) =>
      hintOf(t, (path) => (path.endsWith("/ping") ? { status, body: { errcode } } : undefined));
    assert.match((await ping(404, "M_UNRECOGNIZED"))?.hint ?? "", /may be too old/);
    assert.match((await ping(504, "M_CONNECTION_TIMEOUT"))?.hint ?? "", /cannot reach the bridge/);
    assert.match((await ping(502, "M_BAD_STATUS"))?.hint ?? "", /another hs_token/);
  });

  it("the first process becomes ready behind a load balancer that passes nothing on before [OPS-2]", async (t) => {
    let hasServer = false;
    const check = await checksOn(t, (path) =>
      path.endsWith("/ping") && !hasServer
        ? { status: 502, body: { errcode: "M_BAD_STATUS", status: 503 } }
        : undefined,
    );
    let checks = await check();
    const observe = createObserveServer({
      registry: new Registry(),
      readiness: async () => checks,
      agentsDigest: () => "",
      encryption: "refuse",
    });
    t.after(() => observe.close());
    const failing = checks.filter(({ ok }) => !ok).map(({ name }) => name);
    assert.deepEqual(failing, ["bridge_reachable"], "what is wrong is shown all the same");
    hasServer = (await observe.inject("/readyz")).statusCode === 200;
    checks = await check();
    assert.ok(checks.every(({ ok }) => ok));
  });
});
