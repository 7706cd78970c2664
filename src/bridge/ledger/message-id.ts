// The A2A `messageId` of a delegation.
// Invariant: a function of the delegation's unique key alone, so it needs no column: it is the same after a
// retry, a crash, or a lost database.
import { sha256 } from "../../domain/digest.ts";

/** A digest of the pair, shaped as a UUID (RFC 9562, version 8). */
export function a2aMessageId(sourceEventId: string, ghost: string): string {
  const hex = sha256(`a2a-message\n${sourceEventId}\n${ghost}`).toString("hex");
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-8${hex.slice(13, 16)}-a${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
}
