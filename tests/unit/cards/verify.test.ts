import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { importJwkSet, importPinnedKey, isSignedBy, verifyCard } from "../../../src/cards/verify.ts";
import { canonicalize } from "../../../src/domain/canonical-json.ts";
import { DrawbridgeError } from "../../../src/domain/errors.ts";
import type { Json } from "../../../src/domain/json.ts";
import {
  base64url,
  bytesOf,
  fixture,
  fullCard,
  minimalCard,
  signedCard,
  signText,
  testKey,
} from "../../support/cards.ts";

const ours = await testKey("ours-2026");
const other = await testKey("other-2026");
const PINNED = [ours.pinned];

async function outcome(card: unknown, pinned = PINNED): Promise<string> {
  const verdict = await verifyCard(card instanceof Uint8Array ? card : bytesOf(card), pinned);
  return verdict.accepted ? `accepted by ${verdict.keyId}` : verdict.reason;
}
const ACCEPTED = `accepted by ${ours.keyId}`;

describe("verifyCard", () => {
  it("the ES256 example of RFC 7515 appendix A.3 verifies, and fails when one bit is changed", async () => {
    const { key } = await importPinnedKey("a3", {
      x: "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
      y: "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
    });
    const jws = {
      protected: "eyJhbGciOiJFUzI1NiJ9",
      payload:
        "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ",
      signature: "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q",
    };
    assert.equal(await isSignedBy(key, jws), true);
    assert.equal(await isSignedBy(key, { ...jws, payload: jws.payload.replace("eyJpc3", "eyJpc2") }), false);
    assert.equal(await isSignedBy(key, { ...jws, signature: jws.signature.replace("DtEh", "DtEg") }), false);
  });

  for (const name of ["python-sdk", "js-sdk"]) {
    it(`a card signed by the ${name} verifies with its published key [AGT-3]`, async () => {
      const pinned = await importJwkSet(fixture(`${name}.jwks.json`), name);
      const verdict = await verifyCard(fixture(`${name}.card.json`), pinned);
      assert.equal(verdict.accepted, true);
    });
  }

  it("a full and a minimal card verify [AGT-3]", async () => {
    assert.equal(await outcome(signedCard(ours, fullCard())), ACCEPTED);
    assert.equal(await outcome(signedCard(ours, minimalCard())), ACCEPTED);
  });

  it("a verdict holds the card without signatures, the key and a digest of what was signed", async () => {
    const card = fullCard();
    const verdict = await verifyCard(bytesOf(signedCard(ours, card)), PINNED);
    assert.ok(verdict.accepted);
    assert.equal(canonicalize(verdict.card as unknown as Json), canonicalize(card));
    const again = await verifyCard(bytesOf(signedCard(ours, card)), PINNED);
    assert.ok(again.accepted);
    assert.equal(again.digest, verdict.digest, "another signature over the same card changes no digest");
    const changed = await verifyCard(bytesOf(signedCard(ours, { ...card, version: "2.1.1" })), PINNED);
    assert.ok(changed.accepted);
    assert.notEqual(changed.digest, verdict.digest);
  });

  it("the sample fragment of A2A 1.0 section 8.4.1 is canonicalized as specified", async () => {
    const card = {
      ...minimalCard(),
      name: "Example Agent",
      capabilities: { streaming: false, pushNotifications: false, extensions: [] },
    };
    const signed = { ...card, capabilities: { streaming: false, pushNotifications: false } };
    const signatures = [signText(ours, canonicalize(signed))];
    assert.equal(await outcome({ ...card, signatures }), ACCEPTED);
  });

  it("a default that is not signed may be spelled out or left out", async () => {
    const card = fullCard();
    const [first, second] = card["supportedInterfaces"] as Record<string, Json>[];
    const { signatures } = signedCard(ours, card);
    const spelled = { ...card, supportedInterfaces: [first, { ...second, tenant: "" }], signatures };
    assert.equal(await outcome(spelled), ACCEPTED);
    const minimal = signedCard(ours, minimalCard());
    assert.equal(await outcome({ ...minimal, securitySchemes: {}, securityRequirements: [] }), ACCEPTED);
    assert.equal(await outcome({ ...minimal, capabilities: { extensions: [] } }), ACCEPTED);
  });

  it("an optional field or message that is set is signed, at its default too", async () => {
    const minimal = signedCard(ours, minimalCard());
    const additions: Record<string, Json>[] = [
      { documentationUrl: "" },
      { iconUrl: "" },
      { capabilities: { streaming: false } },
      { capabilities: { extendedAgentCard: false } },
    ];
    for (const addition of additions) {
      assert.equal(await outcome({ ...minimal, ...addition }), "signature_invalid", JSON.stringify(addition));
      const signed = signedCard(ours, { ...minimalCard(), ...addition });
      assert.equal(await outcome(signed), ACCEPTED, JSON.stringify(addition));
    }
  });

  it("empty messages and everything inside params and header are kept as they are", async () => {
    const params = {
      a: "",
      b: [],
      c: {},
      d: null,
      e: false,
      f: 0,
      "": 1,
      __proto: [[], ""],
      g: 1e21,
      h: -1.5e-9,
    };
    const extensions = [{ uri: "https://x.example", params }, { params: {} }];
    const securitySchemes = {
      none: { mtlsSecurityScheme: {} },
      flows: { oauth2SecurityScheme: { flows: { implicit: {} } } },
      anyFlow: { oauth2SecurityScheme: { flows: {} } },
    };
    const securityRequirements = [{}, { schemes: { none: {} } }];
    const card = { ...minimalCard(), capabilities: { extensions }, securitySchemes, securityRequirements };
    const signed = signedCard(ours, card);
    assert.equal(await outcome(signed), ACCEPTED);
    const without = { ...card, capabilities: { extensions: [{ uri: "https://x.example", params }, {}] } };
    assert.equal(await outcome({ ...without, signatures: signed["signatures"] }), "signature_invalid");
  });

  it("a card verifies whatever its white space, order of members and escapes", async () => {
    const signed = signedCard(ours, fullCard());
    const reversed = Object.fromEntries(Object.entries(signed).reverse());
    assert.equal(await outcome(Buffer.from(JSON.stringify(reversed, undefined, 3))), ACCEPTED);
    const escaped = JSON.stringify(signed).replace(/[\u0080-\uffff]/g, (unit) => {
      return `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
    });
    assert.equal(await outcome(Buffer.from(escaped)), ACCEPTED);
  });

  it("the key is chosen by the exact key ID among several pinned ones", async () => {
    const third = await testKey("third");
    const all = [other.pinned, ours.pinned, third.pinned];
    assert.equal(await outcome(signedCard(ours, fullCard()), all), ACCEPTED);
    assert.equal(await outcome(signedCard(third, fullCard()), all), "accepted by third");
    const header = { alg: "ES256", kid: other.keyId };
    assert.equal(await outcome(signedCard(ours, fullCard(), header), all), "signature_invalid");
  });

  it("signatures by keys that are not pinned are skipped, whatever their algorithm", async () => {
    const card = fullCard();
    const payload = canonicalize(card);
    const good = signText(ours, payload);
    const foreign = [
      signText(other, payload),
      { protected: base64url('{"alg":"ES384","kid":"other"}'), signature: base64url(Buffer.alloc(96, 1)) },
      { protected: base64url('{"alg":"RS256","kid":"rsa"}'), signature: base64url(Buffer.alloc(256, 1)) },
      { protected: base64url('{"alg":"EdDSA","kid":"ed"}'), signature: base64url(Buffer.alloc(64, 1)) },
      { protected: base64url('{"alg":"ES256"}'), signature: base64url(Buffer.alloc(64, 1)) },
    ];
    for (const signature of foreign) {
      assert.equal(await outcome({ ...card, signatures: [signature, good] }), ACCEPTED);
      assert.equal(await outcome({ ...card, signatures: [good, signature] }), ACCEPTED);
      assert.equal(await outcome({ ...card, signatures: [signature] }), "key_not_pinned");
    }
    assert.equal(await outcome({ ...card, signatures: [...foreign, good] }), ACCEPTED);
  });

  it("one failing signature under a pinned key ID rejects the card beside a good one", async () => {
    const card = fullCard();
    const signatures = [signText(ours, canonicalize(card)), signText(ours, "{}")];
    assert.equal(await outcome({ ...card, signatures }), "signature_invalid");
    assert.equal(await outcome({ ...card, signatures: signatures.toReversed() }), "signature_invalid");
  });

  it("another algorithm under a pinned key ID is rejected as such, and not tried [AGT-3]", async () => {
    for (const alg of ["none", "HS256", "ES384", "RS256", "es256"]) {
      const card = signedCard(ours, fullCard(), { alg, kid: ours.keyId });
      assert.equal(await outcome(card), "algorithm_not_allowed", alg);
    }
  });

  it("jku, jwk, x5u and x5c in either header are ignored", async () => {
    const parameters = {
      jku: "https://evil.example/jwks.json",
      jwk: other.jwk,
      x5u: "https://evil.example/cert.pem",
      x5c: ["MIIB"],
    };
    for (const [name, value] of Object.entries(parameters)) {
      const header = { alg: "ES256", typ: "JOSE", kid: ours.keyId, [name]: value };
      assert.equal(await outcome(signedCard(ours, fullCard(), header)), ACCEPTED, name);
      assert.equal(await outcome(signedCard(other, fullCard(), header)), "signature_invalid", name);
      const card = fullCard();
      const signature = { ...signText(ours, canonicalize(card)), header: { [name]: value } };
      assert.equal(await outcome({ ...card, signatures: [signature] }), ACCEPTED, `unprotected ${name}`);
    }
  });

  it("an unprotected header may hold any member except crit, b64 and those of the protected one", async () => {
    const card = fullCard();
    const signature = signText(ours, canonicalize(card));
    const withHeader = (header: Json) => outcome({ ...card, signatures: [{ ...signature, header }] });
    for (const header of [{}, { note: "x" }, { note: { deep: ["", null, {}] } }, { typ: "JOSE" }]) {
      assert.equal(await withHeader(header), ACCEPTED);
    }
    assert.equal(await withHeader({ alg: "ES256" }), "malformed_signature");
    assert.equal(await withHeader({ kid: ours.keyId }), "malformed_signature");
    assert.equal(await withHeader({ crit: ["b64"] }), "critical_header");
    assert.equal(await withHeader({ b64: false }), "critical_header");
    assert.equal(await withHeader(null), "wrong_type");
    assert.equal(await withHeader([]), "wrong_type");
  });

  it("a key ID in the unprotected header alone names no key", async () => {
    const card = fullCard();
    const signature = signText(ours, canonicalize(card), { alg: "ES256" });
    const signatures = [{ ...signature, header: { kid: ours.keyId } }];
    assert.equal(await outcome({ ...card, signatures }), "key_not_pinned");
  });

  it("a JWK set's usable keys are imported, and the others are skipped", async () => {
    const set = (...keys: unknown[]) => bytesOf({ keys });
    const good = { ...ours.jwk, kid: "good" };
    const useless: unknown[] = [
      { kty: "RSA", kid: "good", n: "AQAB", e: "AQAB" },
      { kty: "OKP", crv: "Ed25519", kid: "good", x: ours.jwk.x },
      { kty: "oct", kid: "good", k: "c2VjcmV0" },
      { ...good, crv: "P-384" },
      { ...good, y: ours.jwk.x },
      { ...good, use: "enc" },
      { ...good, alg: "ES384" },
      { ...good, key_ops: ["sign"] },
      { ...good, kid: 7 },
      { ...good, kid: "" },
      { ...ours.jwk },
      "good",
      null,
      ["good"],
    ];
    const keys = await importJwkSet(
      set(...useless, good, { ...good, kid: "too", use: "sig", x5t: "?" }),
      "f",
    );
    assert.deepEqual(
      keys.map(({ keyId }) => keyId),
      ["good", "too"],
    );
    for (const bytes of [
      set(...useless),
      set(),
      bytesOf({}),
      bytesOf([good]),
      Buffer.from("no"),
      bytesOf(good),
    ]) {
      await assert.rejects(importJwkSet(bytes, "f"), (error) => {
        return (
          error instanceof DrawbridgeError && error.code === "config_invalid" && error.hint !== undefined
        );
      });
    }
  });

  it("two keys under one key ID: either may have signed", async () => {
    const twin = await testKey(ours.keyId);
    const both = [twin.pinned, ours.pinned];
    assert.equal(await outcome(signedCard(ours, fullCard()), both), ACCEPTED);
    assert.equal(await outcome(signedCard(twin, fullCard()), both), ACCEPTED);
  });
});
