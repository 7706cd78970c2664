// What the status message of a delegation says. Pure.
// Invariants: nobody is mentioned; what the agent says is one line of bounded length, and safe to show; the first form
// stands by itself, because Element's banner of pinned messages does not follow edits.
import { sha256Tagged } from "../../domain/digest.ts";
import type { EventId } from "../../domain/identifiers.ts";
import type { UnknownObject } from "../../domain/json.ts";
import type { ClaimedStatus } from "../ledger/status-messages.ts";
import { relatesTo } from "../matrix/answer-events.ts";
import { plainLine, renderMarkdown } from "../matrix/markdown.ts";
import type { Texts } from "../texts/en.ts";

export const REPORT_CHARACTERS_MAX = 400;

export interface StatusText {
  readonly body: string;
  readonly html: string;
  readonly digest: string;
}

type Facts = Pick<ClaimedStatus, "state" | "isBehind" | "retryReason" | "report">;

export function statusText(facts: Facts, { status: words }: Texts): StatusText {
  const lines = linesOf(facts, words);
  const body = lines.join("\n");
  return { body, html: lines.map(renderMarkdown).join(""), digest: sha256Tagged(body) };
}

function linesOf({ state, isBehind, retryReason, report }: Facts, words: Texts["status"]): string[] {
  switch (state) {
    case "queued":
    case "dispatching": {
      const isTried = state === "dispatching" && retryReason === undefined;
      if (isTried) return [words.working, words.cancel];
      const why = isBehind ? words.behind : retryReason === "agent_unavailable" ? words.away : words.agent;
      return [`${words.waiting} ${why}`, words.cancel];
    }
    case "following": {
      const said = plainLine(report ?? "", REPORT_CHARACTERS_MAX);
      return [words.working, ...(said === "" ? [] : [`> ${said}`]), words.cancel];
    }
    case "awaiting_input":
      return [words.input, words.cancel];
    case "reply_pending":
      return [words.delivering];
    case "completed":
      return [words.completed];
    case "canceled":
      return [words.canceled];
    default:
      return [words.failed];
  }
}

export function firstContent(
  text: StatusText,
  { sourceEventId, threadRoot }: Pick<ClaimedStatus, "sourceEventId" | "threadRoot">,
): UnknownObject {
  return { ...saying(text), "m.relates_to": relatesTo(sourceEventId, threadRoot) };
}

/** An edit of it (Matrix client-server API, "Event replacements"). */
export function editContent(text: StatusText, eventId: EventId): UnknownObject {
  return {
    ...saying({ ...text, body: `* ${text.body}` }),
    "m.new_content": saying(text),
    "m.relates_to": { rel_type: "m.replace", event_id: eventId },
  };
}

function saying({ body, html }: StatusText): UnknownObject {
  return {
    msgtype: "m.notice",
    body,
    format: "org.matrix.custom.html",
    formatted_body: html,
    "m.mentions": {},
  };
}
