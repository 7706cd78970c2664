// Identities that were pinned once and may never be again: keys of card signers, clients, servers' key IDs.
// Invariant: a key is retired by its thumbprint for everybody, and by its key ID for the organisation that used it.
import * as z from "zod";
import { canonicalize } from "../../domain/canonical-json.ts";
import { sha256Tagged } from "../../domain/digest.ts";
import { Sha256Digest } from "../../domain/identifier-fields.ts";
import { DeclaredClientId } from "../../rendered-files/issuer-clients.ts";

export const KeyId = z
  .string()
  .regex(/^[\x21-\x7e]{1,128}$/, { error: "must be 1 to 128 visible characters" });

export const ServerKeyId = z
  .string()
  .regex(/^ed25519:[\x21-\x7e]{1,120}$/, { error: "must be a server's key ID, such as ed25519:a_1x2y" });

export const RetiredCardKey = z.strictObject({
  keyId: KeyId,
  /** SHA-256 of the JWK's required members (RFC 7638), in hexadecimal; absent where only the ID was known. */
  thumbprint: Sha256Digest.optional(),
});
export type RetiredCardKey = z.output<typeof RetiredCardKey>;
export const RetiredOwn = z.strictObject({ cardKeys: z.array(RetiredCardKey).default([]) });
export type RetiredOwn = z.output<typeof RetiredOwn>;

export const Retired = RetiredOwn.extend({
  clients: z.array(DeclaredClientId).default([]),
  serverKeys: z.array(ServerKeyId).default([]),
});
export type Retired = z.output<typeof Retired>;

/** A P-256 key's thumbprint (RFC 7638); other members of its JWK do not count. */
export const thumbprintOf = ({ x, y }: PinnedIdentity["jwk"]): string =>
  sha256Tagged(canonicalize({ kty: "EC", crv: "P-256", x, y }));

export interface PinnedIdentity {
  readonly keyId: string;
  readonly jwk: { readonly x: string; readonly y: string };
}

export function retiredKeyOf({ keyId, jwk }: PinnedIdentity): RetiredCardKey {
  return { keyId, thumbprint: thumbprintOf(jwk) };
}

export function withCardKeys(present: readonly RetiredCardKey[], more: readonly RetiredCardKey[]) {
  const all = [...present];
  for (const key of more) {
    const isThere = all.some(({ keyId, thumbprint: print }) => {
      return keyId === key.keyId && print === (key.thumbprint ?? print);
    });
    if (!isThere) all.push(key);
  }
  return all;
}
