import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, it } from "node:test";
import fc from "fast-check";
import { parse } from "yaml";
import { BridgeConfigFile, loadBridgeConfig } from "../../../../src/bridge/config.ts";
import { ContentKeys } from "../../../../src/bridge/ledger/content-keys.ts";
import { ghostNamespace, renderRegistration } from "../../../../src/bridge/setup/registration.ts";
import {
  renderStartingFolder,
  type StartingFolderOptions,
} from "../../../../src/bridge/setup/starting-folder.ts";
import type { Random } from "../../../../src/domain/clock.ts";
import type { ServerName } from "../../../../src/domain/identifiers.ts";
import { AgentEntry, AgentsFile } from "../../../../src/rendered-files/agents-file.ts";
import { loadYaml } from "../../../../src/runtime/load-yaml.ts";
import { readSecret } from "../../../../src/runtime/secrets.ts";
import { assertGolden } from "../../../support/golden.ts";
import { temporaryFolder } from "../../../support/temporary.ts";

function config(serverName = "org-a.test:18448", ghostPrefix = "agent_") {
  return {
    homeserver: {
      serverName: serverName as ServerName,
      url: "http://127.0.0.1:8008",
      requestTimeout: 30_000,
    },
    appservice: {
      id: "drawbridge",
      url: "http://127.0.0.1:29340",
      senderLocalpart: "drawbridge",
      ghostPrefix,
      asToken: { env: "A" },
      hsToken: { env: "B" },
    },
  };
}

describe("starting folder and registration", () => {
  it("the registration matches its golden", () => {
    const rendered = renderRegistration(config(), { asToken: "as-secret", hsToken: "hs-secret" });
    assertGolden("bridge/registration.yaml", rendered);
    assert.equal((parse(rendered) as { rate_limited: boolean }).rate_limited, false);
  });

  it("the namespace matches exactly this server's ghosts, whatever the characters of names", () => {
    const matches = (server: string, prefix: string, user: string) =>
      new RegExp(ghostNamespace(config(server, prefix))).test(user);
    assert.equal(matches("a.test", "agent_", "@agent_docs:a.test"), true);
    for (const user of [
      "@agent_docs:aXtest",
      "@agent_docs:a.test.evil.org",
      "x@agent_docs:a.test",
      "@agent_docs:a.test:8448",
      "@agentXdocs:a.test",
      "@alice:a.test",
    ]) {
      assert.equal(matches("a.test", "agent_", user), false, user);
    }
    const prefix = fc.stringMatching(/^[a-z0-9._=/-]{1,32}$/);
    const server = fc.constantFrom("a.test", "a.test:8448", "[::1]:8448", "[2001:db8::1]", "10.0.0.1");
    fc.assert(
      fc.property(prefix, server, fc.stringMatching(/^[a-z0-9._-]{1,20}$/), (given, name, agent) => {
        assert.equal(matches(name, given, `@${given}${agent}:${name}`), true);
        assert.equal(matches(name, given, `@${given}${agent}:${name}x`), false);
        assert.equal(matches(name, given, `@${given}${agent}:x${name}`), false);
      }),
    );
  });

  /** Bytes that count up, so that what is rendered can be compared. */
  function countingRandom(): Random {
    let next = 0;
    return { bytes: (length) => Buffer.from(Array.from({ length }, () => next++ % 256)) };
  }

  const OPTIONS: StartingFolderOptions = {
    serverName: "example.org",
    homeserverUrl: "http://127.0.0.1:8008",
    appserviceUrl: "http://127.0.0.1:29340",
    listenPort: 29_340,
    observePort: 29_341,
    databaseUrlVariable: "DATABASE_URL",
  };

  it("a new bridge's folder matches its goldens", () => {
    const files: Readonly<Record<string, string>> = renderStartingFolder(OPTIONS, countingRandom());
    for (const name of ["bridge.yaml", "agents.yaml"]) assertGolden(`bridge/init/${name}`, files[name] ?? "");
  });

  it("a new bridge's folder loads unchanged, with three different secrets", (t) => {
    const directory = temporaryFolder(t);
    const files = renderStartingFolder(OPTIONS, countingRandom());
    for (const [name, text] of Object.entries(files)) {
      mkdirSync(dirname(join(directory, name)), { recursive: true });
      writeFileSync(join(directory, name), text, { mode: 0o600 });
    }
    const loaded = loadBridgeConfig(join(directory, "bridge.yaml"));
    assert.deepEqual(loadYaml(AgentsFile, join(directory, loaded.agentsFile)).agents, {});
    const { asToken, hsToken } = loaded.appservice;
    const secrets = [asToken, hsToken, loaded.contentKeys].map((one) => readSecret(one, directory));
    assert.equal(new Set(secrets).size, 3);
    assert.ok(ContentKeys.parse(secrets[2] ?? "") instanceof ContentKeys);
    assert.deepEqual(loaded.database, { url: { env: "DATABASE_URL" } });
  });

  it("by default the users of one server fill neither an agent's capacity nor its rate, and one person not their server's", () => {
    const { "bridge.yaml": text = "" } = renderStartingFolder(OPTIONS, countingRandom());
    const { limits } = BridgeConfigFile.parse(parse(text));
    const { rate } = AgentEntry.parse({
      cardUrl: "https://agents.test/card",
      allowedServers: [],
      allowedSenders: [],
    });
    const { senderRate = assert.fail(), serverRate = assert.fail() } = limits;
    assert.ok(limits.serverQueue < limits.agentQueue && limits.agentQueue < limits.globalQueue);
    for (const part of ["perMinute", "burst"] as const) {
      assert.ok(senderRate[part] < serverRate[part] && serverRate[part] < rate[part], part);
    }
  });
});
