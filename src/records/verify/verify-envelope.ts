// Is this envelope signed by those who must have signed it, and does it say what it should say?
// Invariants: a key is found by what it is, not by the name a signature gives it; one key counts for one
// organisation once; a signature by an unknown key makes the envelope invalid rather than being passed
// over; the payload is looked at only after every signature was verified.
import { verify } from "node:crypto";
import type { z } from "zod";
import { parseStrictJson } from "../../cards/strict-json.ts";
import { Envelope, preAuthenticationEncoding } from "../envelope.ts";
import type { RecordKey } from "../public-key.ts";
import { STATEMENT_PAYLOAD_TYPE, type Statement, statementBytes } from "../statement.ts";
import type { EnvelopeReason } from "./reasons.ts";

/** A completion names a few thousand items at most. */
const ENVELOPE_BYTES_MAX = 16 * 1024 * 1024;

/** An organisation and the keys it may have signed with. */
export interface TrustedParty {
  /** Server name. */
  readonly organisation: string;
  readonly keys: readonly RecordKey[];
}

export type VerifiedEnvelope<Predicate> =
  | {
      readonly valid: true;
      readonly statement: Statement<Predicate>;
      /** Who signed, with which key. */
      readonly signers: readonly { readonly organisation: string; readonly keyId: string }[];
    }
  | { readonly valid: false; readonly reason: EnvelopeReason; readonly subject?: string };

/**
 * Verifies an envelope's bytes.
 * @param required organisations that must each have signed
 */
export function verifyEnvelope<Schema extends z.ZodType>(
  bytes: Uint8Array,
  schema: Schema,
  trusted: readonly TrustedParty[],
  required: readonly string[],
): VerifiedEnvelope<z.output<Schema> extends Statement<infer P> ? P : never> {
  const parsed = Envelope.safeParse(strictJson(bytes));
  if (!parsed.success) return { valid: false, reason: "not_an_envelope" };
  const envelope = parsed.data;
  if (envelope.payloadType !== STATEMENT_PAYLOAD_TYPE) return { valid: false, reason: "wrong_payload_type" };
  const payload = Buffer.from(envelope.payload, "base64");
  const signed = preAuthenticationEncoding(envelope.payloadType, payload);
  const signers: { organisation: string; keyId: string }[] = [];
  for (const { keyid, sig } of envelope.signatures) {
    const found = trusted.flatMap(({ organisation, keys }) =>
      keys.filter(({ keyId }) => keyId === keyid).map((key) => ({ organisation, key })),
    );
    const [known] = found;
    // A key that two parties claim identifies neither of them.
    if (known === undefined || found.length > 1)
      return { valid: false, reason: "unknown_key", subject: keyid };
    if (signers.some(({ keyId }) => keyId === keyid)) {
      return { valid: false, reason: "duplicate_signature", subject: keyid };
    }
    if (!isSignature(signed, known.key, Buffer.from(sig, "base64"))) {
      return { valid: false, reason: "signature_invalid", subject: keyid };
    }
    signers.push({ organisation: known.organisation, keyId: keyid });
  }
  const missing = required.find((name) => !signers.some(({ organisation }) => organisation === name));
  if (missing !== undefined) return { valid: false, reason: "signature_missing", subject: missing };
  const statement = schema.safeParse(strictJson(payload));
  if (!statement.success) return { valid: false, reason: "not_a_statement" };
  const typed = statement.data as Statement<z.output<Schema> extends Statement<infer P> ? P : never>;
  if (!statementBytes(typed).equals(payload)) return { valid: false, reason: "not_canonical" };
  return { valid: true, statement: typed, signers };
}

function isSignature(data: Uint8Array, { key }: RecordKey, signature: Uint8Array): boolean {
  try {
    return verify("sha256", data, { key, dsaEncoding: "der" }, signature);
  } catch {
    return false;
  }
}

/** JSON without duplicate keys; undefined for anything else. */
function strictJson(bytes: Uint8Array): unknown {
  try {
    return parseStrictJson(bytes, ENVELOPE_BYTES_MAX);
  } catch {
    return undefined;
  }
}
