// An agent's answer, and its question to the person who asked, as the events that carry them.
// Invariants: the bodies joined are the whole answer, well-formed and with `@room` made to mention nobody (a long answer's
// are in a thread, behind its beginning); each content is below 40 KiB of canonical JSON, which encrypted is below the
// 65,536 bytes of an event; only the asker is mentioned, in the first event, and in that of a question always.
import type { Clock } from "../../domain/clock.ts";
import type { EventId, UserId } from "../../domain/identifiers.ts";
import type { QuestionOption } from "../ledger/admission-types.ts";
import type { ReplyPart } from "../ledger/replies.ts";
import { EN, type Texts } from "../texts/en.ts";
import type { AnswerFile } from "./files.ts";
import { renderCode, renderMarkdownPieces, withHtml, withoutRoomMention } from "./markdown.ts";

export const CONTENT_BYTES_MAX = 40 * 1024;
/** Leaves half as much again for the formatted form. */
const BODY_BYTES_MAX = 16 * 1024;
/** For the transaction ID and the marks that are added when it is sent. */
const RESERVED_BYTES = 512;

/** Characters above which an answer is long: about two screens. */
const LONG_LENGTH = 4_000;
const SHORT_BYTES_MAX = 1_000;

export interface Answer {
  readonly text: string;
  /** `text/plain` is shown as it is, JSON as code, everything else as Markdown. */
  readonly mediaType?: string | undefined;
  readonly files?: readonly AnswerFile[];
}

export interface AnswerSource {
  readonly eventId: EventId;
  readonly threadRoot: EventId | undefined;
  readonly sender: UserId;
  /** English when absent. */
  readonly texts?: Texts;
  /** True when absent. A mention colours the whole message in many clients. */
  readonly mentionsAsker?: boolean;
}

/** The events of an answer in their order, at least one. What costs too much to format stays plain. */
export async function answerParts(answer: Answer, source: AnswerSource, clock: Clock): Promise<ReplyPart[]> {
  const { texts = EN, mentionsAsker = true } = source;
  const text = withoutRoomMention(answer.text.toWellFormed());
  const whole = splitText(text.trim() === "" ? texts.answer.empty : text, BODY_BYTES_MAX);
  const isLong = text.length > LONG_LENGTH && source.threadRoot === undefined;
  const pieces = isLong ? [shortForm(text, answer.mediaType, texts), ...whole] : whole;
  const formatted = await formattedPieces(pieces, answer.mediaType, clock);
  return pieces.map((body, index) => {
    const thread = isLong && index > 0 ? source.eventId : source.threadRoot;
    const plain = {
      msgtype: "m.text",
      body,
      "m.mentions": index === 0 && mentionsAsker ? { user_ids: [source.sender] } : {},
      "m.relates_to": relatesTo(source.eventId, thread, index > (isLong ? 1 : 0)),
    };
    const html = formatted?.[index];
    if (html === undefined) return { eventType: "m.room.message", content: plain };
    const rich = { ...plain, ...withHtml(body, html) };
    const fits = Buffer.byteLength(JSON.stringify(rich), "utf8") + RESERVED_BYTES <= CONTENT_BYTES_MAX;
    return { eventType: "m.room.message", content: fits ? rich : plain };
  });
}

