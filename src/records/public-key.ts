// A public key of a record's signer: ECDSA on P-256 (FIPS 186-5), as a SubjectPublicKeyInfo (RFC 5480).
// Invariant: a key is known by its content. Its ID is the SHA-256 of its DER form, so that one key cannot
// appear under two IDs and count twice.
import { createPublicKey, type KeyObject } from "node:crypto";
import { sha256 } from "../domain/digest.ts";
import { DrawbridgeError } from "../domain/errors.ts";

export interface RecordKey {
  /** Lower-case hexadecimal SHA-256 of the key's DER form. */
  readonly keyId: string;
  readonly key: KeyObject;
}

/**
 * Reads a public key.
 * @param pem a PEM `PUBLIC KEY`; a private key is refused, because it has no business where trust is kept
 * @throws DrawbridgeError `config_invalid` when it is no P-256 public key
 */
export function readPublicKey(pem: string, source: string): RecordKey {
  let key: KeyObject | undefined;
  if (!pem.includes("PRIVATE KEY")) {
    try {
      key = createPublicKey({ key: pem, format: "pem" });
    } catch {
      key = undefined;
    }
  }
  if (key?.asymmetricKeyType !== "ec" || key.asymmetricKeyDetails?.namedCurve !== "prime256v1") {
    throw new DrawbridgeError("config_invalid", `${source} is no public P-256 key`, {
      mend: "Put the PEM that `drawbridge records keygen` wrote beside the private key there.",
    });
  }
  return { keyId: keyIdOf(key), key };
}

export function keyIdOf(key: KeyObject): string {
  return sha256(key.export({ format: "der", type: "spki" })).toString("hex");
}
