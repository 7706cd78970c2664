// What may not stand in a registry, found by rule and line and never repeated.
import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import { describe, it } from "node:test";
import fc from "fast-check";
import { holdsRandomWord } from "../../../../src/federation/registry/secret-rules.ts";
import { problemsOf, withLine } from "../../../support/sample-files.ts";

const PARTNER = "registry/partners/pilot-station.yaml";
const key = generateKeyPairSync("ec", { namedCurve: "P-256" });
const privateJwk = key.privateKey.export({ format: "jwk" });
const pem = String(key.privateKey.export({ format: "pem", type: "pkcs8" }));
const jwt = `eyJhbGciOiJFUzI1NiJ9.${Buffer.from('{"azp":"org-b"}').toString("base64url")}.c2lnbmF0dXJl`;
const random = Buffer.alloc(32, "b7Q!x").toString("base64url");

/** A secret by the rule that must find it, as a value and in a comment. */
const SECRETS: readonly (readonly [rule: string, text: string])[] = [
  ["secret.private_jwk_member", `jwk: {kty: EC, crv: P-256, d: ${privateJwk.d}}`],
  ["secret.private_jwk_member", `# {"kty":"oct","k":"${random}"}`],
  ["secret.private_jwk_member", "jwk: {kty: oct, k: c2hvcnQ}"],
  ["secret.pem_block", `# ${pem.split("\n")[0]}`],
  ["secret.pem_block", `note: "-----BEGIN OPENSSH PRIVATE KEY-----"`],
  ["secret.jwt", `# ${jwt}`],
  ["secret.jwt", `note: ${jwt}`],
  ["secret.authorization", "# curl -H 'Authorization: Bearer 2YotnFZFEjr1zCsicMWpAA'"],
  ["secret.authorization", "# Basic b3JnLWI6aHVudGVyMg=="],
  ["secret.matrix_token", "note: syt_YWRtaW4_kWnOpQrStUvWxYzAbCdE_1a2b3c"],
  ["secret.matrix_token", "# as_token: wfghWEGh3wgWHEf3478sHFWE"],
  ["secret.matrix_token", `# hs_token="short"`],
  ["secret.server_signing_key", "# ed25519 a_lXqt XGzPaQ3cWvVQzHkbRSOGeWSYcXbkcWkqOZbLEfLkPzA"],
  ["secret.vendor_token", "# ghp_16C7e42F292c6912E7710c838347Ae178B4a"],
  ["secret.url_credentials", "note: https://admin:hunter2@id.example.org/"],
  ["secret.url_credentials", "# https://matrix.example.org/sync?access_token=abc"],
  ["secret.named_value", "clientSecret: hunter2"],
  ["secret.named_value", "password: correct horse battery staple"],
  ["secret.named_value", "password: 12345678"],
  ["secret.named_value", "# the old password: hunter2!"],
  ["secret.high_entropy", `note: ${random}`],
  ["secret.high_entropy", `# ${random}`],
  ["secret.high_entropy", `${random}: x`],
  ["secret.high_entropy", "issuer2: https://hooks.example.org/services/kX82hs0PqL1mZ77tYwQb3dEf"],
];

