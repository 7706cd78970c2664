// What may not stand in a private record: how to reach a person, what was said in a room, secrets.
// Invariants: each rule has a name and is reported without the value; comments are searched as values are.
import { Document, LineCounter } from "yaml";
import { parseRoomId } from "../../../domain/identifiers.ts";
import { RunId } from "../../../records/format/fields.ts";
import { secretsInText, secretsInValues } from "../../registry/secret-rules.ts";

const VALUE_LENGTH_MAX = 512;
const COMMENT_LENGTH_MAX = 200;
/** A longer text is refused for its length, so that no pattern has to search all of it. */
const SEARCHED_MAX = 1_000;

const TEXT_RULES: Readonly<Record<string, readonly [holds: string, pattern: RegExp]>> = {
  "personal.mail_address": [
    "a mail address",
    /[\p{L}\p{N}._%+-]+@[\p{L}\p{N}-]+(?:\.[\p{L}\p{N}-]+)*\.\p{L}{2,}|[\p{L}\p{N}._-]+\s*[[({]\s*at\s*[\])}]\s*[\p{L}\p{N}-]+|\bmailto:/iu,
  ],
  "personal.matrix_user": [
    "a person's Matrix user ID",
    /(?:^|[^\p{L}\p{N}.])@[^\s:@/]+:[\p{L}\p{N}[]|\bmatrix:u\/|matrix\.to\/#\/(?:@|%40)/iu,
  ],
  "personal.account": [
    "a person's account at another service",
    /\b(?:skype|sip|sips|xmpp|signal|whatsapp|slack|teams|icq|threema|callto|facetime):\s*\S|\b(?:t\.me|wa\.me|linkedin\.com\/in|facebook\.com|twitter\.com|x\.com|instagram\.com)\/\S/i,
  ],
  "content.room_event": [
    "an event, or a part of one",
    /\bm\.room\.(?:message|encrypted)\b|["']?\b(?:msgtype|formatted_body|ciphertext|session_id|m\.relates_to|m\.new_content)["']?\s*:/,
  ],
  "content.transcript": [
    "what looks like something that was said in a room",
    /(?:^|\s)\[?\d{1,2}:\d{2}(?::\d{2})?\]?\s+<?[\p{L}@][^\s:>]{0,63}[:>]\s+\S|(?:^|\s)<[@\p{L}][^>\s]{0,127}>\s+\S/u,
  ],
};

const HINTS = {
  personal: "Name a role or a staff number; how to reach people stands in the staff directory.",
  content: "Leave it out: a record names rooms by their ID and says nothing of what is in them.",
  secret:
    "Leave it out: a record names no secret, not even by reference. If others could read it, replace it.",
} as const;

export type BrokenRule = Readonly<ReturnType<typeof broken>>;

function broken(rule: string, holds: string) {
  const kind = rule.split(".")[0] ?? "";
  return { rule, message: `holds ${holds}`, hint: HINTS[kind as keyof typeof HINTS] ?? HINTS.personal };
}

function brokenTextRules(text: string): readonly BrokenRule[] {
  const found = Object.entries(TEXT_RULES).filter(([, [, pattern]]) => pattern.test(text));
  return found.map(([rule, [holds]]) => broken(rule, holds));
}

const brokenSecretRules = (problems: readonly { readonly rule: string; readonly message: string }[]) =>
  problems.map(({ rule, message }) => broken(rule, message.replace(/^holds /, "")));

/** What a comment, or a line that no field could be made of, holds that may not stand there. */
export function brokenByText(whole: string): readonly BrokenRule[] {
  const text = whole.slice(0, SEARCHED_MAX);
  // The text is searched as a comment, because the words of a comment name some secrets.
  return [...brokenTextRules(text), ...brokenSecretRules(secretsInText(` # ${text}`, ""))];
}

export function brokenByComment(comment: string): readonly BrokenRule[] {
  const found = brokenByText(comment);
  return comment.length <= COMMENT_LENGTH_MAX
    ? found
    : [...found, broken("content.free_text", `more than ${COMMENT_LENGTH_MAX} characters of comment`)];
}

export function brokenByValue(value: string | number | bigint, path: readonly PropertyKey[]) {
  const whole = String(value);
  const text = whole.slice(0, SEARCHED_MAX);
  const names = path.filter((step) => typeof step === "string");
  const isRoom = parseRoomId(value) !== undefined && ["affected", "duties"].includes(names[0] ?? "");
  const isRun = names.join(".") === "run" && RunId.safeParse(value).success;
  const found: BrokenRule[] = [];
  if (whole.includes("\n") || whole.length > VALUE_LENGTH_MAX) {
    found.push(broken("content.free_text", "a text of several lines, or a long one"));
  }
  // IDs of rooms and runs have a grammar of their own, and are as random as a key otherwise.
  if (!isRoom && !isRun) {
    const key = names.at(-1) ?? "";
    const { contents } = new Document({ [key]: text });
    found.push(
      ...brokenTextRules(text),
      ...brokenSecretRules(secretsInText(`${key}: ${text}`, "")),
      ...brokenSecretRules(secretsInValues(contents, new LineCounter(), "")),
    );
  }
  return [...new Map(found.map((one) => [one.rule, one])).values()];
}
