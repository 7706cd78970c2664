// The trimmed message: what of a room event goes to the agent, and nothing else of it.
import { type GhostMxid, localpartOf } from "../../domain/identifiers.ts";
import { literalPattern } from "../../domain/literal-pattern.ts";
import type { MessageEvent } from "./read-events.ts";

// In a reply, older clients put the quoted message before the answer, each line behind "> ", the first with
// its author. Whatever else begins with "> " is the person's own quotation, and part of the question.
const REPLY_FALLBACK = /^> (?:\* )?<@[^>\n]+>[^\n]*\n(?:> [^\n]*\n)*\n?/;

/** What stands between a name and what is said to its bearer. */
const BEHIND = String.raw`(?:[:,]\s*|\s+|$)`;
const AT_BEGINNING = new RegExp(`^${BEHIND}`);

let latest: { ghost: GhostMxid; name: string | undefined; pattern: RegExp } | undefined;

/** Compiled again only when the ghost differs from the last one. */
function leadingName(ghost: GhostMxid, name: string | undefined): RegExp {
  if (latest?.ghost === ghost && latest.name === name) return latest.pattern;
  const all = [ghost, `@${localpartOf(ghost)}`, localpartOf(ghost), name].filter((one) => one !== undefined);
  const pattern = new RegExp(`^(?:${all.map(literalPattern).join("|")})${BEHIND}`, "i");
  latest = { ghost, name, pattern };
  return pattern;
}

type Said = Pick<MessageEvent, "body" | "inReplyTo" | "threadRoot" | "leading">;

let said: { readonly message: Said; readonly text: string } | undefined;

/** What a message says itself: of a reply without the quoted fallback. Made again only when the message differs from the last. */
export function questionTextOf(message: Said): string {
  if (said?.message === message) return said.text;
  const { body, inReplyTo, threadRoot } = message;
  const isReply = inReplyTo !== undefined || threadRoot !== undefined;
  said = { message, text: (isReply ? body.replace(REPLY_FALLBACK, "") : body).trim() };
  return said.text;
}

/** What a message says without the mention it begins with. @param displayName the ghost's configured name */
export function promptOf(message: Said, ghost: GhostMxid, displayName: string | undefined): string {
  const text = questionTextOf(message);
  const { leading } = message;
  // The name that a card gives stands in the message alone.
  const isNamed = leading?.user === ghost && text.startsWith(leading.name);
  const rest = isNamed ? text.slice(leading.name.length) : "";
  const prompt =
    isNamed && AT_BEGINNING.test(rest)
      ? rest.replace(AT_BEGINNING, "")
      : text.replace(leadingName(ghost, displayName), "").trim();
  // A message of nothing but the mention, or a quotation, is itself the question.
  return prompt || text || message.body.trim();
}
