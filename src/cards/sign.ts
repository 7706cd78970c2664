// Signs the cards we issue (A2A 1.0, section 8.4.2), and makes and reads the keys for it. Invariants: the card is read by
// the very rules it will be verified by; what is signed is what is served; keys are ES256 on P-256, and a private key is
// text only to be written to, or read from, its own file.
import { type CryptoKey, exportJWK, FlattenedSign, generateKeyPair, importJWK, importPKCS8 } from "jose";
import { canonicalize } from "../domain/canonical-json.ts";
import { DrawbridgeError } from "../domain/errors.ts";
import { jsonText, membersOf } from "../domain/json.ts";
import { parseStrictJson } from "../domain/strict-json.ts";
import { type CardSignature, checkCard } from "./card-fields.ts";
import { CARD_BYTES_MAX, type CardProblem, problemOf } from "./reject-reasons.ts";
import { readSignatureEntry } from "./verify.ts";

export type SignedCard =
  | { readonly signed: true; readonly bytes: Buffer }
  | { readonly signed: false; readonly problems: readonly CardProblem[] };

/** Signs a card. A signature under the same key ID is replaced; others stay, as a rotation needs it. */
export async function signCard(
  bytes: Uint8Array,
  signer: { readonly key: CryptoKey; readonly keyId: string },
): Promise<SignedCard> {
  try {
    const value = parseStrictJson(bytes, CARD_BYTES_MAX);
    const { payload, signatures, problems } = checkCard(value);
    if (problems.length > 0) return { signed: false, problems };
    const kept = signatures.filter((entry, index) => readSignatureEntry(entry, index).keyId !== signer.keyId);
    const signature = await new FlattenedSign(new TextEncoder().encode(canonicalize(payload)))
      .setProtectedHeader({ alg: "ES256", kid: signer.keyId, typ: "JOSE" })
      .sign(signer.key);
    const entry: CardSignature = { protected: signature.protected ?? "", signature: signature.signature };
    // The card's members in the order they came, the signatures last.
    const { signatures: _old, ...members } = membersOf(value);
    return { signed: true, bytes: Buffer.from(jsonText({ ...members, signatures: [...kept, entry] })) };
  } catch (fault) {
    return { signed: false, problems: [problemOf(fault)] };
  }
}

/** Makes a fresh key pair: a private JWK as JSON text, and the public one as a JWK set publishes it (RFC 7517). */
export async function generateCardKey(keyId: string) {
  const { privateKey } = await generateKeyPair("ES256", { extractable: true });
  const { x, y, d } = await exportJWK(privateKey);
  if (x === undefined || y === undefined) throw new DrawbridgeError("internal", "the key has no point");
  const publicJwk = { kty: "EC", crv: "P-256", x, y, kid: keyId, alg: "ES256", use: "sig" } as const;
  return { privateJwk: jsonText({ ...publicJwk, d }), publicJwk };
}

/** Reads a JWK (RFC 7517), or PKCS #8 in PEM. @throws DrawbridgeError `secret_unavailable` when it is no private ES256 key */
export async function importSigningKey(text: string): Promise<CryptoKey> {
  try {
    if (text.trimStart().startsWith("-----BEGIN")) return await importPKCS8(text.trim(), "ES256");
    const { kty, crv, x, y, d } = JSON.parse(text) as Record<string, string>;
    if (d === undefined) throw new TypeError("not a private key");
    const key = await importJWK({ kty, crv, x, y, d } as Parameters<typeof importJWK>[0], "ES256");
    if (key instanceof Uint8Array) throw new TypeError("not an asymmetric key");
    return key;
  } catch {
    // The cause may quote the key: it is dropped.
    throw new DrawbridgeError("secret_unavailable", "the signing key is no ES256 private key", {
      hint: "Give a private P-256 JWK or a PKCS #8 PEM file; `drawbridge card keygen` makes one.",
    });
  }
}
