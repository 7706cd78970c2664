import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { BridgeConfigFile } from "../../../src/bridge/config.ts";
import { durationMs } from "../../../src/domain/duration.ts";
import { ConfigError, parseYaml } from "../../../src/runtime/load-yaml.ts";

const yaml = (requestTimeout: string, limits: string) => `version: 1
homeserver: {serverName: a.test, url: http://127.0.0.1:1, requestTimeout: ${requestTimeout}}
appservice: {url: http://127.0.0.1:2, asToken: {env: A}, hsToken: {env: B}}
listen: {port: 2}
observe: {port: 3}
database: {url: {env: C}}
contentKeys: {env: D}
limits: {${limits}}
`;

function problems(text: string): readonly string[] {
  try {
    parseYaml(BridgeConfigFile, text, "bridge.yaml");
    return [];
  } catch (error) {
    assert.ok(error instanceof ConfigError);
    return error.problems.map(({ path, message }) => `${path} ${message}`);
  }
}

describe("durations in the configuration", () => {
  it("a duration below the minimum is refused, and the error names the minimum", () => {
    assert.deepEqual(problems(yaml("1s", "lease: 3s, drain: 1s, noticeInterval: 0s")), []);
    assert.deepEqual(problems(yaml("999ms", "")), ["homeserver.requestTimeout must be at least 1s"]);
    for (const name of ["dispatchDeadline", "answerDeadline", "agentRequestTimeout", "drain"]) {
      assert.deepEqual(problems(yaml("30s", `${name}: 0s`)), [`limits.${name} must be at least 1s`]);
    }
    assert.deepEqual(problems(yaml("30s", "lease: 2999ms")), ["limits.lease must be at least 3s"]);
  });

  it("a malformed duration is reported once, and a default is parsed like any other value", () => {
    const messages = durationMs("2s", { min: "1s" })
      .safeParse("soon")
      .error?.issues.map(({ message }) => message);
    assert.deepEqual(messages, ["must be a duration such as 250ms, 30s, 15m or 24h"]);
    assert.equal(durationMs("2s", { min: "1s" }).parse(undefined), 2_000);
  });
});
