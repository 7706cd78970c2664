// The card commands, run as an operator runs them.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { AgentsFile } from "../../../src/rendered-files/agents-file.ts";
import { parseYaml } from "../../../src/runtime/load-yaml.ts";
import { bytesOf, fixture, fullCard, minimalCard, signedCard, testKey } from "../../support/cards.ts";
import { runCliHere } from "../../support/cli-in-process.ts";
import { httpServer, json } from "../../support/http-server.ts";

async function run(cwd: string, ...words: string[]) {
  const { code, stdout, stderr } = await runCliHere(["card", ...words], { cwd });
  return { code, out: stdout, err: stderr };
}

async function folder(t: TestContext) {
  const path = mkdtempSync(join(tmpdir(), "drawbridge-cards-"));
  t.after(() => rmSync(path, { recursive: true }));
  const key = await testKey("k1");
  const write = (name: string, data: string | Uint8Array) => writeFileSync(join(path, name), data);
  write(
    "jwks.json",
    bytesOf({
      keys: [
        { ...key.jwk, kid: "k1" },
        { kty: "RSA", kid: "r" },
      ],
    }),
  );
  write("good.json", bytesOf(signedCard(key, fullCard())));
  write("minimal.json", bytesOf(signedCard(key, minimalCard())));
  write("forged.json", bytesOf({ ...signedCard(key, fullCard()), version: "9" }));
  write("unsigned.json", bytesOf(fullCard()));
  return { path, key, write };
}

