import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { lintCard } from "../../../src/cards/lint.ts";
import { generateCardKey, importSigningKey, signCard } from "../../../src/cards/sign.ts";
import { importJwkSet, verifyCard } from "../../../src/cards/verify.ts";
import { DrawbridgeError } from "../../../src/domain/errors.ts";
import type { Json, JsonObject } from "../../../src/domain/json.ts";
import { bytesOf, fullCard, minimalCard, testKey } from "../../support/cards.ts";

async function newSigner(keyId: string) {
  const { privateJwk, publicJwk } = await generateCardKey(keyId);
  const pinned = await importJwkSet(bytesOf({ keys: [publicJwk] }), keyId);
  return { key: await importSigningKey(privateJwk), keyId, pinned, privateJwk };
}
const rules = (card: unknown) => lintCard(bytesOf(card)).map(({ at, rule }) => `${at} ${rule}`);

describe("signing and linting cards", () => {
  it("a signed card verifies, keeps its content, and names its key with typ JOSE", async () => {
    const signer = await newSigner("k1");
    for (const card of [fullCard(), minimalCard()]) {
      const signed = await signCard(bytesOf(card), signer);
      assert.ok(signed.signed);
      const { signatures, ...rest } = JSON.parse(signed.bytes.toString()) as JsonObject;
      assert.deepEqual(rest, card);
      const [entry] = signatures as { protected: string }[];
      assert.deepEqual(JSON.parse(Buffer.from(entry?.protected ?? "", "base64url").toString()), {
        alg: "ES256",
        kid: "k1",
        typ: "JOSE",
      });
      assert.equal((await verifyCard(signed.bytes, signer.pinned)).accepted, true);
    }
  });

  it("signing again replaces one's own signature and keeps the others'", async () => {
    const [old, fresh] = [await newSigner("old"), await newSigner("fresh")];
    let bytes: Uint8Array = bytesOf(fullCard());
    for (const signer of [old, fresh, fresh]) {
      const signed = await signCard(bytes, signer);
      assert.ok(signed.signed);
      bytes = signed.bytes;
    }
    const { signatures } = JSON.parse(Buffer.from(bytes).toString()) as { signatures: unknown[] };
    assert.equal(signatures.length, 2);
    for (const { pinned } of [old, fresh]) assert.equal((await verifyCard(bytes, pinned)).accepted, true);
  });

  it("an invalid card is not signed, and every problem is reported with its place", async () => {
    const signer = await newSigner("k1");
    const { skills: _, ...card } = minimalCard();
    const signed = await signCard(bytesOf({ ...card, name: 7, extra: 1 }), signer);
    assert.ok(!signed.signed);
    assert.deepEqual(signed.problems, [
      { reason: "unknown_field", at: "/extra" },
      { reason: "wrong_type", at: "/name" },
      { reason: "missing_field", at: "/skills" },
    ]);
    const broken = await signCard(Buffer.from('{"a":1,"a":2}'), signer);
    assert.ok(!broken.signed);
    assert.equal(broken.problems[0]?.reason, "duplicate_key");
  });

  it("a signing key is a private P-256 JWK or a PKCS #8 PEM, and an error quotes nothing of it", async () => {
    const { privateKey, jwk } = await testKey("k1");
    await importSigningKey(privateKey.export({ type: "pkcs8", format: "pem" }).toString());
    await importSigningKey(JSON.stringify(privateKey.export({ format: "jwk" })));
    const secret = JSON.stringify(privateKey.export({ format: "jwk" })).replace('"P-256"', '"P-384"');
    for (const text of ["", "secret", JSON.stringify(jwk), secret, "-----BEGIN PRIVATE KEY-----\nAAAA"]) {
      await assert.rejects(importSigningKey(text), (error) => {
        assert.ok(error instanceof DrawbridgeError);
        assert.equal(error.code, "secret_unavailable");
        assert.equal(error.cause, undefined);
        return true;
      });
    }
  });

  it("lint reports values that canonicalizers write differently", () => {
    const card = fullCard();
    assert.deepEqual(rules(card), []);
    assert.deepEqual(rules({ ...card, description: "" }), ["/description empty_string"]);
    assert.deepEqual(rules({ ...card, skills: [] }), ["/skills empty_array"]);
    assert.deepEqual(rules({ ...card, capabilities: {} }), ["/capabilities empty_object"]);
    const extension = (params: Json) => ({ ...card, capabilities: { extensions: [{ uri: "u", params }] } });
    const at = "/capabilities/extensions/0/params";
    assert.deepEqual(rules(extension({ a: null })), [`${at}/a null_value`]);
    assert.deepEqual(rules(extension({ a: 2 ** 53 })), [`${at}/a large_integer`]);
    assert.deepEqual(rules(extension({ required: false, a: 1.5, "b/c~": "" })), [
      `${at}/b~1c~0 empty_string`,
    ]);
    assert.deepEqual(
      lintCard(Buffer.from(JSON.stringify(extension({ a: 0 })).replace('"a":0', '"a":-0'))).length,
      1,
    );
    const reserved = JSON.stringify(extension({ a: 0 })).replace('"a"', '"__proto__"');
    assert.deepEqual(
      lintCard(Buffer.from(reserved)).map(({ rule }) => rule),
      ["reserved_name"],
    );
    const optional = { ...card, capabilities: { extensions: [{ uri: "u", required: false }] } };
    assert.deepEqual(rules(optional), ["/capabilities/extensions/0/required default_value"]);
  });

  it("lint reports an invalid card, and one that cannot work", () => {
    const card = fullCard();
    assert.deepEqual(rules({ ...card, protocol_version: "1.0" }), ["/protocol_version unknown_field"]);
    const [skill] = card["skills"] as Json[];
    assert.deepEqual(rules({ ...card, skills: [skill, skill] }), ["/skills/1/id repeated_skill"]);
    assert.deepEqual(rules({ ...card, securityRequirements: [{ schemes: { none: { list: ["x"] } } }] }), [
      "/securityRequirements/0/schemes/none undeclared_scheme",
    ]);
    const supportedInterfaces = [{ url: "a.example/rpc", protocolBinding: "JSONRPC", protocolVersion: "1" }];
    assert.deepEqual(rules({ ...card, supportedInterfaces }), [
      "/supportedInterfaces/0/url interface_url",
      "/supportedInterfaces/0/protocolVersion protocol_version",
    ]);
    assert.deepEqual(
      lintCard(Buffer.from("{")).map(({ rule }) => rule),
      ["not_json"],
    );
  });

  it("verifying never loads signing", () => {
    const folder = new URL("../../../src/cards/", import.meta.url);
    const imports = (file: string): string[] =>
      [...readFileSync(new URL(file, folder), "utf8").matchAll(/from "\.\/([^"]+)"/g)].map(
        (match) => match[1] ?? "",
      );
    const reached = new Set(["verify.ts"]);
    for (const file of reached) for (const next of imports(file)) reached.add(next);
    const known = readdirSync(folder);
    assert.ok([...reached].every((file) => known.includes(file)));
    assert.ok(reached.has("card-fields.ts"));
    assert.ok(!reached.has("sign.ts"));
  });
});
