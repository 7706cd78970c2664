// Signing a statement, and adding a second organisation's signature to an envelope.
// Invariant: a signature is added to exactly the bytes that the first one is over.
import { type Envelope, preAuthenticationEncoding } from "../envelope.ts";
import { STATEMENT_PAYLOAD_TYPE, type Statement, statementBytes } from "../statement.ts";
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
  const added = await signature(envelope.payloadType, payload, signer);
  return { ...envelope, signatures: [...envelope.signatures, added] };
}

async function signature(payloadType: string, payload: Uint8Array, signer: Signer) {
  const sig = await signer.sign(preAuthenticationEncoding(payloadType, payload));
  return { keyid: signer.keyId, sig: sig.toString("base64") };
}
