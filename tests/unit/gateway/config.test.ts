import assert from "node:assert/strict";
import { test } from "node:test";
import { stringify } from "yaml";
import { GatewayConfigFile, loadGatewayConfig } from "../../../src/gateway/config.ts";
import { ConfigError, parseYaml } from "../../../src/runtime/load-yaml.ts";
import { temporaryFolder, writeFile } from "../../support/temporary.ts";

function agent(name: string, more: object = {}) {
  return {
    upstream: "http://127.0.0.1:4100",
    cardPath: `/agents/${name}/card.json`,
    invokePath: `/agents/${name}/rpc`,
    clients: ["org-b-client"],
    ...more,
  };
}

function config(agents: object, more: object = {}) {
  return {
    version: 1,
    listen: { port: 8080 },
    adminPort: 9901,
    issuer: { url: "http://127.0.0.1:9000", jwksUrl: "http://127.0.0.1:9000/jwks", audience: "urn:org-a" },
    agents,
    quotas: { default: { perMinute: 60, burst: 20 } },
    ...more,
  };
}

function problems(value: object): string[] {
  try {
    parseYaml(GatewayConfigFile, stringify(value), "gateway.yaml");
    return [];
  } catch (error) {
    assert.ok(error instanceof ConfigError);
    return error.problems.map((problem) => problem.path);
  }
}

test("two agents on one path are refused, with the place", () => {
  const agents = { one: agent("one"), two: agent("two", { cardPath: "/agents/one/rpc" }) };
  assert.deepEqual(problems(config(agents)), ["agents.two.cardPath"]);
});

test("an agent below another's HTTP+JSON paths is refused", () => {
  const agents = {
    one: agent("one", { httpJson: true }),
    two: agent("two", { invokePath: "/agents/one/rpc/tasks" }),
  };
  assert.deepEqual(problems(config(agents)), ["agents.one.invokePath"]);
});

for (const path of [
  "agents/x",
  "/",
  "/a/",
  "/a//b",
  "/a/../b",
  "/a/./b",
  "/a/%2e",
  "/a?b",
  "/a b",
  "/a;b",
  "/é",
]) {
  test(`the path ${path} is refused`, () => {
    assert.deepEqual(problems(config({ one: agent("one", { invokePath: path }) })), [
      "agents.one.invokePath",
    ]);
  });
}

for (const [what, more] of [
  ["a user in the upstream", { upstream: "http://user@127.0.0.1:1" }],
  ["an upstream with a query", { upstream: "http://127.0.0.1:1/?a=b" }],
  ["an https upstream", { upstream: "https://127.0.0.1:1" }],
] as const) {
  test(`${what} is refused`, () => {
    assert.deepEqual(problems(config({ one: agent("one", more) })), ["agents.one.upstream"]);
  });
}

test("an empty list of clients is allowed: it closes the agent", () => {
  assert.deepEqual(problems(config({ one: agent("one", { clients: [] }) })), []);
});

test("relative paths start at the folder of the configuration file", (t) => {
  const folder = temporaryFolder(t);
  const file = `${folder}/gateway.yaml`;
  writeFile(file, stringify(config({}, { envoy: { binary: "bin/envoy" } })));
  const loaded = loadGatewayConfig(file);
  assert.equal(loaded.accessLog, `${folder}/access.jsonl`);
  assert.equal(loaded.envoy.directory, `${folder}/envoy`);
  assert.equal(loaded.envoy.binary, `${folder}/bin/envoy`);
});

test("an Envoy given by name is looked for in PATH", (t) => {
  const file = `${temporaryFolder(t)}/gateway.yaml`;
  writeFile(file, stringify(config({}, { envoy: { binary: "envoy" } })));
  assert.equal(loadGatewayConfig(file).envoy.binary, "envoy");
});
