import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { calculateJwkThumbprint } from "jose";
import { DrawbridgeError } from "../../../src/domain/errors.ts";
import { generateSigningKeys, parseSigningKeys } from "../../../src/issuer/server.ts";

describe("the issuer's signing keys", () => {
  it("a generated set can be read, and its key ID is the RFC 7638 thumbprint", async () => {
    const set = await generateSigningKeys();
    assert.deepEqual(parseSigningKeys(JSON.stringify(set)), set);
    const [key] = set.keys;
    assert.ok(key);
    assert.equal(key.kid, await calculateJwkThumbprint(key));
  });

  it("anything but a set of private ES256 keys is refused, and the error quotes nothing of it", async () => {
    const { keys } = await generateSigningKeys();
    const [key] = keys;
    assert.ok(key);
    const { d, ...publicKey } = key;
    const bad = [
      "canary",
      "{}",
      JSON.stringify({ keys: [] }),
      JSON.stringify({ keys: [publicKey] }),
      JSON.stringify({ keys: [{ ...key, crv: "P-384" }] }),
      JSON.stringify({ keys: [{ ...key, alg: "RS256" }] }),
      JSON.stringify({ keys: [{ ...key, kid: undefined }] }),
      JSON.stringify({ keys: [{ ...key, canary: 1 }] }),
    ];
    for (const text of bad) {
      assert.throws(
        () => parseSigningKeys(text),
        (error) =>
          error instanceof DrawbridgeError &&
          error.code === "secret_unavailable" &&
          !error.message.includes("canary") &&
          !error.message.includes(d),
      );
    }
  });
});
