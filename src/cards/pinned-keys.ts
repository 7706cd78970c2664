// The keys a card may be signed with: public ES256 keys, each under the key ID a signature must name.
// Invariants: they come from configuration or from a file given by the operator, never from a card;
// P-256 only; a private member of a JWK is not read.
import { type CryptoKey, importJWK } from "jose";
import { DrawbridgeError } from "../domain/errors.ts";
import { membersOf } from "../domain/json.ts";
import { readCardJson } from "./reject-reasons.ts";

export interface PinnedKey {
  readonly keyId: string;
  readonly key: CryptoKey;
}

const JWKS_BYTES_MAX = 1024 * 1024;

/** Imports one public key. @throws DrawbridgeError `config_invalid` when it is no point on P-256 */
export async function importPinnedKey(
  keyId: string,
  jwk: { readonly x: string; readonly y: string },
): Promise<PinnedKey> {
  try {
    const key = await importJWK({ kty: "EC", crv: "P-256", x: jwk.x, y: jwk.y }, "ES256");
    if (key instanceof Uint8Array) throw new TypeError("not an asymmetric key");
    return { keyId, key };
  } catch (cause) {
    throw new DrawbridgeError("config_invalid", `the key ${keyId} is not a point on P-256`, {
      hint: "Take the public JWK again from the agent's operator.",
      cause,
    });
  }
}

/**
 * The usable keys of a JWK set (RFC 7517): EC, P-256, with a key ID, for verifying ES256. Others are skipped (section 5).
 * @throws DrawbridgeError `config_invalid` when it is no JWK set or none of its keys is usable
 */
export async function importJwkSet(bytes: Uint8Array, source: string): Promise<readonly PinnedKey[]> {
  const hint = 'Give a JWK set: {"keys": [ … ]} with an EC P-256 public key that has a kid.';
  const refused = (problem: string, cause?: unknown) =>
    new DrawbridgeError("config_invalid", `${source} ${problem}`, { hint, cause });
  let keys: unknown;
  try {
    keys = membersOf(readCardJson(bytes, JWKS_BYTES_MAX))["keys"];
  } catch (cause) {
    throw refused("is not strict JSON", cause);
  }
  if (!Array.isArray(keys)) throw refused("is no JWK set");

  const usable: PinnedKey[] = [];
  for (const candidate of keys.flatMap((jwk: unknown) => usableJwk(jwk) ?? [])) {
    // One that is not on the curve is not usable.
    const key = await importPinnedKey(candidate.keyId, candidate).catch(() => undefined);
    if (key !== undefined) usable.push(key);
  }
  if (usable.length > 0) return usable;
  throw refused("has no usable key");
}

function usableJwk(jwk: unknown): { keyId: string; x: string; y: string } | undefined {
  const { kty, crv, kid, x, y, use, alg, key_ops: operations } = membersOf(jwk);
  if (kty !== "EC" || crv !== "P-256") return undefined;
  if (typeof kid !== "string" || kid === "") return undefined;
  if (typeof x !== "string" || typeof y !== "string") return undefined;
  if (use !== undefined && use !== "sig") return undefined;
  if (alg !== undefined && alg !== "ES256") return undefined;
  if (operations !== undefined && !(Array.isArray(operations) && operations.includes("verify"))) {
    return undefined;
  }
  return { keyId: kid, x, y };
}
