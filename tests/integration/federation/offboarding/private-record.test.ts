// The private record from the command line: begun, filled in, opened once.
import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import { appendFileSync, mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { parse, stringify } from "yaml";
import { systemRandom } from "../../../../src/domain/clock.ts";
import { valueAt } from "../../../../src/federation/offboarding/private-record/check.ts";
import { openStateFolder } from "../../../../src/federation/state/folder.ts";
import { writeHead } from "../../../../src/federation/state/plane-records.ts";
import { runCliHere } from "../../../support/cli-in-process.ts";
import {
  commitRegistry,
  controlRepository,
  LIGHTHOUSE,
  PILOTS,
} from "../../../support/control-repository.ts";
import { COMPLETE_RECORD } from "../../../support/sample-files.ts";
import { temporaryFolder, writeFile } from "../../../support/temporary.ts";

async function deployment(t: TestContext) {
  const directory = temporaryFolder(t);
  const repository = await controlRepository(join(directory, "control"));
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
  const open = (...args: string[]) =>
    runCliHere(["offboarding", "open", "lighthouse", "--config", config, ...args, "--record", record]);
  return { directory, config, repository, record, open };
}

describe("private record commands", () => {
  it("offboarding open begins a record, and opens one run once every field is set, however often it is run [OFF-1]", async (t) => {
    const { directory, config, record, open } = await deployment(t);
    const begun = await open("--kind", "full");
    assert.equal(begun.code, 5, begun.stderr);
    assert.match(begun.stderr, /revocation\.trigger/);
    assert.ok(!begun.stderr.includes("revocation.kind"));
    assert.match(begun.stderr, /technical\.owner: role that carries the removal out/);
    const known = parse(readFileSync(record, "utf8")) as Record<string, unknown>;
    assert.equal(valueAt(known, ["partner", "serverName"]), "matrix.lighthouse.example:8448");
    // A person fills it in: what the registry knows stays, and everything else is as in a whole record.
    const wanted = parse(COMPLETE_RECORD) as Record<string, unknown>;
    const {
      partner: { serverName },
      affected,
    } = known as { partner: { serverName: string }; affected: object };
    const filled = { ...wanted, affected: { ...affected, rooms: [] } };
    writeFile(
      record,
      stringify({ ...filled, partner: { ...(wanted["partner"] as object), serverName } }),
      0o600,
    );
    const opened = await open("--json");
    assert.equal(opened.code, 0, opened.stderr);
    const { run: first } = JSON.parse(opened.stdout) as { run: { run: string; kind: string } };
    assert.match(first.run, /^[0-9a-f]{32}$/);
    assert.equal(first.kind, "full");
    const { publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
    const text = publicKey.export({ type: "spki", format: "pem" });
    const parties = [{ organisation: "matrix.lighthouse.example", keys: [{ text }] }];
    writeFile(join(directory, "trust.yaml"), stringify({ version: 1, parties }));
    appendFileSync(config, "offboarding: {signingKey: {file: p.pem}, trustFile: trust.yaml}\n");
    const again = await open();
    assert.equal(again.stdout, `${first.run}\n`);
    assert.match(again.stderr, /has no key of matrix\.lighthouse\.example:8448: nothing can be signed/);
    const changed = await open("--kind", "partial");
    assert.equal(changed.code, 2);
    assert.match(changed.stderr, /says something else in the record/);
    await runCliHere(["offboarding", "abort", "--reason", "called_off", "--config", config]);
    const ended = await open();
    assert.deepEqual([ended.code, ended.stdout], [2, ""]);
    assert.match(ended.stderr, new RegExp(`run ${first.run} was aborted.*take \`run\` out`, "s"));
    writeFile(record, readFileSync(record, "utf8").replace(/^run: .*$/m, "run: null"), 0o600);
    assert.notEqual((await open()).stdout, again.stdout);
  });

  it("offboarding open refuses a mail address and an unknown field with exit code 2, and never prints the value [OFF-1]", async (t) => {
    const { record, open } = await deployment(t);
    await open();
    const before = readFileSync(record, "utf8");
    writeFile(record, before.replace("  owner: null", "  owner: anna@harbour.example"), 0o600);
    const mail = await open();
    assert.equal(mail.code, 2);
    assert.match(mail.stderr, /technical\.owner: .*\[personal\.mail_address\]\n {4}hint: /);
    assert.ok(!mail.stderr.includes("anna"));
    writeFile(record, `${before}telephone: 1\n`, 0o600);
    assert.equal((await open()).code, 2);
    writeFile(record, before, 0o600);
    assert.equal((await open("--kind", "complete")).code, 2);
    assert.equal(readFileSync(record, "utf8"), before);
  });

  it("offboarding open names the partner by the accepted head, whatever a refused one calls it [OFF-1]", async (t) => {
    const { directory, config, repository, record, open } = await deployment(t);
    const good = await repository.requireHead();
    const settings = parse(readFileSync(config, "utf8"));
    const signing = { allowedSignersFile: "allowed", trustedBase: good };
    writeFile(config, stringify({ ...settings, repository: { path: "control", ...signing } }));
    writeFile(join(directory, "allowed"), "");
    const accepted = { revision: good, at: "2026-01-02T03:04:05.000Z" };
    const state = openStateFolder(join(directory, "state"), systemRandom);
    writeHead(state, { version: 1, accepted, refused: null });
    // Nobody has signed it: two partners change their names.
    const registry = await repository.read(good, ["registry"]);
    const [lighthouse = "", pilots = ""] = [registry.get(LIGHTHOUSE), registry.get(PILOTS)];
    await commitRegistry(
      repository,
      new Map([
        [LIGHTHOUSE, pilots],
        [PILOTS, lighthouse],
      ]),
    );
    const begun = await open("--kind", "emergency", "--trigger", "suspected_compromise");
    assert.equal(begun.code, 5, begun.stderr);
    const { partner } = parse(readFileSync(record, "utf8")) as { partner: { serverName: string } };
    assert.equal(partner.serverName, "matrix.lighthouse.example:8448");
  });
});
