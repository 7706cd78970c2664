// The keys a card may be signed with: public ES256 keys, each under the key ID a signature must name.
// Invariants: they come from configuration or from a file given by the operator, never from a card;
// P-256 only; a private member of a JWK is not read.
import { type CryptoKey, importJWK } from "jose";
import { z } from "zod";
import { DrawbridgeError } from "../domain/errors.ts";
import { membersOf } from "../domain/json.ts";
import { strictJsonIn } from "../domain/strict-json.ts";

export interface PinnedKey {
  readonly keyId: string;
  readonly key: CryptoKey;
}

const JWKS_BYTES_MAX = 1024 * 1024;

/** Imports one public key. @throws DrawbridgeError `config_invalid` when it is no point on P-256 */
export async function importPinnedKey(
  keyId: string,
  { x, y }: { readonly x: string; readonly y: string },
): Promise<PinnedKey> {
  try {
    const key = await importJWK({ kty: "EC", crv: "P-256", x, y }, "ES256");
    if (key instanceof Uint8Array) throw new TypeError("not an asymmetric key");
    return { keyId, key };
  } catch (cause) {
    throw new DrawbridgeError("config_invalid", `the key ${keyId} is not a point on P-256`, {
      hint: "Take the public JWK again from the agent's operator.",
      cause,
    });
  }
}

/** A key of a set (RFC 7517) that verifies ES256; what else it says is not read. */
const UsableJwk = z.object({
  kty: z.literal("EC"),
  crv: z.literal("P-256"),
  kid: z.string().min(1),
  x: z.string(),
  y: z.string(),
  use: z.literal("sig").optional(),
  alg: z.literal("ES256").optional(),
  key_ops: z
    .array(z.unknown())
    .refine((operations) => operations.includes("verify"))
    .optional(),
});

/**
 * The usable keys of a JWK set; others are skipped (RFC 7517, section 5).
 * @throws DrawbridgeError `config_invalid` when it is no JWK set or none of its keys is usable
 */
export async function importJwkSet(bytes: Uint8Array, source: string): Promise<readonly PinnedKey[]> {
  const keys = membersOf(strictJsonIn(bytes, JWKS_BYTES_MAX))["keys"];
  const usable: PinnedKey[] = [];
  for (const one of Array.isArray(keys) ? keys : []) {
    const jwk = UsableJwk.safeParse(one).data;
    // One that is not on the curve is not usable.
    const key = jwk && (await importPinnedKey(jwk.kid, jwk).catch(() => undefined));
    if (key !== undefined) usable.push(key);
  }
  if (usable.length > 0) return usable;
  throw new DrawbridgeError("config_invalid", `${source} is no JWK set with a usable key`, {
    hint: 'Give a JWK set: {"keys": [ … ]} with an EC P-256 public key that has a kid.',
  });
}
