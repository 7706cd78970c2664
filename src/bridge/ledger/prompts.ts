// What is to be handed to an agent: a text, and the reference to a file that came with it.
// Invariant: both are sealed as one value for the row of their question; the file itself is never stored.
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
