// Decides whether a card, as the bytes it came in, is signed by a pinned key (A2A 1.0, section 8.4.3).
// Invariants: ES256 on P-256 only; the key is chosen by the exact key ID among the pinned ones; nothing
// is accepted that is not covered by the signature; signing code is never loaded from here.

import { encodeBase64url } from "../domain/base64url.ts";
import { canonicalize } from "../domain/canonical-json.ts";
import { sha256Tagged } from "../domain/digest.ts";
import type { AgentCard } from "./agent-card.ts";
import { CardFault, type CardProblem, type RejectReason, readCardJson } from "./card-faults.ts";
import { asAgentCard, type CardSignature, checkCard } from "./check-card.ts";
import type { PinnedKey } from "./pinned-keys.ts";
import { entryProblem, isSignedBy, readSignatureEntry } from "./signatures.ts";

export type CardVerdict =
  | {
      readonly accepted: true;
      readonly card: AgentCard;
      /** The pinned key that verified it; the first one when several did. */
      readonly keyId: string;
      readonly digest: string;
    }
  | { readonly accepted: false; readonly reason: RejectReason; readonly at: string };

/** A card that was read and checked, its signatures not yet verified. */
export interface ReadCard {
  readonly card: AgentCard;
  readonly signatures: readonly CardSignature[];
  /** RFC 8785 text of what is signed. */
  readonly canonical: string;
  /** `sha256:…` over what is signed: the same for every signature of the same card. */
  readonly digest: string;
}

/** Reads a card's bytes without deciding whether to trust it. */
export function readCard(bytes: Uint8Array): ReadCard | CardProblem {
  try {
    const { payload, signatures, problems } = checkCard(readCardJson(bytes));
    const [problem] = problems;
    if (problem !== undefined) return problem;
    const canonical = canonicalize(payload);
    return { card: asAgentCard(payload), signatures, canonical, digest: sha256Tagged(canonical) };
  } catch (fault) {
    if (fault instanceof CardFault) return fault.problem;
    throw fault;
  }
}

/**
 * Verifies a card. It is accepted when at least one signature names a pinned key, and every signature
 * that does verifies with it; signatures by other keys are skipped, as rotation needs it.
 */
export async function verifyCard(bytes: Uint8Array, pinned: readonly PinnedKey[]): Promise<CardVerdict> {
  const read = readCard(bytes);
  if ("reason" in read) return { accepted: false, ...read };
  if (read.signatures.length === 0) return { accepted: false, reason: "unsigned", at: "/signatures" };
  try {
    const keyId = await verifySignatures(read, pinned);
    return { accepted: true, card: read.card, keyId, digest: read.digest };
  } catch (fault) {
    if (fault instanceof CardFault) return { accepted: false, ...fault.problem };
    throw fault;
  }
}

async function verifySignatures(read: ReadCard, pinned: readonly PinnedKey[]): Promise<string> {
  const payload = encodeBase64url(read.canonical);
  const entries = read.signatures.map(readSignatureEntry);
  let verifiedBy: string | undefined;
  for (const entry of entries) {
    const { keyId, at } = entry;
    // An operator's set may hold two keys under one ID; either may have signed.
    const keys = pinned.filter((candidate) => candidate.keyId === keyId);
    if (keyId === undefined || keys.length === 0) continue;
    const problem = entryProblem(entry);
    if (problem !== undefined) throw new CardFault(problem.reason, problem.at);
    const results = await Promise.all(keys.map(({ key }) => isSignedBy(key, { ...entry.entry, payload })));
    if (!results.includes(true)) throw new CardFault("signature_invalid", at);
    verifiedBy ??= keyId;
  }
  if (verifiedBy === undefined) throw new CardFault("key_not_pinned", "/signatures");
  return verifiedBy;
}
