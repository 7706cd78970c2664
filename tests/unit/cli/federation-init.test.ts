// `federation init`, as an operator runs it: what it writes can be worked with as it is.

import assert from "node:assert/strict";
import { mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { parse } from "yaml";
import { ExitCode } from "../../../src/cli/lib/exit-codes.ts";
import { loadFederationConfig } from "../../../src/federation/config.ts";
import { loadRegistry } from "../../../src/federation/registry/load.ts";
import { ORGANISATION_FILE } from "../../../src/federation/registry/organisation.ts";
import { runCliHere } from "../../support/cli-in-process.ts";
import { operatorGit } from "../../support/control-repository.ts";
import { registryFiles } from "../../support/sample-files.ts";
import { runCli, temporaryFolder } from "../../support/temporary.ts";

function init(t: TestContext, ...more: string[]) {
  const directory = join(temporaryFolder(t), "federation");
  const words = ["--server-name", "example.org", "--homeserver-url", "http://127.0.0.1:8008", ...more];
  const run = () => runCliHere(["federation", "init", "--directory", directory, ...words]);
  return { directory, run };
}

function clone(directory: string): string {
  const folder = join(directory, "clone");
  operatorGit(directory, "clone", "--quiet", "control.git", folder);
  return folder;
}

describe("drawbridge federation init", () => {
  it("federation init writes a folder and a repository that pass every check and admit nobody [ADO-1]", async (t) => {
    const { directory, run } = init(t);
    const { code, stdout, stderr } = await run();
    assert.equal(code, ExitCode.ok, stderr);
    assert.equal(stdout.trim().split("\n").length, 3);
    const token = readFileSync(join(directory, "secrets/border-status-token"), "utf8").trim();
    assert.match(token, /^[0-9a-f]{48}$/);
    assert.doesNotMatch(stdout + stderr, new RegExp(token));
    for (const [name, mode] of [
      ["federation.yaml", 0o600],
      ["secrets/border-status-token", 0o600],
      ["secrets", 0o700],
      ["control.git", 0o700],
    ] as const) {
      assert.equal(statSync(join(directory, name)).mode & 0o777, mode, name);
    }
    const config = loadFederationConfig(join(directory, "federation.yaml"));
    assert.equal(config.card, undefined);
    assert.equal(config.gateway, undefined);
    const folder = clone(directory);
    assert.ok(statSync(join(folder, "registry/partners")).isDirectory(), "where partners are written");
    const checked = await runCliHere(["federation", "check", folder]);
    assert.equal(checked.code, ExitCode.ok, checked.stdout + checked.stderr);
    const ofFile = await runCliHere(["federation", "check", join(folder, "registry/organisation.yaml")]);
    assert.match(ofFile.stderr, /^error: .+ has no registry\nhint: /);
    const status = await runCli(["federation", "status", "--config", config.file, "--json"]);
    assert.equal(JSON.parse(status.stdout).refused, null, status.stderr);
  });

  it("what federation init leaves as a comment is valid once the comment signs are removed [ADO-1]", async (t) => {
    const { directory, run } = init(t);
    assert.equal((await run()).code, ExitCode.ok);
    const uncommented = (text: string) => text.replaceAll(/^# (?=[a-z]+:$| {2})/gm, "");
    const file = join(directory, "federation.yaml");
    writeFileSync(file, uncommented(readFileSync(file, "utf8")));
    const { card, gateway } = loadFederationConfig(file);
    assert.ok(card !== undefined && gateway !== undefined);
    const organisation = operatorGit(join(directory, "control.git"), "show", `main:${ORGANISATION_FILE}`);
    const { agents } = loadRegistry(new Map([[ORGANISATION_FILE, uncommented(organisation)]])).organisation;
    assert.deepEqual(Object.keys(agents), ["docs-qa"]);
  });

  it("federation init takes over the agents of the bridge, and writes nothing where it cannot [ADO-1]", async (t) => {
    const bridge = join(temporaryFolder(t), "bridge");
    mkdirSync(bridge);
    const { consumes } = parse(registryFiles().get("registry/organisation.yaml") ?? "") as {
      consumes: Record<string, object>;
    };
    const may = { allowedServers: ["example.org"], allowedSenders: ["*:example.org"] };
    const agents = { "docs-qa": { ...consumes["docs-qa"], ...may } };
    writeFileSync(join(bridge, "agents.yaml"), JSON.stringify({ version: 1, agents }));
    writeFileSync(join(bridge, "bridge.yaml"), "version: 1\nobserve: {port: 4711}\n");
    const { directory, run } = init(t, "--bridge", bridge);
    const { code, stderr } = await run();
    assert.equal(code, ExitCode.ok, stderr);
    const folder = clone(directory);
    const carried = parse(readFileSync(join(folder, "rendered/card/agents.yaml"), "utf8"));
    assert.deepEqual(Object.keys(carried.agents), ["docs-qa"]);
    const { card } = loadFederationConfig(join(directory, "federation.yaml"));
    assert.equal(card?.agentsFile, join(bridge, "agents.yaml"));
    assert.equal(card.bridgeHealthUrl, "http://127.0.0.1:4711/readyz");
    for (const [host, asked] of [
      ["10.0.0.7", "10.0.0.7"],
      ["0.0.0.0", "127.0.0.1"],
      ["::", "[::1]"],
      ["fd00::7", "[fd00::7]"],
    ] as const) {
      writeFileSync(
        join(bridge, "bridge.yaml"),
        JSON.stringify({ version: 1, observe: { host, port: 4711 } }),
      );
      const listening = init(t, "--bridge", bridge);
      assert.equal((await listening.run()).code, ExitCode.ok, host);
      const { card } = loadFederationConfig(join(listening.directory, "federation.yaml"));
      assert.equal(card?.bridgeHealthUrl, `http://${asked}:4711/readyz`);
    }

    writeFileSync(join(bridge, "agents.yaml"), "version: 1\nagents: {docs-qa: {}}\n");
    const refused = init(t, "--bridge", bridge);
    assert.equal((await refused.run()).code, ExitCode.usage);
    assert.throws(() => statSync(refused.directory), { code: "ENOENT" });
  });

  it("federation init touches nothing that is there already", async (t) => {
    const { directory, run } = init(t);
    await run();
    const before = operatorGit(join(directory, "control.git"), "rev-parse", "main");
    const { code, stderr } = await run();
    assert.equal(code, ExitCode.usage);
    assert.match(stderr, /exists already; nothing was written/);
    assert.equal(operatorGit(join(directory, "control.git"), "rev-parse", "main"), before);
    for (const wrong of [
      ["--server-name", "not a name"],
      ["--homeserver-url", "ftp://example.org"],
    ]) {
      assert.equal((await init(t, ...wrong).run()).code, ExitCode.usage, wrong.join(" "));
    }
  });
});