describe("secret rules", () => {
  it("a value that is or resembles a secret is refused with its rule and line, and is not repeated [REG-1]", () => {
    for (const [rule, text] of SECRETS) {
      const problems = problemsOf(withLine(PARTNER, 3, text));
      const found = problems.find((problem) => problem.rule === rule);
      assert.ok(
        found,
        `${rule} must find: ${text}; found ${problems.map((problem) => problem.rule).join(", ")}`,
      );
      assert.equal(found.line, 3, text);
      const reported = JSON.stringify(problems);
      for (const word of text.match(/[A-Za-z0-9_-]{12,}/g) ?? []) {
        if (/private|BEGIN|Authorization|services|clientSecret/i.test(word)) continue;
        assert.ok(!reported.includes(word), `${reported} repeats ${word}`);
      }
    }
  });

  it("a secret is found in a file that is not YAML, and in the texts beside the registry [REG-1]", () => {
    const broken = problemsOf(new Map([[PARTNER, `serverName: [\n# ${jwt}\n`]]));
    assert.deepEqual(
      broken.filter(({ rule }) => rule === "secret.jwt").map(({ line }) => line),
      [2],
    );
    const readme = problemsOf(new Map([["registry/README.md", `Ask for it: ${jwt}\n`]]));
    assert.deepEqual(
      readme.map(({ rule }) => rule),
      ["secret.jwt"],
    );
  });

  it("a text takes time in proportion to its length, whatever it holds [REG-1]", () => {
    const length = 262_144;
    const pieces = ["a.", "eyJ-", "token=", "-----BEGIN A", "basic ", "d :", "as_token ", "sha256:", "://a@"];
    const texts = pieces.map((piece) => `# ${piece.repeat(length / piece.length)}`);
    for (const text of [...texts, "as_token:x\n".repeat(150_000)]) {
      const begun = process.cpuUsage();
      problemsOf(new Map([["registry/README.md", text]]));
      assert.ok(process.cpuUsage(begun).user < 5_000_000, text.slice(0, 20));
    }
  });

  it("a comment is searched whatever ends its line [REG-1]", () => {
    for (const end of ["\r", "\u2028", "\r x"]) {
      const problems = problemsOf(withLine(PARTNER, 3, `# the old password: hunter2!${end}`));
      assert.deepEqual(
        problems.map(({ rule, line }) => [rule, line]),
        [["secret.named_value", 3]],
      );
    }
  });

  it("another problem of a file hides no secret in it [REG-1]", () => {
    const secret = "clientSecret: hunter2hunter2";
    const files: Record<string, string> = {
      "an alias": `version: 1\nx: &a {${secret}}\ny: *a\n`,
      "an alias of nothing": `version: 1\n${secret}\ny: *nowhere\n`,
      "an alias of the secret itself": `version: 1\nclientSecret: &s hunter2hunter2\ny: *s\n`,
      "a merge key": `version: 1\n${secret}\n<<: *defaults\n`,
      "a key written twice": `version: 1\n${secret}\nversion: 1\n`,
      "an unknown tag": `version: 1\n${secret}\nx: !!foo bar\n`,
      "an unknown key": `version: 1\n${secret}\ncolour: red\n`,
      "an open bracket": `version: 1\n${secret}\ny: [\n`,
    };
    for (const [what, text] of Object.entries(files)) {
      const problems = problemsOf(new Map([[PARTNER, text]]));
      const secrets = problems.filter(({ rule }) => rule === "secret.named_value");
      assert.deepEqual(
        secrets.map(({ line }) => line),
        [2],
        what,
      );
      assert.ok(
        problems.some(({ line, rule }) => line !== 2 && !rule.startsWith("secret.")),
        `${what} is told as well`,
      );
      for (const { message, hint } of problems) assert.doesNotMatch(`${message} ${hint}`, /hunter2/);
    }
  });

  it("public key coordinates, key identifiers, digests and references are not refused [REG-1]", () => {
    const jwk = key.publicKey.export({ format: "jwk" });
    const text = [
      "version: 1",
      "serverName: pilots.example",
      "classification: internal",
      "azp: 6f1c3a52-9f0e-4d0c-8a35-0d3f0f2f7a11",
      "issuer: https://login.example.org/6f1c3a52-9f0e-4d0c-8a35-0d3f0f2f7a11/v2.0",
      `# reviewed with sha256:${"0123456789abcdef".repeat(4)}`,
      `keyIds: {server: ["ed25519:a_1x2Y3z"], card: [${random}]}`,
      "card:",
      "  consumes:",
      "    pilot-roster:",
      "      cardUrl: https://agents.pilots.example/openid-connect/realms/federation/agent-card.json",
      `      cardIdentity: {keyId: ${random}, jwk: {kty: EC, crv: P-256, x: ${jwk.x}, y: ${jwk.y}, kid: ${random}}}`,
      "      credentials:",
      "        tokenEndpoint: https://id.pilots.example/realms/main/protocol/openid-connect/token",
      "        clientId: harbour-bridge-for-pilot-station-2026",
      "        clientSecret: {env: DRAWBRIDGE_SECRET_PILOT_STATION_2026}",
      "gateway:",
      "  clientSecret: {file: client-secrets/pilot-station.client-secret}",
      "",
    ].join("\n");
    assert.deepEqual(problemsOf(new Map([[PARTNER, text]])), []);
  });

  const bytes = (length: number) => fc.uint8Array({ minLength: length, maxLength: length }).map(Buffer.from);

  /** Share of samples in which the guess says "random". */
  function rate(arbitrary: fc.Arbitrary<string>, runs = 2_000): number {
    const samples = fc.sample(arbitrary, { numRuns: runs, seed: 42 });
    return samples.filter(holdsRandomWord).length / samples.length;
  }

  it("keys, tokens and generated passwords are recognized however they are written [REG-1]", () => {
    const alphabet = (characters: string, length: number) =>
      fc
        .array(fc.constantFrom(...characters), { minLength: length, maxLength: length })
        .map((c) => c.join(""));
    const kinds: Record<string, [fc.Arbitrary<string>, number]> = {
      "16 bytes in hexadecimal": [bytes(16).map((b) => b.toString("hex")), 0.99],
      "32 bytes in hexadecimal": [bytes(32).map((b) => b.toString("hex")), 0.999],
      "16 bytes in base64url": [bytes(16).map((b) => b.toString("base64url")), 0.85],
      "32 bytes in base64": [bytes(32).map((b) => b.toString("base64")), 0.98],
      "32 bytes in base64url": [bytes(32).map((b) => b.toString("base64url")), 0.99],
      "32 letters and digits": [
        alphabet("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", 32),
        0.99,
      ],
      "32 characters of base32": [alphabet("abcdefghijklmnopqrstuvwxyz234567", 32), 0.95],
    };
    for (const [kind, [arbitrary, atLeast]] of Object.entries(kinds)) {
      const found = rate(arbitrary);
      assert.ok(found >= atLeast, `${kind}: ${found} found, at least ${atLeast} must be`);
    }
  });

  it("names as people give them are hardly ever taken for secrets [REG-1]", () => {
    const words =
      "harbour lighthouse matrix federation agents internal production staging bridge issuer openid connect protocol realms token card well known docs berth planner rechtsschutzversicherung straße universitaet krakow szczebrzeszyn sous prefecture v1alpha1 v2 2026 eu west 1 x86 k8s s3 oauth2 ES256 P256 Agent Card Client";
    const word = fc.constantFrom(...words.split(" "));
    const joined = (separators: string) =>
      fc
        .tuple(fc.array(word, { minLength: 2, maxLength: 7 }), fc.constantFrom(...separators))
        .map(([parts, separator]) => parts.join(separator));
    // The share that may be taken for a secret. Camel case of words such as x86 and S3 is the hardest.
    const kinds: Record<string, [fc.Arbitrary<string>, number]> = {
      "names with separators": [joined("-_./"), 0.005],
      "names in camel case": [
        fc
          .array(word, { minLength: 2, maxLength: 6 })
          .map((parts) => parts.map((part) => part.charAt(0).toUpperCase() + part.slice(1)).join("")),
        0.03,
      ],
      "names run together": [
        fc.array(word, { minLength: 2, maxLength: 4 }).map((parts) => parts.join("")),
        0.02,
      ],
      UUIDs: [fc.uuid(), 0],
      digests: [bytes(32).map((b) => `sha256:${b.toString("hex")}`), 0],
      sentences: [joined(" "), 0],
    };
    for (const [kind, [arbitrary, atMost]] of Object.entries(kinds)) {
      const found = rate(arbitrary);
      assert.ok(found <= atMost, `${kind}: ${found} taken for a secret, at most ${atMost} may be`);
    }
  });
});
