// Why a card is rejected. Invariants: the reasons are a closed set of stable codes; a problem carries a place in the card,
// never a piece of its content.
import { JSON_FAULTS, JsonFault } from "../domain/strict-json.ts";

export const REJECT_REASONS = [
  ...JSON_FAULTS,
  "unknown_field",
  "missing_field",
  "wrong_type",
  "ambiguous_variant",
  "unsigned",
  /** An entry of `signatures` that is no JWS signature: its base64url, its protected header, its length. */
  "malformed_signature",
  "key_not_pinned",
  "algorithm_not_allowed",
  /** A signature by a pinned key demands an extension (`crit`, `b64`); none is understood. */
  "critical_header",
  "signature_invalid",
] as const;
export type RejectReason = (typeof REJECT_REASONS)[number];

export interface CardProblem {
  readonly reason: RejectReason;
  /** Where: a JSON pointer (RFC 6901) into the card, or `offset N` in its text. */
  readonly at: string;
}

/** Ends the reading of a card at its first problem. Never leaves src/cards. */
export class CardFault extends JsonFault<RejectReason> {}

/** The problem that ended the reading. @throws anything else that was caught */
export function problemOf(fault: unknown): CardProblem {
  if (fault instanceof JsonFault) return { reason: fault.reason, at: fault.at };
  throw fault;
}

export const CARD_BYTES_MAX = 256 * 1024;
