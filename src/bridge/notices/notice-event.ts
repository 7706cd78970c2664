// A notice as the event that says it. Pure: kind, reason and the list of agents in, an event out.
// Invariants: nothing of a question, an answer or an error's text is ever said; nobody is mentioned; in the list of agents a
// card's text is shown as bounded plain text that notifies nobody; the list fits one event whatever cards say.
import type { AgentCard } from "../../cards/card-fields.ts";
import { type GhostMxid, serverOf } from "../../domain/identifiers.ts";
import type { UnknownObject } from "../../domain/json.ts";
import type { ClaimedNotice } from "../ledger/notices.ts";
import type { NoticeKind } from "../ledger/states.ts";
import { relatesTo } from "../matrix/answer-events.ts";
import { escapeHtml, plainLine, renderMarkdown, withHtml } from "../matrix/markdown.ts";
import type { Texts } from "../texts/en.ts";

export type NoticeFacts = Pick<ClaimedNotice, "kind" | "reason" | "sourceEventId" | "threadRoot">;

export interface NoticeContext {
  readonly texts: Texts;
  /** Whether ghosts take part in encrypted rooms now (`encryption.mode: on`). */
  readonly readsEncrypted: boolean;
  readonly directory: readonly DirectoryLine[];
}

/** Kinds whose opening says everything. */
const COMPLETE = new Set<NoticeKind>(["encrypted_room_refused", "keys_missing", "delegation_canceled"]);

function bodiesOf({ kind, reason }: NoticeFacts, { texts, readsEncrypted, directory }: NoticeContext) {
  if (kind === "agent_directory") return directoryBodies(directory, texts.directory);
  if (kind === "help") {
    const body = texts.help.map((line) => `- ${line}`).join("\n");
    return withHtml(body, renderMarkdown(body));
  }
  const opening = kind === "keys_missing" && !readsEncrypted ? texts.noLongerRead : texts.openings[kind];
  const isWhole = reason === undefined || COMPLETE.has(kind);
  return { body: isWhole ? opening : `${opening} ${texts.reasons[reason]}` };
}

export function noticeContent(notice: NoticeFacts, context: NoticeContext): UnknownObject {
  const { sourceEventId, threadRoot } = notice;
  return {
    msgtype: "m.notice",
    ...bodiesOf(notice, context),
    "m.mentions": {},
    ...(sourceEventId !== undefined && { "m.relates_to": relatesTo(sourceEventId, threadRoot) }),
  };
}

export interface DirectoryLine {
  readonly ghost: GhostMxid;
  readonly name: string;
  /** Whether a question to it would be passed on now. */
  readonly available: boolean;
  /** From its verified card; undefined while none is at hand. */
  readonly description?: string | undefined;
  readonly skills?: readonly Skill[] | undefined;
}

type Skill = Pick<AgentCard["skills"][number], "name" | "description" | "examples">;
type Words = Texts["directory"];

const LISTED_MAX = 50;
const SKILLS_MAX = 6;
const NAME_CHARACTERS_MAX = 80;
const TEXT_CHARACTERS_MAX = 300;
/** Bytes of both forms together: an event has 64 KiB, and encryption makes of these half as much again. */
const LIST_BYTES_MAX = 36 * 1024;

type Entry = { readonly plain: string; readonly html: string };

const bytesOf = (entry: Entry | undefined) => Buffer.byteLength(JSON.stringify(entry ?? ""));

function directoryBodies(lines: readonly DirectoryLine[], words: Words): Readonly<Record<string, string>> {
  const sorted = lines.toSorted((left, right) => (left.ghost < right.ghost ? -1 : 1));
  const [first] = sorted;
  if (first === undefined) return { body: words.none };
  const howToAsk = words.howToAsk(serverOf(first.ghost));
  const listed = sorted.slice(0, LISTED_MAX).map((line) => ({ line, entry: entryOf(line, words) }));
  let bytes = listed.reduce((sum, { entry }) => sum + bytesOf(entry), 0);
  // A card takes no other agent's place: the longest are left out first, up to the name.
  for (const one of listed.toSorted((left, right) => bytesOf(right.entry) - bytesOf(left.entry))) {
    if (bytes <= LIST_BYTES_MAX) break;
    bytes -= bytesOf(one.entry);
    one.entry = entryOf({ ...one.line, description: undefined, skills: undefined }, words);
    bytes += bytesOf(one.entry);
  }
  const entries = listed.map(({ entry }) => entry);
  while (bytes > LIST_BYTES_MAX) bytes -= bytesOf(entries.pop());
  const left = sorted.length - entries.length;
  const more = left > 0 ? [words.more(left)] : [];
  const html = [
    `<p>${escapeHtml(howToAsk)}</p>`,
    `<ul>${entries.map((one) => one.html).join("")}</ul>`,
    ...more.map((text) => `<p>${text}</p>`),
  ];
  return withHtml([howToAsk, ...entries.map(({ plain }) => plain), ...more].join("\n"), html.join(""));
}

function entryOf(line: DirectoryLine, words: Words): Entry {
  const { ghost, available } = line;
  const name = plainLine(line.name, NAME_CHARACTERS_MAX);
  const suffix = available ? "" : ` (${words.unavailable})`;
  const description = plainLine(line.description ?? "", TEXT_CHARACTERS_MAX);
  const skills = (line.skills ?? []).slice(0, SKILLS_MAX).map((skill) => skillEntry(skill, words));
  const link = `https://matrix.to/#/${encodeURIComponent(ghost)}`;
  return {
    plain: [
      `- ${name}: ${ghost}${suffix}${description === "" ? "" : `. ${description}`}`,
      ...skills.map(({ plain }) => `  - ${plain}`),
    ].join("\n"),
    html: [
      `<li><a href="${link}">${escapeHtml(name)}</a> <code>${escapeHtml(ghost)}</code>${suffix}`,
      description === "" ? "" : `<br>${escapeHtml(description)}`,
      skills.length === 0 ? "" : `<ul>${skills.map(({ html }) => `<li>${html}</li>`).join("")}</ul>`,
      "</li>",
    ].join(""),
  };
}

function skillEntry({ name, description, examples = [] }: Skill, words: Words): Entry {
  const title = plainLine(name, NAME_CHARACTERS_MAX);
  const text = plainLine(description, TEXT_CHARACTERS_MAX);
  const sample = plainLine(examples[0] ?? "", TEXT_CHARACTERS_MAX);
  const example = sample === "" ? "" : words.example(sample);
  const html = sample === "" ? "" : ` <em>${escapeHtml(example)}</em>`;
  return {
    plain: `${title}: ${text} ${example}`.trimEnd(),
    html: `<strong>${escapeHtml(title)}</strong>: ${escapeHtml(text)}${html}`,
  };
}
