// A public key of a record's signer: ECDSA on P-256 (FIPS 186-5), as a SubjectPublicKeyInfo (RFC 5480).
// Invariant: a key is known by its content. Its ID is the SHA-256 of its one DER form, with the curve's name
// and the whole point, so that one key cannot appear under two IDs and count twice: RFC 5480 allows a point
// to be compressed, and older tools write the curve's parameters out.
import { createPublicKey, type KeyObject } from "node:crypto";
import { sha256 } from "../../domain/digest.ts";
import { DrawbridgeError } from "../../domain/errors.ts";

export interface RecordKey {
  /** Lower-case hexadecimal SHA-256 of the key's one DER form. */
  readonly keyId: string;
  readonly key: KeyObject;
}

/**
 * Reads a public key.
 * @param pem a PEM `PUBLIC KEY`; a private key is refused, because it has no business where trust is kept
 * @throws DrawbridgeError `config_invalid` when it is no P-256 public key, or not in the one form, in which
 *   other tools find the same key ID
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
      hint: "Put the PEM that `drawbridge records keygen` wrote beside the private key there.",
    });
  }
  if (!key.export({ format: "der", type: "spki" }).equals(oneForm(key))) {
    throw new DrawbridgeError("config_invalid", `${source} is a P-256 key in an unusual form`, {
      hint: "Write it anew: openssl ec -pubin -in FILE -pubout -param_enc named_curve -conv_form uncompressed",
    });
  }
  return { keyId: keyIdOf(key), key };
}

/** Of a P-256 public key, in whatever form it was read. */
export function keyIdOf(key: KeyObject): string {
  return sha256(oneForm(key)).toString("hex");
}

/** SubjectPublicKeyInfo of id-ecPublicKey on secp256r1, up to the point's coordinates. */
const HEAD = Buffer.from("3059301306072a8648ce3d020106082a8648ce3d03010703420004", "hex");

function oneForm(key: KeyObject): Buffer {
  const { x = "", y = "" } = key.export({ format: "jwk" });
  return Buffer.concat([HEAD, Buffer.from(x, "base64url"), Buffer.from(y, "base64url")]);
}
