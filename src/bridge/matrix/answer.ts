// An agent's answer as the events that carry it.
// Invariants:
// - the bodies joined, in order, are the whole answer (lone surrogates, which no event may hold, replaced);
// - each event's content is below 40 KiB of canonical JSON: encryption and base64 make of that less than the
//   65,536 bytes an event may have;
// - the asker is mentioned once, in the first event.
import type { Clock } from "../../domain/clock.ts";
import type { EventId, RoomId, UserId } from "../../domain/identifiers.ts";
import type { ReplyPart } from "../ledger/replies.ts";
import { renderCode, renderMarkdownPieces } from "./markdown.ts";
import { splitText } from "./split-text.ts";

/** Bytes of canonical JSON that the content of one event may have. */
export const CONTENT_BYTES_MAX = 40 * 1024;
/** Leaves half as much again for the formatted form; a piece whose formatted form needs more goes without it. */
const BODY_BYTES_MAX = 16 * 1024;
/** Room for the transaction ID and the marks that are written into the content when it is sent. */
const RESERVED_BYTES = 512;

const EMPTY_ANSWER = "(The agent finished without a text answer.)";

export interface Answer {
  readonly text: string;
  /** `text/plain` is shown as it is, JSON as code, everything else as Markdown. */
  readonly mediaType?: string | undefined;
}

export interface AnswerSource {
  readonly eventId: EventId;
  readonly threadRoot: EventId | undefined;
  readonly sender: UserId;
  readonly roomId: RoomId;
}

/** The events of an answer, in the order they are to be sent; at least one. What costs too much to format stays plain. */
export async function answerParts(answer: Answer, source: AnswerSource, clock: Clock): Promise<ReplyPart[]> {
  const text = answer.text.toWellFormed();
  const pieces = splitText(text.trim() === "" ? EMPTY_ANSWER : text, BODY_BYTES_MAX);
  const formatted = await formattedPieces(pieces, answer.mediaType, clock);
  return pieces.map((body, index) => {
    const plain = {
      msgtype: "m.text",
      body,
      "m.mentions": index === 0 ? { user_ids: [source.sender] } : {},
      "m.relates_to": relatesTo(source.eventId, source.threadRoot, index > 0),
    };
    const html = formatted?.[index];
    if (html === undefined) return { eventType: "m.room.message", content: plain };
    const rich = { ...plain, format: "org.matrix.custom.html", formatted_body: html };
    const fits = Buffer.byteLength(JSON.stringify(rich), "utf8") + RESERVED_BYTES <= CONTENT_BYTES_MAX;
    return { eventType: "m.room.message", content: fits ? rich : plain };
  });
}

async function formattedPieces(
  pieces: readonly string[],
  mediaType: string | undefined,
  clock: Clock,
): Promise<readonly (string | undefined)[] | undefined> {
  const type = mediaType?.split(";", 1)[0]?.trim().toLowerCase();
  if (type === "text/plain") return undefined;
  if (type === "application/json" || type?.endsWith("+json")) return pieces.map(renderCode);
  return renderMarkdownPieces(pieces, clock);
}

/**
 * The `m.relates_to` of an answer to `source`: a question in a thread is answered in that thread, any other by a
 * reply (Matrix client-server API, "Rich replies" and "Threading").
 * @param continued true for all but the first event of one answer: clients need not quote the question again
 */
export function relatesTo(
  source: EventId,
  threadRoot: EventId | undefined,
  continued = false,
): Readonly<Record<string, unknown>> {
  const inReplyTo = { "m.in_reply_to": { event_id: source } };
  if (threadRoot === undefined) return inReplyTo;
  return { rel_type: "m.thread", event_id: threadRoot, is_falling_back: continued, ...inReplyTo };
}
