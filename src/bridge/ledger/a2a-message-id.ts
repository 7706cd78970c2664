// The A2A `messageId` of a question: the same after retries and crashes, so that an agent can tell a repetition.
import { sha256 } from "../../domain/digest.ts";

/** The A2A `messageId` of what an event asks a ghost, or answers it: a digest, shaped as a UUID (RFC 9562, version 8). */
export function a2aMessageId(sourceEventId: string, ghost: string): string {
  const hex = sha256(`a2a-message\n${sourceEventId}\n${ghost}`).toString("hex");
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-8${hex.slice(13, 16)}-a${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
}
