// The entries of a card's `signatures` (RFC 7515, section 7.2.2, with the payload detached): read, and checked with
// ES256 (RFC 7518, section 3.4). Invariants: only `kid` of the protected header names a key; `jku`, `jwk`, `x5u` and
// `x5c` are never read; the algorithm is fixed here and never taken from what is checked.

import { type CryptoKey, flattenedVerify } from "jose";
import { decodeBase64url } from "../domain/base64url.ts";
import { isJsonObject, type JsonObject, pointer } from "../domain/json.ts";
import { CardFault, type CardProblem, readCardJson } from "./card-faults.ts";
import type { CardSignature } from "./check-card.ts";

const ES256_SIGNATURE_BYTES = 64;

export interface SignatureEntry {
  readonly at: string;
  readonly entry: CardSignature;
  readonly header: JsonObject;
  readonly algorithm: string;
  /** `kid` of the protected header; undefined when it names none. */
  readonly keyId: string | undefined;
}

/**
 * Reads an entry, without verifying it.
 * @throws CardFault `malformed_signature`
 */
export function readSignatureEntry(entry: CardSignature, index: number): SignatureEntry {
  const at = pointer("/signatures", index);
  const malformed = (member: string) => new CardFault("malformed_signature", pointer(at, member));
  const header = readProtectedHeader(entry.protected);
  const { alg: algorithm, kid } = header ?? {};
  if (header === undefined || typeof algorithm !== "string") throw malformed("protected");
  if (entry.signature === "" || decodeBase64url(entry.signature) === undefined) throw malformed("signature");
  // RFC 7515, section 4: a parameter stands in one of the two headers.
  for (const name of Object.keys(entry.header ?? {})) {
    if (Object.hasOwn(header, name)) throw malformed("header");
  }
  return { at, entry, header, algorithm, keyId: typeof kid === "string" ? kid : undefined };
}

/** What forbids checking an entry that names a pinned key; undefined when nothing does. */
export function entryProblem({ at, entry, header, algorithm }: SignatureEntry): CardProblem | undefined {
  if (algorithm !== "ES256") return { reason: "algorithm_not_allowed", at };
  for (const name of ["crit", "b64"]) {
    if (Object.hasOwn(header, name) || Object.hasOwn(entry.header ?? {}, name)) {
      return { reason: "critical_header", at };
    }
  }
  // RFC 7518, section 3.4: r and s, 32 bytes each; a DER signature is refused by its length.
  if (decodeBase64url(entry.signature)?.byteLength !== ES256_SIGNATURE_BYTES) {
    return { reason: "malformed_signature", at: pointer(at, "signature") };
  }
  return undefined;
}

function readProtectedHeader(encoded: string): JsonObject | undefined {
  const bytes = decodeBase64url(encoded);
  if (bytes === undefined) return undefined;
  try {
    const header = readCardJson(bytes);
    return isJsonObject(header) ? header : undefined;
  } catch {
    return undefined;
  }
}

/** A JWS in pieces, each in base64url. */
export interface DetachedJws {
  readonly protected: string;
  readonly payload: string;
  readonly signature: string;
}

export async function isSignedBy(key: CryptoKey, jws: DetachedJws): Promise<boolean> {
  // An unprotected header, were there one, is left out: it has no say.
  const { protected: header, payload, signature } = jws;
  try {
    await flattenedVerify({ protected: header, payload, signature }, key, { algorithms: ["ES256"] });
    return true;
  } catch {
    return false;
  }
}
