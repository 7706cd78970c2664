// The one place where a card's signature is checked: JWS with ES256 (RFC 7515; RFC 7518, section 3.4).
// Invariant: the algorithm is fixed here and never taken from what is checked.
import { type CryptoKey, flattenedVerify } from "jose";

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
