// DSSE envelopes of in-toto statements: what verifies, and every way in which one does not.
import assert from "node:assert/strict";
import { createPublicKey, generateKeyPairSync, type KeyObject, sign } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import fc from "fast-check";
import * as z from "zod";
import {
  type DsseEnvelope,
  preAuthenticationEncoding,
} from "../../../../src/records/format/dsse-envelope.ts";
import { inOneForm, isInOneForm, keyIdOf, readPublicKey } from "../../../../src/records/format/ecdsa-p256.ts";
import { STATEMENT_TYPE, type Statement, statementOf } from "../../../../src/records/format/statements.ts";
import type { TrustedParty } from "../../../../src/records/format/trust.ts";
import { addSignature, fileSigner, type Signer } from "../../../../src/records/sign/signer.ts";
import { verifyDsseEnvelope } from "../../../../src/records/verify/verify-signatures.ts";
import { signStatement } from "../../../support/removal.ts";
import { temporaryFolder } from "../../../support/temporary.ts";

const Predicate = z.strictObject({ stage: z.string(), step: z.int() });
const Schema = statementOf("https://example.org/stage/v1", Predicate);

const STATEMENT: Statement<z.output<typeof Predicate>> = {
  _type: STATEMENT_TYPE,
  subject: [{ name: "evidence", digest: { sha256: "a".repeat(64) } }],
  predicateType: "https://example.org/stage/v1",
  predicate: { stage: "border", step: 4 },
};

const BOTH = { must: ["org-a.test", "org-b.test"], may: ["org-a.test", "org-b.test"] };
const ONE = { must: ["org-a.test"], may: ["org-a.test"] };

/** The reasons why an envelope does not verify. */
function reasonsOf(result: ReturnType<typeof verifyDsseEnvelope>): string[] {
  return result.valid ? ["valid"] : result.problems.map(({ reason }) => reason);
}

interface Party {
  readonly trusted: TrustedParty;
  readonly signer: Signer;
  readonly file: string;
  readonly privateKey: KeyObject;
}

function party(t: TestContext, organisation: string): Party {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "prime256v1" });
  const file = join(temporaryFolder(t), "key.pem");
  writeFileSync(file, privateKey.export({ type: "pkcs8", format: "pem" }), { mode: 0o600 });
  const key = readPublicKey(publicKey.export({ type: "spki", format: "pem" }).toString(), "test");
  return { trusted: { organisation, keys: [key] }, signer: fileSigner(file), file, privateKey };
}

const bytesOf = (envelope: unknown) => Buffer.from(JSON.stringify(envelope));
const ORDER = 0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551n;

async function both(t: TestContext) {
  const a = party(t, "org-a.test");
  const b = party(t, "org-b.test");
  const envelope = await addSignature(await signStatement(STATEMENT, a.signer), b.signer);
  const verifyAs = (value: unknown) => verifyDsseEnvelope(value, Schema, [a.trusted, b.trusted], () => BOTH);
  return { a, b, envelope, verifyAs };
}

/** The other signature that anybody can make of one: (r, n - s). */
function otherHalf(base64: string): string {
  const der = Buffer.from(base64, "base64");
  const length = der[3] ?? 0;
  const r = der.subarray(4, 4 + length);
  const s = BigInt(`0x${der.subarray(6 + length).toString("hex")}`);
  const other = Buffer.from(`00${(ORDER - s).toString(16).padStart(64, "0")}`, "hex");
  const body = Buffer.concat([Buffer.from([2, r.length]), r, Buffer.from([2, other.length]), other]);
  return Buffer.concat([Buffer.from([0x30, body.length]), body]).toString("base64");
}