describe("drawbridge card", () => {
  it("card verify prints one line a card in order, and fails when one is rejected [AGT-3]", async (t) => {
    const { path } = await folder(t);
    const good = await run(path, "verify", "--jwks", "jwks.json", "good.json", "./minimal.json");
    assert.deepEqual(good, { code: 0, out: "good.json accept\n./minimal.json accept\n", err: "" });
    const cards = ["forged.json", "good.json", "unsigned.json", "absent.json", ".", "jwks.json"];
    const mixed = await run(path, "verify", "--jwks", "jwks.json", ...cards);
    assert.equal(mixed.code, 1);
    assert.deepEqual(mixed.out.trimEnd().split("\n"), [
      "forged.json reject signature_invalid",
      "good.json accept",
      "unsigned.json reject unsigned",
      "absent.json reject unreadable",
      ". reject unreadable",
      "jwks.json reject unknown_field",
    ]);
  });

  it("card verify --json prints key, digest, reason and place", async (t) => {
    const { path } = await folder(t);
    const { code, out } = await run(
      path,
      "verify",
      "--json",
      "--jwks",
      "jwks.json",
      "good.json",
      "forged.json",
    );
    assert.equal(code, 1);
    const [good, forged] = JSON.parse(out) as Record<string, unknown>[];
    assert.equal(good?.["keyId"], "k1");
    assert.match(String(good?.["digest"]), /^sha256:[0-9a-f]{64}$/);
    assert.deepEqual(forged, {
      card: "forged.json",
      accepted: false,
      reason: "signature_invalid",
      at: "/signatures/0",
    });
  });

  it("card verify fails without a usable key and verifies nothing", async (t) => {
    const { path, write } = await folder(t);
    write("rsa.json", bytesOf({ keys: [{ kty: "RSA", kid: "k1" }] }));
    for (const file of ["rsa.json", "absent.json", "good.json"]) {
      const { code, out, err } = await run(path, "verify", "--jwks", file, "good.json");
      assert.deepEqual([code, out], [2, ""]);
      assert.match(err, /^error: .*\nhint: /);
    }
  });

  it("card keygen, sign, verify and lint work together, and the private key is readable by its owner alone", async (t) => {
    const { path } = await folder(t);
    const made = await run(path, "keygen", "--key-id", "agent-1", "-o", "keys");
    assert.deepEqual(made, { code: 0, out: "keys/agent-1.private.jwk\nkeys/agent-1.jwks.json\n", err: "" });
    assert.equal(statSync(join(path, "keys/agent-1.private.jwk")).mode & 0o777, 0o600);
    assert.doesNotMatch(readFileSync(join(path, "keys/agent-1.jwks.json"), "utf8"), /"d"/);
    const again = await run(path, "keygen", "--key-id", "agent-1", "-o", "keys");
    assert.equal(again.code, 2);
    assert.equal((await run(path, "keygen", "--key-id", "../x", "-o", "keys")).code, 2);

    const key = ["--key", "keys/agent-1.private.jwk", "--key-id", "agent-1"];
    assert.deepEqual(await run(path, "sign", ...key, "unsigned.json", "-o", "signed.json"), {
      code: 0,
      out: "",
      err: "",
    });
    const misnamed = await run(
      path,
      "sign",
      "--key",
      "keys/agent-1.private.jwk",
      "--key-id",
      "k2",
      "good.json",
    );
    assert.deepEqual([misnamed.code, misnamed.out], [2, ""]);
    assert.match(
      misnamed.err,
      /^error: the key in keys\/agent-1\.private\.jwk has another kid than --key-id\n/,
    );
    const verify = await run(path, "verify", "--jwks", "keys/agent-1.jwks.json", "signed.json");
    assert.equal(verify.out, "signed.json accept\n");
    assert.deepEqual(await run(path, "lint", "signed.json"), { code: 0, out: "signed.json ok\n", err: "" });
    const minimal = await run(path, "sign", ...key, "minimal.json");
    assert.equal(minimal.code, 0);
    assert.equal((JSON.parse(minimal.out) as { signatures: unknown[] }).signatures.length, 2);
    assert.match(minimal.err, /^warning: minimal\.json: \/description: empty_string/);
    const lint = await run(path, "lint", "minimal.json", "jwks.json");
    assert.equal(lint.code, 1);
    assert.match(lint.out, /minimal\.json: \/skills: empty_array: .*\njwks\.json: \/keys: unknown_field: /s);
    const refused = await run(path, "sign", ...key, "jwks.json");
    assert.equal(refused.code, 1);
    assert.match(refused.err, /\/keys: unknown_field/);
  });

  it("card fetch shows what would be pinned, and an agents.yaml entry to complete", async (t) => {
    const { path } = await folder(t);
    const server = await httpServer(t);
    server.answer = json(readFileSync(join(path, "good.json")));
    const url = `${server.url}/card`;
    const shown = await run(path, "fetch", url);
    assert.equal(shown.code, 0);
    assert.match(shown.out, /^signature {3}kid "k1" alg "ES256"$/m);
    assert.match(shown.out, /^verified {4}no: give the operator's keys/m);
    assert.throws(
      () => parseYaml(AgentsFile, shown.out.slice(shown.out.indexOf("version: 1")), "f"),
      /jwk\.x/,
    );

    const verified = await run(path, "fetch", url, "--jwks", "jwks.json");
    assert.equal(verified.code, 0);
    const entry = parseYaml(AgentsFile, verified.out.slice(verified.out.indexOf("version: 1")), "f");
    const [agent] = Object.values(entry.agents);
    assert.equal(agent?.cardUrl, url);
    assert.equal(agent?.cardIdentity?.keyId, "k1");
    assert.deepEqual(agent?.allowedServers, []);

    server.answer = json(readFileSync(join(path, "forged.json")));
    const forged = await run(path, "fetch", url, "--jwks", "jwks.json");
    assert.equal(forged.code, 1);
    assert.doesNotMatch(forged.out, /cardIdentity/);
    const facts = JSON.parse((await run(path, "fetch", url, "--jwks", "jwks.json", "--json")).out) as object;
    assert.partialDeepStrictEqual(facts, {
      version: "9",
      verdict: { accepted: false, reason: "signature_invalid" },
    });
  });

  it("card fetch quotes the card's texts for the terminal, and failures have their exit code", async (t) => {
    const { path, key } = await folder(t);
    const server = await httpServer(t);
    server.answer = json(bytesOf(signedCard(key, { ...fullCard(), name: "\u001b[2J\u202eevil\u0085" })));
    const { out } = await run(path, "fetch", server.url);
    assert.match(out, /name {8}"\\u001b\[2J\\u202eevil\\u0085"/);
    server.answer = json(fixture("a2a-proto-fields.json"));
    assert.equal((await run(path, "fetch", server.url)).code, 1);
    server.answer = (_request, response) => response.writeHead(302, { location: "/x" }).end();
    assert.equal((await run(path, "fetch", server.url)).code, 3);
    assert.equal((await run(path, "fetch", "file:///etc/passwd")).code, 2);
  });
});
