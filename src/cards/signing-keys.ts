// The keys we sign cards with: made, read and published. Invariants: ES256 on P-256; a private key is
// handled as text only to be written to, or read from, its own file.
import { type CryptoKey, exportJWK, generateKeyPair, importJWK, importPKCS8 } from "jose";
import { DrawbridgeError } from "../domain/errors.ts";

/** A public key as a JWK set publishes it (RFC 7517). */
export interface PublicCardKey {
  readonly kty: "EC";
  readonly crv: "P-256";
  readonly x: string;
  readonly y: string;
  readonly kid: string;
  readonly alg: "ES256";
  readonly use: "sig";
}

export interface GeneratedCardKey {
  /** Private JWK, as JSON text. */
  readonly privateJwk: string;
  readonly publicJwk: PublicCardKey;
}

/** Makes a fresh key pair. */
export async function generateCardKey(keyId: string): Promise<GeneratedCardKey> {
  const { privateKey } = await generateKeyPair("ES256", { extractable: true });
  const { x, y, d } = await exportJWK(privateKey);
  if (x === undefined || y === undefined) throw new DrawbridgeError("internal", "the key has no point");
  const publicJwk = { kty: "EC", crv: "P-256", x, y, kid: keyId, alg: "ES256", use: "sig" } as const;
  return { privateJwk: `${JSON.stringify({ ...publicJwk, d }, undefined, 2)}\n`, publicJwk };
}

/**
 * Reads a private key: a JWK (RFC 7517), or PKCS #8 in PEM.
 * @throws DrawbridgeError `secret_unavailable` when it is neither, or is not for ES256
 */
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
