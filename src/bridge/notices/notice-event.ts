// A notice as the event that says it. Pure: kind, reason and the list of agents in, an event out.
// Invariants: nothing of a question, an answer or an error's text is ever said; each notice says what happened, why, and
// who can repair it; nobody is mentioned.
import type { EventId } from "../../domain/identifiers.ts";
import type { NoticeKind, NoticeReason } from "../ledger/states.ts";
import { relatesTo } from "../matrix/answer-events.ts";
import { renderMarkdown } from "../matrix/markdown.ts";
import type { Texts } from "../texts/en.ts";
import { type DirectoryLine, directoryBodies } from "./agent-list.ts";

export interface NoticeFacts {
  readonly kind: NoticeKind;
  readonly reason: NoticeReason | undefined;
  readonly sourceEventId: EventId | undefined;
  readonly threadRoot: EventId | undefined;
}

export interface NoticeContext {
  readonly texts: Texts;
  /** Whether ghosts take part in encrypted rooms now (`encryption.mode: on`). */
  readonly readsEncrypted: boolean;
  /** The agents, for the directory. */
  readonly directory: readonly DirectoryLine[];
}

/** Kinds whose opening says everything. */
const COMPLETE: ReadonlySet<NoticeKind> = new Set([
  "encrypted_room_refused",
  "keys_missing",
  "delegation_canceled",
]);

function bodiesOf({ kind, reason }: NoticeFacts, context: NoticeContext): Readonly<Record<string, string>> {
  const { texts, readsEncrypted, directory } = context;
  if (kind === "agent_directory") return directoryBodies(directory, texts);
  if (kind === "help") {
    const body = texts.help.map((line) => `- ${line}`).join("\n");
    return { body, format: "org.matrix.custom.html", formatted_body: renderMarkdown(body) };
  }
  const opening = kind === "keys_missing" && !readsEncrypted ? texts.noLongerRead : texts.openings[kind];
  const isWhole = reason === undefined || COMPLETE.has(kind);
  return { body: isWhole ? opening : `${opening} ${texts.reasons[reason]}` };
}

/** The content of the `m.notice` event that says it. */
export function noticeContent(
  notice: NoticeFacts,
  context: NoticeContext,
): Readonly<Record<string, unknown>> {
  return {
    msgtype: "m.notice",
    ...bodiesOf(notice, context),
    "m.mentions": {},
    ...(notice.sourceEventId !== undefined && {
      "m.relates_to": relatesTo(notice.sourceEventId, notice.threadRoot),
    }),
  };
}
