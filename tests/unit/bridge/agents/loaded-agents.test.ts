import assert from "node:assert/strict";
import fs, { mkdtempSync, renameSync, rmSync, unlinkSync, utimesSync, writeFileSync } from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import type { AgentDirectory } from "../../../../src/bridge/agents/loaded-agents.ts";
import { watchAgentsFile } from "../../../../src/bridge/agents/loaded-agents.ts";
import { sha256Tagged } from "../../../../src/domain/digest.ts";
import { DrawbridgeError } from "../../../../src/domain/errors.ts";
import type { ServerName } from "../../../../src/domain/identifiers.ts";
import { ConfigError } from "../../../../src/runtime/load-yaml.ts";
import { agentsYaml } from "../../../support/agents.ts";
import { testKey } from "../../../support/cards.ts";
import { recordedLog } from "../../../support/recorded-log.ts";

const key = await testKey("k1");
const ONE = agentsYaml({ one: { key } });
const TWO = agentsYaml({ one: { key }, two: { key } });

function temporaryFile(t: TestContext, text = ONE): string {
  const folder = mkdtempSync(join(tmpdir(), "drawbridge-agents-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const file = join(folder, "agents.yaml");
  writeFileSync(file, text);
  return file;
}

function open(file: string) {
  const recorded = recordedLog();
  let rejected = 0;
  const directory = watchAgentsFile({
    file,
    serverName: "a.test" as ServerName,
    ghostPrefix: "agent_",
    log: recorded.log,
    onRejected: () => {
      rejected += 1;
    },
  });
  return { directory, recorded, rejected: () => rejected };
}

async function names(directory: AgentDirectory): Promise<string[]> {
  return [...(await directory.current()).byGhost.keys()];
}

/** As editors and `os.replace` do it. */
function replace(file: string, text: string): void {
  writeFileSync(`${file}.new`, text);
  renameSync(`${file}.new`, file);
}

describe("agent directory", () => {
  it("agents are found by their ghost, and an unchanged file keeps its snapshot [AGT-1]", async (t) => {
    const { directory } = open(temporaryFile(t));
    const first = await directory.current();
    assert.deepEqual([...first.byGhost.keys()], ["@agent_one:a.test"]);
    assert.equal(await directory.current(), first);
  });

  it("a rewrite in place, and a replacement by rename, take effect at the next check [AGT-1]", async (t) => {
    const file = temporaryFile(t);
    const { directory } = open(file);
    writeFileSync(file, TWO);
    assert.deepEqual(await names(directory), ["@agent_one:a.test", "@agent_two:a.test"]);
    replace(file, ONE);
    assert.deepEqual(await names(directory), ["@agent_one:a.test"]);
  });

  it("a hundred quick rewrites each take effect, and the last one stays [AGT-1]", async (t) => {
    const file = temporaryFile(t);
    const { directory } = open(file);
    for (let round = 0; round < 50; round++) {
      replace(file, TWO);
      assert.equal((await names(directory)).length, 2, `round ${round}`);
      writeFileSync(file, ONE);
      assert.equal((await names(directory)).length, 1, `round ${round}`);
    }
  });

  it("rewrites of the same size within one tick of the file system's clock each take effect [AGT-1]", async (t) => {
    const file = temporaryFile(t);
    const { directory } = open(file);
    for (let round = 0; round < 500; round++) {
      const name = round % 2 === 0 ? "two" : "one";
      writeFileSync(file, ONE.replace("  one:", `  ${name}:`));
      assert.deepEqual(await names(directory), [`@agent_${name}:a.test`], `round ${round}`);
    }
  });

  it("a file that has not changed for long is not read again at each check [AGT-1]", async (t) => {
    const file = temporaryFile(t);
    utimesSync(file, 1, 1);
    const { directory } = open(file);
    const read = t.mock.method(fs, "readFileSync");
    syncBuiltinESMExports();
    t.after(syncBuiltinESMExports);
    for (let call = 0; call < 3; call++) await directory.current();
    assert.equal(read.mock.callCount(), 0);
    writeFileSync(file, TWO);
    utimesSync(file, 1, 1);
    assert.equal((await names(directory)).length, 2);
    assert.equal(read.mock.callCount(), 1);
    t.mock.restoreAll();
  });

  it("a broken version leaves the last good one in force, and is logged once with line, path and hint [AGT-1]", async (t) => {
    const file = temporaryFile(t, TWO);
    const { directory, recorded, rejected } = open(file);
    replace(file, ONE.replace("allowedServers", "allowedServer"));
    for (let call = 0; call < 3; call++) assert.equal((await names(directory)).length, 2);
    assert.equal(rejected(), 1);
    const [line] = recorded.lines.filter(({ event }) => event === "agents_file_rejected");
    assert.ok(line !== undefined);
    assert.match(JSON.stringify(line["problems"]), /"line":\d+,"path":"agents\.one\.allowedServer/);
    assert.match(String(line["hint"]), /Correct the file/);
    replace(file, "agents: [");
    assert.equal((await names(directory)).length, 2);
    assert.equal(rejected(), 2);
    replace(file, ONE);
    assert.equal((await names(directory)).length, 1);
    assert.equal(rejected(), 2);
  });

  it("an emptied or removed file leaves the last good version [AGT-1]", async (t) => {
    const file = temporaryFile(t);
    const { directory, rejected } = open(file);
    writeFileSync(file, "");
    assert.equal((await names(directory)).length, 1);
    unlinkSync(file);
    for (let call = 0; call < 3; call++) assert.equal((await names(directory)).length, 1);
    assert.equal(rejected(), 2);
    replace(file, TWO);
    assert.equal((await names(directory)).length, 2);
  });

  it("a file without agents removes them all [AGT-1]", async (t) => {
    const file = temporaryFile(t);
    const { directory } = open(file);
    replace(file, agentsYaml({}));
    assert.deepEqual(await names(directory), []);
  });

  it("a file that cannot be used at the start leads to an error with a hint", (t) => {
    const file = temporaryFile(t, "version: 2\n");
    assert.throws(() => open(file), ConfigError);
    assert.throws(
      () => open(`${file}.absent`),
      (error) => error instanceof DrawbridgeError && error.code === "config_unreadable",
    );
  });

  it("the digest is that of the file in force, not of a refused one [AGT-1]", (t) => {
    const file = temporaryFile(t);
    const { directory } = open(file);
    assert.equal(directory.digest(), sha256Tagged(ONE));
    replace(file, TWO);
    assert.equal(directory.digest(), sha256Tagged(TWO));
    replace(file, "version: 1\nagents: 7\n");
    assert.equal(directory.digest(), sha256Tagged(TWO));
  });
});
