import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { isPinned, isSenderAllowed } from "../../../../src/bridge/agents/sender-policy.ts";
import type { AgentId, UserId } from "../../../../src/domain/identifiers.ts";
import { AgentsFile, targetFingerprint } from "../../../../src/rendered-files/agents-file.ts";
import { ConfigError, parseYaml } from "../../../../src/runtime/load-yaml.ts";
import { agentEntry, agentsYaml } from "../../../support/agents.ts";
import { testKey } from "../../../support/cards.ts";

const key = await testKey("k1");
const AGENT = "docs" as AgentId;
const user = (name: string) => name as UserId;

function problemOf(text: string): string {
  try {
    parseYaml(AgentsFile, text, "agents.yaml");
    return "none";
  } catch (error) {
    assert.ok(error instanceof ConfigError);
    return error.problems.map(({ line, path }) => `${line} ${path}`).join(", ");
  }
}

/** The same bytes: the last digit of base64url has two bits that say nothing. */
function otherSpelling(coordinate: string): string {
  const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  const other = `${coordinate.slice(0, -1)}${digits[digits.indexOf(coordinate.at(-1) ?? "") + 1]}`;
  assert.deepEqual(Buffer.from(other, "base64url"), Buffer.from(coordinate, "base64url"));
  return other;
}

describe("agents.yaml entries", () => {
  it("an entry without identity, or with an empty list, parses and is not pinned [AGT-1]", () => {
    assert.equal(isPinned(agentEntry(key)), true);
    assert.equal(isPinned(agentEntry(undefined)), false);
    assert.equal(isPinned(agentEntry(key, { allowedServers: [] })), false);
    assert.equal(isPinned(agentEntry(key, { allowedSenders: [] })), false);
  });

  it("a problem is reported with its line and path [AGT-1]", () => {
    const good = agentsYaml({ docs: { key } });
    assert.equal(problemOf(good), "none");
    const line = (needle: string) => good.split("\n").findIndex((one) => one.includes(needle)) + 1;
    const cases: readonly (readonly [string, string, string])[] = [
      ["cardUrl: ", "cardUrl: ftp://", "agents.docs.cardUrl"],
      ["cardUrl: http://", "cardUrl: http://user:secret@", "agents.docs.cardUrl"],
      ["cardUrl: ", "cardurl: ", "agents.docs.cardUrl"],
      ["kty: EC", "kty: RSA", "agents.docs.cardIdentity.jwk.kty"],
      ["crv: P-256", "crv: P-256\n        d: AAAA", "agents.docs.cardIdentity.jwk.d"],
      [`x: "${key.jwk.x}"`, `x: "${key.jwk.y}"`, "agents.docs.cardIdentity.jwk"],
      [`x: "${key.jwk.x}"`, `x: "${otherSpelling(key.jwk.x)}"`, "agents.docs.cardIdentity.jwk.x"],
      [`x: "${key.jwk.x}"`, 'x: "FILL IN"', "agents.docs.cardIdentity.jwk.x"],
      ["crv: P-256", "crv: P-256\n        kid: another", "agents.docs.cardIdentity.keyId"],
      [`keyId: ${key.keyId}`, 'keyId: "k 1"', "agents.docs.cardIdentity.keyId"],
      [`keyId: ${key.keyId}`, 'keyId: "k1\\0"', "agents.docs.cardIdentity.keyId"],
      [`keyId: ${key.keyId}`, 'keyId: "ключ"', "agents.docs.cardIdentity.keyId"],
      ["crv: P-256", 'crv: P-256\n        kid: "k 1"', "agents.docs.cardIdentity.jwk.kid"],
      ["[a.test]", "[a.test]\n    pollInterval: 0s", "agents.docs.pollInterval"],
      ["[a.test]", "[a.test]\n    pollInterval: 99ms", "agents.docs.pollInterval"],
      ['"*:a.test"', '"@*:a.test:"', "agents.docs.allowedSenders.0"],
      ['"*:a.test"', '"*"', "agents.docs.allowedSenders.0"],
      ["[a.test]", '["*.test"]', "agents.docs.allowedServers.0"],
      ["[a.test]", '["https://a.test"]', "agents.docs.allowedServers.0"],
      ["  docs:", "  Docs:", "agents.Docs"],
    ];
    for (const [from, to, path] of cases) {
      assert.ok(good.includes(from), from);
      const problems = problemOf(good.replace(from, to));
      assert.ok(
        problems.split(", ").some((one) => one.endsWith(` ${path}`)),
        `${to}: ${problems}`,
      );
    }
    assert.match(problemOf(good.replace("kty: EC", "kty: RSA")), new RegExp(`^${line("kty: EC")} `));
  });

  it("the sender policy compares server and user exactly [AGT-1]", () => {
    const entry = agentEntry(key, {
      allowedServers: ["a.test", "b.test:8448"],
      allowedSenders: ["*:a.test", "@bob:b.test:8448", "@eve:c.test", "*:d.test"],
    });
    const may = (sender: string) => isSenderAllowed(entry, user(sender));
    assert.equal(may("@anyone:a.test"), true);
    assert.equal(may("@bob:b.test:8448"), true);
    assert.equal(may("@alice:b.test:8448"), false, "not listed");
    assert.equal(may("@eve:c.test"), false, "listed, but not the server");
    assert.equal(may("@any:d.test"), false, "all users listed, but not the server");
    for (const sender of [
      "@bob:b.test",
      "@bob:a.test:8448",
      "@x:A.test",
      "@x:aa.test",
      "@x:a.test.evil",
      "@x:sub.a.test",
    ]) {
      assert.equal(may(sender), false, sender);
    }
  });

  it("a fingerprint changes with name, address, key ID and key, and with nothing else [AGT-1]", async () => {
    const one = agentEntry(key);
    const base = targetFingerprint(AGENT, one);
    assert.match(base, /^sha256:[0-9a-f]{64}$/);
    const identity = one.cardIdentity;
    assert.ok(identity !== undefined);
    const same = [
      agentEntry(key),
      agentEntry(key, { allowedServers: [], allowedSenders: [], displayName: "X" }),
      agentEntry(key, { cardIdentity: { ...identity, jwk: { ...identity.jwk, kid: "k1", use: "sig" } } }),
    ];
    for (const entry of same) assert.equal(targetFingerprint(AGENT, entry), base);
    const others = [
      agentEntry(undefined),
      agentEntry(await testKey("k1")),
      agentEntry(key, { cardUrl: "http://127.0.0.1:2/card" }),
      agentEntry(key, { cardIdentity: { ...identity, keyId: "k2" } }),
    ];
    const all = [
      base,
      targetFingerprint("other" as AgentId, one),
      ...others.map((entry) => targetFingerprint(AGENT, entry)),
    ];
    assert.equal(new Set(all).size, all.length);
  });
});
