// Signing a statement, and adding a second organisation's signature to an envelope.
// Invariants: a signature is added to exactly the bytes that the first one is over; it has the one form in
// which records carry signatures, whatever the signer returned.
import { DrawbridgeError } from "../../domain/errors.ts";
import { inOneForm } from "../format/ecdsa-signature.ts";
import {
  type Envelope,
  type EnvelopeSignature,
  preAuthenticationEncoding,
  withSignature,
} from "../format/envelope.ts";
import { STATEMENT_PAYLOAD_TYPE, type Statement, statementBytes } from "../format/statement.ts";
import type { Signer } from "./signer.ts";

/** An envelope with one signature. */
export async function signStatement(statement: Statement<unknown>, signer: Signer): Promise<Envelope> {
  const payload = statementBytes(statement);
  return {
    payloadType: STATEMENT_PAYLOAD_TYPE,
    payload: payload.toString("base64"),
    signatures: [await signature(STATEMENT_PAYLOAD_TYPE, payload, signer)],
  };
}

/** The envelope with the signer's signature besides; the same envelope if it has signed already. */
export async function addSignature(envelope: Envelope, signer: Signer): Promise<Envelope> {
  if (envelope.signatures.some(({ keyid }) => keyid === signer.keyId)) return envelope;
  const payload = Buffer.from(envelope.payload, "base64");
  return withSignature(envelope, await signature(envelope.payloadType, payload, signer));
}

async function signature(
  payloadType: string,
  payload: Uint8Array,
  signer: Signer,
): Promise<EnvelopeSignature> {
  const sig = inOneForm(await signer.sign(preAuthenticationEncoding(payloadType, payload)));
  if (sig === undefined) {
    throw new DrawbridgeError("program_failed", "the signer returned no DER signature", {
      hint: "It must write an ECDSA P-256 signature in DER form; raw r‖s is not that.",
    });
  }
  return { keyid: signer.keyId, sig: sig.toString("base64") };
}