function shortForm(text: string, mediaType: string | undefined, texts: Texts): string {
  // One character more than fits, so that the cut falls where it does in the whole text.
  const [beginning = ""] = splitText(text.slice(0, SHORT_BYTES_MAX + 1), SHORT_BYTES_MAX);
  const fences = beginning.match(/^ {0,3}(?:```|~~~)/gm)?.length ?? 0;
  const closed = fences % 2 === 1 && mediaType !== "text/plain" ? "\n```" : "";
  return `${beginning.trimEnd()}${closed}\n\n… ${texts.answer.continued}`;
}

const PLAIN = "text/plain";
const typeOf = (mediaType: string | undefined) => mediaType?.split(";", 1)[0]?.trim().toLowerCase();

function formattedPieces(pieces: readonly string[], mediaType: string | undefined, clock: Clock) {
  const type = typeOf(mediaType);
  if (type === PLAIN) return undefined;
  if (type === "application/json" || type?.endsWith("+json")) return pieces.map(renderCode);
  return renderMarkdownPieces(pieces, clock);
}

/** `m.relates_to` ("Rich replies", "Threading"). @param continued whether clients need not quote the question again */
export function relatesTo(source: EventId, threadRoot: EventId | undefined, continued = false) {
  const inReplyTo = { "m.in_reply_to": { event_id: source } };
  if (threadRoot === undefined) return inReplyTo;
  return { rel_type: "m.thread", event_id: threadRoot, is_falling_back: continued, ...inReplyTo };
}

/** The events of an agent's question. @param source `takesReactions`: whether a reaction chooses an option there */
export function questionParts(
  question: Answer,
  options: readonly QuestionOption[],
  source: AnswerSource & { readonly takesReactions: boolean },
  clock: Clock,
): Promise<ReplyPart[]> {
  const { empty, howToAnswer, howToChoose } = (source.texts ?? EN).question;
  const text = question.text.trim() === "" ? empty : question.text;
  const bullet = typeOf(question.mediaType) === PLAIN ? "" : "- ";
  const list = options.map(({ key, value }) => `${bullet}${key} ${value}`);
  const hint = options.length > 0 && source.takesReactions ? howToChoose : howToAnswer;
  const whole = [text, ...(list.length > 0 ? [list.join("\n")] : []), hint].join("\n\n");
  return answerParts({ ...question, text: whole }, source, clock);
}

/** Bytes of a code point inside a JSON string (canonical JSON escapes the same). */
function codePointJsonBytes(codePoint: number): number {
  if (codePoint === 0x22 || codePoint === 0x5c) return 2;
  if (codePoint < 0x20) {
    // Backspace, tab, line feed, form feed and carriage return have short escapes.
    const short = codePoint >= 0x08 && codePoint <= 0x0d && codePoint !== 0x0b;
    return short ? 2 : 6;
  }
  if (codePoint < 0x80) return 1;
  if (codePoint < 0x800) return 2;
  return codePoint < 0x10000 ? 3 : 4;
}

/** The end of what fits, from `start`, into `bytesMax` bytes. A loop, because an answer of 1 MiB is split in one turn. */
function reach(text: string, start: number, bytesMax: number): number {
  let bytes = 0;
  let index = start;
  while (index < text.length) {
    const codePoint = text.codePointAt(index) ?? 0;
    bytes += codePointJsonBytes(codePoint);
    if (bytes > bytesMax) return index;
    index += codePoint > 0xffff ? 2 : 1;
  }
  return index;
}

/** Where to cut between `start` and `end`: after the last good boundary in the second half of the range. */
function cutBefore(text: string, start: number, end: number): number {
  const earliest = start + Math.floor((end - start) / 2);
  // Searched in a copy, because a search for what is not there goes back to the beginning of the text.
  const range = text.slice(earliest, end);
  for (const boundary of ["\n\n", "\n", " "]) {
    const at = range.lastIndexOf(boundary);
    if (at >= 0) return earliest + at + boundary.length;
  }
  return end;
}

/**
 * Cuts a well-formed text into pieces, which joined are the text: after a blank line if one is near enough, else after a
 * line, else after a space, else between two code points. @param bytesMax at least 6
 */
export function splitText(text: string, bytesMax: number): string[] {
  const pieces: string[] = [];
  let start = 0;
  while (start < text.length) {
    const end = reach(text, start, bytesMax);
    const cut = end === text.length ? end : cutBefore(text, start, end);
    pieces.push(text.slice(start, cut));
    start = cut;
  }
  return pieces;
}
