// The private record from the command line: begun, filled in, opened once.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { parse, stringify } from "yaml";
import { systemClock } from "../../../../src/domain/clock.ts";
import { valueAt } from "../../../../src/federation/offboarding/private-record/check.ts";
import { changeRecordFile, fieldValue } from "../../../../src/federation/offboarding/private-record/file.ts";
import { RECORD_FIELDS } from "../../../../src/federation/offboarding/private-record/schema.ts";
import { controlRepository } from "../../../support/control-repository.ts";
import { COMPLETE_RECORD } from "../../../support/sample-files.ts";
import { runCli, temporaryFolder, writeFile } from "../../../support/temporary.ts";

async function deployment(t: TestContext) {
  const directory = temporaryFolder(t);
  await controlRepository(join(directory, "control"));
  const config = join(directory, "federation.yaml");
  writeFile(
    config,
    stringify({
      version: 1,
      repository: { path: "control" },
      homeserver: { url: "http://127.0.0.1:9", operatorToken: { file: "token" }, signingKeyFile: "key" },
      transport: { includeFile: "include.yaml", restart: { command: ["true"] } },
      border: { policyFile: "policy.json", statusToken: { file: "token" }, violationsFile: "violations" },
    }),
  );
  writeFile(join(directory, "token"), "token", 0o600);
  mkdirSync(join(directory, "private"), { mode: 0o700 });
  const record = join(directory, "private", "record.yaml");
  const drawbridge = (...args: string[]) => runCli(["offboarding", ...args, "--record", record]);
  const open = (...args: string[]) => drawbridge("open", "lighthouse", "--config", config, ...args);
  return { record, drawbridge, open };
}

describe("private record commands", () => {
  it("offboarding open begins a record, and opens one run once every field is set, however often it is run [OFF-1]", async (t) => {
    const { record, drawbridge, open } = await deployment(t);
    const begun = await open("--kind", "full");
    assert.equal(begun.code, 5, begun.stderr);
    assert.match(begun.stderr, /revocation\.trigger/);
    assert.ok(!begun.stderr.includes("set revocation.kind"));
    const known = parse(readFileSync(record, "utf8")) as Record<string, unknown>;
    const wanted = parse(COMPLETE_RECORD) as Record<string, unknown>;
    assert.equal(valueAt(known, ["partner", "serverName"]), "matrix.lighthouse.example:8448");
    // One field of each kind is set by the command, and the others by what the command calls: a start takes its time.
    const kinds = new Set<string>();
    for (const field of RECORD_FIELDS) {
      const { path, holds } = field;
      if (valueAt(known, path.split(".")) != null || path.startsWith("affected.")) continue;
      const value = valueAt(wanted, path.split("."));
      if (value === undefined) continue;
      const words =
        holds === "rooms"
          ? (value as { room: string; how: string }[]).map(({ room, how }) => `${room}=${how}`)
          : [value].flat().map(String);
      if (kinds.has(holds)) {
        await changeRecordFile(record, new Map([[path, fieldValue(field, words)]]), systemClock);
        continue;
      }
      kinds.add(holds);
      const set = await drawbridge("set", path, ...words);
      assert.ok(set.code === 5 || set.code === 0, `${path}: ${set.stderr}`);
    }
    const shown = await drawbridge("show", "--json");
    const { missing } = JSON.parse(shown.stdout) as { missing: string[] };
    assert.deepEqual(
      missing.filter((path) => !path.startsWith("affected.")),
      [],
    );
    for (const path of missing) await drawbridge("set", path, "--none");
    const opened = await open("--json");
    assert.equal(opened.code, 0, opened.stderr);
    const { run: first } = JSON.parse(opened.stdout) as { run: { run: string; kind: string } };
    assert.match(first.run, /^[0-9a-f]{32}$/);
    assert.equal(first.kind, "full");
    const again = await open();
    assert.equal(again.stdout, `${first.run}\n`);
    const changed = await drawbridge("set", "revocation.kind", "partial");
    assert.equal(changed.code, 2);
    assert.match(changed.stderr, /record\.classified/);
  });

  it("offboarding set refuses a mail address and an unknown field with exit code 2, and never prints the value [OFF-1]", async (t) => {
    const { record, drawbridge, open } = await deployment(t);
    await open();
    const before = readFileSync(record, "utf8");
    const mail = await drawbridge("set", "technical.owner", "anna@harbour.example");
    assert.equal(mail.code, 2);
    assert.match(mail.stderr, /technical\.owner: .*\[personal\.mail_address\]\n {4}hint: /);
    assert.ok(!mail.stderr.includes("anna"));
    assert.equal((await drawbridge("set", "technical.phone", "1")).code, 2);
    assert.equal((await open("--kind", "complete")).code, 2);
    assert.equal(readFileSync(record, "utf8"), before);
  });
});
