// The Dead Simple Signing Envelope, version 1: https://github.com/secure-systems-lab/dsse/blob/master/envelope.md and
// protocol.md. Invariants: what is signed is the pre-authentication encoding, never the bare payload; a signature names
// its key; only base64 of the standard alphabet with padding is accepted, so that one DSSE envelope has one form.
import * as z from "zod";

// No pattern: one that repeats a group exhausts the stack on a payload of some megabytes.
const Base64 = z
  .string()
  .refine((text) => Buffer.from(text, "base64").toString("base64") === text, {
    error: "not the one base64 form of its bytes",
  })
  .meta({ contentEncoding: "base64" });

const DsseSignature = z.strictObject({
  /** Names the key; it proves nothing by itself. */
  keyid: z.string().regex(/^[\x21-\x7e]{1,256}$/),
  /** An ECDSA P-256 signature with SHA-256, DER. */
  sig: Base64,
});
export type DsseSignature = z.output<typeof DsseSignature>;

export const DsseEnvelope = z.strictObject({
  payloadType: z.string().min(1).max(256),
  payload: Base64,
  /** Ascending by key ID. */
  signatures: z.array(DsseSignature).min(1).max(16),
});
export type DsseEnvelope = z.output<typeof DsseEnvelope>;

/** A DSSE envelope that may still lack every signature; it is kept, never passed on. */
export const DsseEnvelopeDraft = DsseEnvelope.extend({ signatures: z.array(DsseSignature).max(16) });

/** PAE(type, body) of the DSSE protocol: lengths in bytes, so that no two pairs have one encoding. */
export function preAuthenticationEncoding(payloadType: string, payload: Uint8Array): Buffer {
  const head = `DSSEv1 ${Buffer.byteLength(payloadType)} ${payloadType} ${payload.length} `;
  return Buffer.concat([Buffer.from(head, "utf8"), payload]);
}

export function withSignature(envelope: DsseEnvelope, signature: DsseSignature): DsseEnvelope {
  const signatures = [...envelope.signatures, signature];
  return { ...envelope, signatures: signatures.sort((one, other) => (one.keyid < other.keyid ? -1 : 1)) };
}
