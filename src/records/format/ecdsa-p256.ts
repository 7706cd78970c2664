// Public keys and signatures of records: ECDSA on P-256 (FIPS 186-5). Invariants: a key has one DER form (RFC 5480) with the
// whole point, whose SHA-256 is its ID, so that no key counts twice; a signature has one DER form (RFC 3279, section
// 2.2.3) with the smaller s, because (r, n - s) verifies as well as (r, s).
import { createPublicKey, type KeyObject, verify } from "node:crypto";
import { sha256 } from "../../domain/digest.ts";
import { DrawbridgeError } from "../../domain/errors.ts";

export interface RecordKey {
  /** Lower-case hexadecimal SHA-256 of the key's one DER form. */
  readonly keyId: string;
  readonly verifies: (data: Uint8Array, signature: Uint8Array) => boolean;
}

/** Reads a PEM `PUBLIC KEY`. @throws DrawbridgeError `config_invalid` when it is no P-256 public key in the one form */
export function readPublicKey(pem: string, source: string): RecordKey {
  let key: KeyObject | undefined;
  try {
    if (!pem.includes("PRIVATE KEY")) key = createPublicKey({ key: pem, format: "pem" });
  } catch {
    // Reported below.
  }
  const der = key?.export({ format: "der", type: "spki" });
  if (key !== undefined && der?.length === HEAD.length + 64 && der.subarray(0, HEAD.length).equals(HEAD)) {
    const verifies = (data: Uint8Array, signature: Uint8Array) => isSignature(data, key, signature);
    return { keyId: sha256(der).toString("hex"), verifies };
  }
  if (key?.asymmetricKeyType === "ec" && key.asymmetricKeyDetails?.namedCurve === "prime256v1") {
    throw new DrawbridgeError("config_invalid", `${source} is a P-256 key in an unusual form`, {
      hint: "Write it anew: openssl ec -pubin -in FILE -pubout -param_enc named_curve -conv_form uncompressed",
    });
  }
  throw new DrawbridgeError("config_invalid", `${source} is no public P-256 key`, {
    hint: "Put the PEM that `drawbridge records keygen` wrote beside the private key there.",
  });
}

function isSignature(data: Uint8Array, key: KeyObject, signature: Uint8Array): boolean {
  try {
    // In DER, which is the default. Named as an option, it would make each of the many calls a third slower.
    return verify("sha256", data, key, signature);
  } catch {
    return false;
  }
}

/** SubjectPublicKeyInfo of id-ecPublicKey on secp256r1, up to the point's coordinates. */
const HEAD = Buffer.from("3059301306072a8648ce3d020106082a8648ce3d03010703420004", "hex");

export function keyIdOf(key: KeyObject): string {
  const { x = "", y = "" } = key.export({ format: "jwk" });
  const oneForm = Buffer.concat([HEAD, Buffer.from(x, "base64url"), Buffer.from(y, "base64url")]);
  return sha256(oneForm).toString("hex");
}

/** The order of the group (FIPS 186-5, P-256). */
const ORDER = 0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551n;
const HALF = ORDER / 2n;

/** Whether a signature is in the one form. It says nothing about whether it verifies. */
export const isInOneForm = (der: Uint8Array): boolean => inOneForm(der)?.equals(der) === true;

/** A strictly encoded signature, which is what encoding its two numbers gives; undefined for anything else. */
export function inOneForm(der: Uint8Array): Buffer | undefined {
  if (der.length < 8 || der.length > 72) return undefined;
  const end = 4 + (der[3] ?? 0);
  const [r, s] = [numberOf(der.subarray(4, end)), numberOf(der.subarray(end + 2))];
  const areInRange = r > 0n && r < ORDER && s > 0n && s < ORDER;
  if (!areInRange || !encode(r, s).equals(der)) return undefined;
  return encode(r, s <= HALF ? s : ORDER - s);
}

/** What many tokens return instead: r and s in 32 bytes each (IEEE P1363). In the one form; undefined if neither. */
export function inOneFormFromAny(signature: Uint8Array): Buffer | undefined {
  const der = inOneForm(signature);
  if (der !== undefined || signature.length !== 64) return der;
  return inOneForm(encode(numberOf(signature.subarray(0, 32)), numberOf(signature.subarray(32))));
}

const numberOf = (bytes: Uint8Array): bigint => BigInt(`0x0${Buffer.from(bytes).toString("hex")}`);

function encode(r: bigint, s: bigint): Buffer {
  const body = Buffer.concat([encodeInteger(r), encodeInteger(s)]);
  return Buffer.concat([Buffer.from([0x30, body.length]), body]);
}

function encodeInteger(value: bigint): Buffer {
  const digits = value.toString(16);
  const bytes = Buffer.from(digits.length % 2 === 0 ? digits : `0${digits}`, "hex");
  const positive = (bytes[0] ?? 0) >= 0x80 ? Buffer.concat([Buffer.from([0]), bytes]) : bytes;
  return Buffer.concat([Buffer.from([0x02, positive.length]), positive]);
}