describe("verifyDsseEnvelope", () => {
  it("one of the two forms of a signature is accepted, and signers' output is converted to it", async (t) => {
    const a = party(t, "org-a.test");
    for (let round = 0; round < 64; round++) {
      const { signatures } = await signStatement(STATEMENT, a.signer);
      const der = Buffer.from(signatures[0]?.sig ?? "", "base64");
      assert.ok(isInOneForm(der));
      const other = Buffer.from(otherHalf(der.toString("base64")), "base64");
      assert.equal(isInOneForm(other), false);
      assert.deepEqual(inOneForm(other), der);
    }
  });

  it("bytes that are no strict DER signature are not converted", () => {
    const values = [
      "",
      "3000",
      "3006020100020101",
      "30060201010201ff",
      "300702020001020101",
      "3006020101020101ff",
    ];
    for (const hex of values) assert.equal(inOneForm(Buffer.from(hex, "hex")), undefined, hex);
    assert.equal(inOneForm(Buffer.from("3006020101020101", "hex"))?.toString("hex"), "3006020101020101");
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 80 }), (bytes) => {
        const form = inOneForm(bytes);
        assert.ok(form === undefined || isInOneForm(form));
      }),
    );
  });

  it("a DSSE envelope that both organisations signed verifies and names the signers", async (t) => {
    const { a, b, envelope, verifyAs } = await both(t);
    const signers = [
      { organisation: "org-a.test", keyId: a.signer.keyId },
      { organisation: "org-b.test", keyId: b.signer.keyId },
    ].sort((left, right) => (left.keyId < right.keyId ? -1 : 1));
    assert.deepEqual(verifyAs(envelope), { valid: true, statement: STATEMENT, signers });
  });

  it("the pre-authentication encoding equals the DSSE protocol's example", () => {
    const encoded = preAuthenticationEncoding("http://example.com/HelloWorld", Buffer.from("hello world"));
    assert.equal(encoded.toString(), "DSSEv1 29 http://example.com/HelloWorld 11 hello world");
  });

  it("signing a second time with the same key adds nothing", async (t) => {
    const { a, envelope } = await both(t);
    assert.equal(await addSignature(envelope, a.signer), envelope);
  });

  it("each kind of forgery or omission has a reason of its own", async (t) => {
    const { a, b, envelope, verifyAs } = await both(t);
    const stranger = party(t, "org-c.test");
    const [first, second] = envelope.signatures;
    assert.ok(first !== undefined && second !== undefined);
    const resigned = async (payload: string, payloadType = envelope.payloadType): Promise<DsseEnvelope> => {
      const data = preAuthenticationEncoding(payloadType, Buffer.from(payload));
      const signatures = [a, b].map(({ privateKey, signer }) => ({
        keyid: signer.keyId,
        sig:
          inOneForm(sign("sha256", data, { key: privateKey, dsaEncoding: "der" }))?.toString("base64") ?? "",
      }));
      signatures.sort((left, right) => (left.keyid < right.keyid ? -1 : 1));
      return { payloadType, payload: Buffer.from(payload).toString("base64"), signatures };
    };
    const text = Buffer.from(envelope.payload, "base64").toString();
    const raw = sign("sha256", preAuthenticationEncoding(envelope.payloadType, Buffer.from(text)), {
      key: a.privateKey,
      dsaEncoding: "ieee-p1363",
    });
    const cases: readonly (readonly [string, unknown])[] = [
      ["signature_missing", { ...envelope, signatures: [first] }],
      ["duplicate_signature", { ...envelope, signatures: [first, first, second] }],
      ["signatures_out_of_order", { ...envelope, signatures: [second, first] }],
      ["unknown_key", await addSignature(envelope, stranger.signer)],
      ["signature_invalid", { ...envelope, signatures: [{ ...first, sig: second.sig }, second] }],
      ["signature_malformed", { ...envelope, signatures: [{ ...first, sig: otherHalf(first.sig) }, second] }],
      [
        "signature_malformed",
        { ...envelope, signatures: [{ ...first, sig: raw.toString("base64") }, second] },
      ],
      ["wrong_payload_type", await resigned(text, "application/json")],
      ["not_canonical", await resigned(JSON.stringify(JSON.parse(text), null, 1))],
      ["not_a_statement", await resigned(text.replace("border", 'border","more":"x'))],
      ["not_a_statement", await resigned(text.replace('"step":4', '"step":4,"step":4'))],
      ["other_predicate_type", await resigned(text.replace("stage/v1", "stage/v2"))],
      ["not_an_envelope", { ...envelope, payload: `${envelope.payload}\n` }],
      ["not_an_envelope", { ...envelope, extra: 1 }],
      ["not_an_envelope", { ...envelope, signatures: [] }],
    ];
    for (const [reason, value] of cases) {
      const result = verifyAs(value);
      assert.deepEqual(reasonsOf(result), [reason], JSON.stringify(value).slice(0, 80));
    }
  });

  it("a key that two parties claim verifies for neither", async (t) => {
    const { a, b, envelope } = await both(t);
    const result = verifyDsseEnvelope(
      envelope,
      Schema,
      [a.trusted, b.trusted, { organisation: "org-c.test", keys: a.trusted.keys }],
      () => ONE,
    );
    assert.deepEqual(reasonsOf(result), ["unknown_key"]);
  });

  it("a DSSE envelope does not verify when a single byte is changed", async (t) => {
    const { envelope, verifyAs } = await both(t);
    const bytes = bytesOf(envelope);
    assert.equal(verifyAs(envelope).valid, true);
    fc.assert(
      fc.property(fc.nat(bytes.length - 1), fc.integer({ min: 1, max: 255 }), (at, flip) => {
        const forged = Buffer.from(bytes);
        forged[at] = (forged[at] ?? 0) ^ flip;
        let value: unknown;
        try {
          value = JSON.parse(forged.toString("utf8"));
        } catch {
          return;
        }
        assert.equal(verifyAs(value).valid, false);
      }),
      { numRuns: 2_000 },
    );
  });

  it("one key in another encoding does not count as a second key [OFF-3]", () => {
    const { publicKey } = generateKeyPairSync("ec", { namedCurve: "prime256v1" });
    const der = publicKey.export({ type: "spki", format: "der" });
    const [x, y] = [der.subarray(-64, -32), der.subarray(-32)];
    const odd = (y.at(-1) ?? 0) % 2;
    const algorithm = der.subarray(2, 23);
    const spki = (point: Buffer) => {
      const bits = Buffer.concat([Buffer.from([0x03, point.length + 1, 0]), point]);
      return Buffer.concat([Buffer.from([0x30, algorithm.length + bits.length]), algorithm, bits]);
    };
    const compressed = spki(Buffer.concat([Buffer.from([2 + odd]), x]));
    const hybrid = spki(Buffer.concat([Buffer.from([6 + odd]), x, y]));
    assert.deepEqual(spki(Buffer.concat([Buffer.from([4]), x, y])), der);
    for (const other of [compressed, hybrid]) {
      const key = createPublicKey({ key: other, format: "der", type: "spki" });
      assert.equal(keyIdOf(key), keyIdOf(publicKey));
      const pem = `-----BEGIN PUBLIC KEY-----\n${other.toString("base64")}\n-----END PUBLIC KEY-----\n`;
      assert.throws(() => readPublicKey(pem, "x"), { code: "config_invalid" });
    }
  });

  it("a DSSE envelope of many megabytes is verified like a small one", async (t) => {
    const { envelope, verifyAs } = await both(t);
    const payload = Buffer.alloc(24 * 1024 * 1024, 7).toString("base64");
    assert.deepEqual(reasonsOf(verifyAs({ ...envelope, payload })), [
      "signature_invalid",
      "signature_invalid",
    ]);
    assert.deepEqual(reasonsOf(verifyAs({ ...envelope, payload: `${payload}=` })), ["not_an_envelope"]);
  });

  it("a private key, another curve and other text are refused as public keys", () => {
    const ec = generateKeyPairSync("ec", { namedCurve: "prime256v1" });
    const other = generateKeyPairSync("ec", { namedCurve: "secp384r1" });
    assert.equal(
      readPublicKey(ec.publicKey.export({ type: "spki", format: "pem" }).toString(), "x").keyId,
      keyIdOf(ec.publicKey),
    );
    for (const pem of [
      ec.privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
      other.publicKey.export({ type: "spki", format: "pem" }).toString(),
      "no-such-value",
    ]) {
      assert.throws(() => readPublicKey(pem, "x"), { code: "config_invalid" });
    }
  });
});
