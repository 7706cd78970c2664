// The issuer's signing keys: a private JWK set kept outside configuration and version control.
// Invariants: ES256 on P-256 only; every key has a key ID (its RFC 7638 thumbprint when generated); the
// first key signs and all are published, so that a new key can be known before it signs.

import { calculateJwkThumbprint, exportJWK, generateKeyPair } from "jose";
import { z } from "zod";
import { DrawbridgeError } from "../domain/errors.ts";
import { parseJson } from "../domain/json.ts";

const Coordinate = z.string().regex(/^[A-Za-z0-9_-]{43}$/);

const PrivateEs256Jwk = z.strictObject({
  kty: z.literal("EC"),
  crv: z.literal("P-256"),
  x: Coordinate,
  y: Coordinate,
  d: Coordinate,
  kid: z.string().min(1).max(128),
  alg: z.literal("ES256"),
  use: z.literal("sig"),
});

const SigningKeySet = z.strictObject({ keys: z.array(PrivateEs256Jwk).min(1) });
export type SigningKeySet = z.output<typeof SigningKeySet>;

/** A set of one new key. */
export async function generateSigningKeys(): Promise<SigningKeySet> {
  const { privateKey } = await generateKeyPair("ES256", { extractable: true });
  const jwk = await exportJWK(privateKey);
  const kid = await calculateJwkThumbprint(jwk);
  return SigningKeySet.parse({ keys: [{ ...jwk, kid, alg: "ES256", use: "sig" }] });
}

/**
 * Reads a key set from its JSON text.
 * @throws DrawbridgeError `secret_unavailable`, which says nothing of the text
 */
export function parseSigningKeys(text: string): SigningKeySet {
  const result = SigningKeySet.safeParse(parseJson(text));
  if (result.success) return result.data;
  throw new DrawbridgeError("secret_unavailable", "the signing keys are not a set of private ES256 keys", {
    hint: "Make a set with: drawbridge issuer keygen -o FILE",
  });
}
