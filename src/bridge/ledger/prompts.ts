// What is to be handed to an agent: a text, and the reference to a file that came with it.
// Invariant: both are sealed as one value for the row of their question; the file itself is never stored.
import { sha256 } from "../../domain/digest.ts";
import type { EventId, GhostMxid, ServerName } from "../../domain/identifiers.ts";
import type { ContentKeys } from "./content-keys.ts";

/** A file in the media repository (Matrix client-server API, "Content repository"). */
export interface AttachmentReference {
  readonly server: ServerName;
  readonly mediaId: string;
  /** A name without a path. */
  readonly name: string;
  /** As the sender says; may be empty. */
  readonly mediaType: string;
  /** Of an encrypted file ("Sending encrypted attachments"): each value in base64, of the right length. */
  readonly encryption?: { readonly key: string; readonly iv: string; readonly sha256: string } | undefined;
}

/** A file that came with a message; `unreadable` when what the message says of it cannot be used. */
export type Attachment = AttachmentReference | "unreadable";

export interface Prompt {
  /** The trimmed message; empty when a file came alone. */
  readonly text: string;
  readonly attachment?: Attachment | undefined;
}

const identityOf = (question: EventId, ghost: GhostMxid) => `prompt\n${question}\n${ghost}`;

/** @param question the event that the delegation began with, also where the prompt is an answer to its agent */
export function sealPrompt(keys: ContentKeys, question: EventId, ghost: GhostMxid, prompt: Prompt): Buffer {
  const { text, attachment } = prompt;
  return keys.seal(JSON.stringify({ text, attachment }), identityOf(question, ghost));
}

/** @throws DrawbridgeError `secret_unavailable` when no content key opens it */
export function openPrompt(keys: ContentKeys, question: EventId, ghost: GhostMxid, sealed: Buffer): Prompt {
  return JSON.parse(keys.open(sealed, identityOf(question, ghost))) as Prompt;
}

/** The A2A `messageId` of what an event asks a ghost, or answers it: a digest, shaped as a UUID (RFC 9562, version 8). */
export function a2aMessageId(sourceEventId: string, ghost: string): string {
  const hex = sha256(`a2a-message\n${sourceEventId}\n${ghost}`).toString("hex");
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-8${hex.slice(13, 16)}-a${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
}
