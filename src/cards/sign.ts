// Signs the cards we issue (A2A 1.0, section 8.4.2). Invariants: the card is read by the very rules it
// will be verified by; what is signed is what is served, so the result is to be served as it stands.
import { type CryptoKey, FlattenedSign } from "jose";
import { canonicalize } from "../domain/canonicalize.ts";
import { emptyObject, isJsonObject, type Json } from "../domain/json.ts";
import { type CardSignature, checkCard } from "./card-schema.ts";
import { readCardJson } from "./read-json.ts";
import { CardFault, type CardProblem } from "./reasons.ts";
import { readSignatureEntry } from "./signature-entry.ts";

export interface CardSigner {
  readonly key: CryptoKey;
  readonly keyId: string;
}

export type SignedCard =
  | { readonly signed: true; readonly bytes: Buffer }
  | { readonly signed: false; readonly problems: readonly CardProblem[] };

/**
 * Signs a card given as JSON. A signature under the same key ID is replaced; others stay, so that a card
 * can carry the old key's and the new key's while partners change their pins.
 */
export async function signCard(bytes: Uint8Array, signer: CardSigner): Promise<SignedCard> {
  try {
    const value = readCardJson(bytes);
    const { payload, signatures, problems } = checkCard(value);
    if (problems.length > 0) return { signed: false, problems };
    const kept = signatures.filter((entry, index) => readSignatureEntry(entry, index).keyId !== signer.keyId);
    const signature = await new FlattenedSign(new TextEncoder().encode(canonicalize(payload)))
      .setProtectedHeader({ alg: "ES256", kid: signer.keyId, typ: "JOSE" })
      .sign(signer.key);
    const entry: CardSignature = { protected: signature.protected ?? "", signature: signature.signature };
    return { signed: true, bytes: render(value, [...kept, entry]) };
  } catch (fault) {
    if (fault instanceof CardFault) return { signed: false, problems: [fault.problem] };
    throw fault;
  }
}

/** The card's members in the order they came, the signatures last. */
function render(card: Json, signatures: readonly CardSignature[]): Buffer {
  const { signatures: _old, ...members } = isJsonObject(card) ? card : emptyObject();
  return Buffer.from(`${JSON.stringify({ ...members, signatures }, undefined, 2)}\n`);
}
