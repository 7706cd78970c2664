// Decides whether a card, as the bytes it came in, is signed by a pinned key (A2A 1.0, section 8.4.3; RFC 7515, 7.2.2, with
// a detached payload). Invariants: ES256 on P-256 only; a key comes from configuration or an operator's file, and is chosen
// by the exact `kid`: `jku`, `jwk`, `x5u` and `x5c` are never read; nothing is accepted that is not signed; signing code is
// never loaded from here.
import { type CryptoKey, flattenedVerify, importJWK } from "jose";
import * as z from "zod";
import { canonicalize } from "../domain/canonical-json.ts";
import { sha256Tagged } from "../domain/digest.ts";
import { DrawbridgeError } from "../domain/errors.ts";
import { isObject, membersOf, pointer } from "../domain/json.ts";
import { parseStrictJson, strictJsonIn } from "../domain/strict-json.ts";
import { type AgentCard, type CardSignature, checkCard } from "./card-fields.ts";
import {
  CARD_BYTES_MAX,
  CardFault,
  type CardProblem,
  problemOf,
  type RejectReason,
} from "./reject-reasons.ts";

const ES256_SIGNATURE_BYTES = 64;
const JWKS_BYTES_MAX = 1024 * 1024;

export type PinnedKey = Awaited<ReturnType<typeof importPinnedKey>>;

/** A public key, under the key ID that a signature must name. @throws an error of `jose` when it is no point on P-256 */
export async function importPinnedKey(keyId: string, { x, y }: { readonly x: string; readonly y: string }) {
  const key = await importJWK({ kty: "EC", crv: "P-256", x, y }, "ES256");
  // Bytes are what a symmetric key is imported as.
  return { keyId, key: key as CryptoKey };
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

/** The keys of a JWK set but those that cannot be used. @throws DrawbridgeError `config_invalid` when none is left */
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

/** Undefined unless the text is the one spelling of its bytes that JOSE has (RFC 7515, section 2). */
function decodeBase64url(text: string): Buffer | undefined {
  const bytes = Buffer.from(text, "base64url");
  return bytes.toString("base64url") === text ? bytes : undefined;
}

/** Reads an entry, without verifying it. @throws CardFault `malformed_signature` */
export function readSignatureEntry(entry: CardSignature, index: number) {
  const at = pointer("/signatures", index);
  const malformed = (member: string) => new CardFault("malformed_signature", pointer(at, member));
  const encoded = decodeBase64url(entry.protected);
  const header = encoded && strictJsonIn(encoded, CARD_BYTES_MAX);
  if (!isObject(header)) throw malformed("protected");
  const { alg: algorithm, kid } = header;
  if (typeof algorithm !== "string") throw malformed("protected");
  if (entry.signature === "" || decodeBase64url(entry.signature) === undefined) throw malformed("signature");
  // RFC 7515, section 4: a parameter stands in one of the two headers.
  for (const name of Object.keys(entry.header ?? {})) {
    if (Object.hasOwn(header, name)) throw malformed("header");
  }
  return { at, entry, header, algorithm, keyId: typeof kid === "string" ? kid : undefined };
}

/** @throws CardFault when something forbids checking an entry that names a pinned key */
function assertCheckable({ at, entry, header, algorithm }: ReturnType<typeof readSignatureEntry>): void {
  if (algorithm !== "ES256") throw new CardFault("algorithm_not_allowed", at);
  for (const name of ["crit", "b64"]) {
    if (Object.hasOwn(header, name) || Object.hasOwn(entry.header ?? {}, name)) {
      throw new CardFault("critical_header", at);
    }
  }
  // RFC 7518, section 3.4: r and s, 32 bytes each; a DER signature is refused by its length.
  if (decodeBase64url(entry.signature)?.byteLength !== ES256_SIGNATURE_BYTES) {
    throw new CardFault("malformed_signature", pointer(at, "signature"));
  }
}

export async function isSignedBy(
  key: CryptoKey,
  jws: Pick<CardSignature, "protected" | "signature"> & { readonly payload: string },
): Promise<boolean> {
  // An unprotected header, were there one, is left out: it has no say.
  const { protected: header, payload, signature } = jws;
  try {
    await flattenedVerify({ protected: header, payload, signature }, key, { algorithms: ["ES256"] });
    return true;
  } catch {
    return false;
  }
}

export type CardVerdict =
  | {
      readonly accepted: true;
      readonly card: AgentCard;
      /** The pinned key that verified it; the first one when several did. */
      readonly keyId: string;
      readonly digest: string;
    }
  | { readonly accepted: false; readonly reason: RejectReason; readonly at: string };

export type ReadCard = Exclude<ReturnType<typeof readCard>, CardProblem>;

/** A card, the RFC 8785 text of what is signed of it, and the digest of that, which every signature of it shares. */
export function readCard(bytes: Uint8Array) {
  try {
    const { payload, signatures, problems } = checkCard(parseStrictJson(bytes, CARD_BYTES_MAX));
    const [problem] = problems;
    if (problem !== undefined) return problem;
    const canonical = canonicalize(payload);
    return { card: payload as unknown as AgentCard, signatures, canonical, digest: sha256Tagged(canonical) };
  } catch (fault) {
    return problemOf(fault);
  }
}

/** Accepts a card when a signature names a pinned key, and each that does verifies; those by other keys are skipped. */
export async function verifyCard(bytes: Uint8Array, pinned: readonly PinnedKey[]): Promise<CardVerdict> {
  const read = readCard(bytes);
  if ("reason" in read) return { accepted: false, ...read };
  if (read.signatures.length === 0) return { accepted: false, reason: "unsigned", at: "/signatures" };
  try {
    const keyId = await verifySignatures(read, pinned);
    return { accepted: true, card: read.card, keyId, digest: read.digest };
  } catch (fault) {
    return { accepted: false, ...problemOf(fault) };
  }
}

async function verifySignatures(read: ReadCard, pinned: readonly PinnedKey[]): Promise<string> {
  const payload = Buffer.from(read.canonical).toString("base64url");
  const entries = read.signatures.map(readSignatureEntry);
  let verifiedBy: string | undefined;
  for (const entry of entries) {
    const { keyId, at } = entry;
    // An operator's set may hold two keys under one ID; either may have signed.
    const keys = pinned.filter((candidate) => candidate.keyId === keyId);
    if (keyId === undefined || keys.length === 0) continue;
    assertCheckable(entry);
    const results = await Promise.all(keys.map(({ key }) => isSignedBy(key, { ...entry.entry, payload })));
    if (!results.includes(true)) throw new CardFault("signature_invalid", at);
    verifiedBy ??= keyId;
  }
  if (verifiedBy === undefined) throw new CardFault("key_not_pinned", "/signatures");
  return verifiedBy;
}
