// Markdown of an answer as the HTML that chat clients show (Matrix client-server API, "m.room.message msgtypes").
// Invariants: HTML is shown as text; a link leads to http, https or mailto, and to no person or room, which clients show as
// a mention; nothing is loaded from elsewhere, so images stay links; formatting has a budget of bytes, links, table cells, depth
// and time, above which a text stays plain, and yields to the event loop after each piece.
import MarkdownIt, { type Token } from "markdown-it";
import type { Clock } from "../../domain/clock.ts";
import { visibleLine } from "../../domain/printable.ts";

const WEBSITE = /^https?:\/\//i;
const MAIL = /^mailto:/i;
const MENTION_HOST = /^(?:www\.)?matrix\.to\.?$/;
/** Elements within each other. The specification advises clients to go no deeper than 100. */
const DEPTH_MAX = 64;
/** Names of files that end like a top-level domain: clients would make links to foreign hosts of them. */
const FILE_NAME = /((?<![\w@:/.-])[\w./-]*\w\.(?:md|py|rs|sh|pl|so|zip)\b(?![\w/@-]|\.\w))/;

// A soft line break stays one: documents are wrapped at some width, and a client wraps at its own.
const renderer = new MarkdownIt({ html: false, linkify: false, breaks: false, maxNesting: 20 });
renderer.disable("image");
// Every target is parsed, so that no Markdown is left of a link whose target is then taken away.
renderer.validateLink = () => true;
renderer.core.ruler.push("links_and_file_names", ({ tokens }) => {
  const links = { length: 0 };
  for (const token of tokens) if (token.children) token.children = inline(token.children, links);
});

/** Of one piece's links: what is defined once can be used thousands of times, and more than this fits no event. */
const LINKS_LENGTH_MAX = 64 * 1024;

function inline(children: readonly Token[], all: { length: number }): Token[] {
  const kept: Token[] = [];
  const links: boolean[] = [];
  for (const token of children) {
    // An entity may have become the `@`.
    if (token.type === "text") token.content = withoutRoomMention(token.content);
    if (token.type === "link_open") {
      const href = String(token.attrGet("href") ?? "").trim();
      all.length += String(token.attrs).length;
      links.push(all.length <= LINKS_LENGTH_MAX && (MAIL.test(href) || isWebsite(href)));
      if (links.at(-1)) kept.push(token);
    } else if (token.type === "link_close") {
      if (links.pop()) kept.push(token);
    } else if (token.type === "text" && !links.includes(true)) kept.push(...withFileNames(token));
    else kept.push(token);
  }
  return kept;
}

/** Whether a link leads to a website, as a browser reads it, and shows no other host before an `@`. */
function isWebsite(href: string): boolean {
  if (!WEBSITE.test(href) || !URL.canParse(href)) return false;
  const { hostname, username, password } = new URL(href);
  return !MENTION_HOST.test(hostname) && username === "" && password === "";
}

function depthOf(tokens: readonly Token[]): number {
  let open = 0;
  let most = 0;
  for (const { nesting, children } of tokens) {
    open += nesting;
    most = Math.max(most, open + depthOf(children ?? []));
  }
  return most;
}

function withFileNames(text: Token): Token[] {
  // Every second part is a file name, because the expression is one group.
  const parts = text.content.split(FILE_NAME);
  if (parts.length === 1) return [text];
  return parts.flatMap((content, index) => {
    if (content === "") return [];
    const as = index % 2 === 0 ? { type: "text" } : { type: "code_inline", tag: "code" };
    return Object.assign(Object.create(Object.getPrototypeOf(text)) as Token, text, as, { content });
  });
}

const FENCE = /^ {0,3}(`{3,}|~{3,})([^\n]*)$/;

/** An opened code block: what opened it, to open it again in the next event. */
type OpenFence = { readonly opening: string; readonly marker: string };

function openFenceAfter(piece: string, before: OpenFence | undefined): OpenFence | undefined {
  let open = before;
  for (const line of piece.split("\n")) {
    const match = FENCE.exec(line);
    const marker = match?.[1];
    if (match === null || marker === undefined) continue;
    const rest = match[2] ?? "";
    if (open === undefined) {
      if (marker.startsWith("~") || !rest.includes("`")) open = { opening: line.trimStart(), marker };
    } else if (marker[0] === open.marker[0] && marker.length >= open.marker.length && rest.trim() === "") {
      open = undefined;
    }
  }
  return open;
}

/** Of one answer, in UTF-16 code units. */
const FORMATTED_LENGTH_MAX = 1024 * 1024;
const FORMATTING_MS_MAX = 1_000;
/** Of one piece's tables. As HTML (`<td></td>`) more of them would not fit one event anyway. */
const CELLS_MAX = 4_096;
const DELIMITER_ROW = /^[ \t>|:-]+$/;

/** The most cells that the tables of a text can have: a short row is filled up with empty cells. */
function cellsAtMost(text: string): number {
  let cells = 0;
  let columns = 0;
  for (const line of text.split("\n")) {
    if (line.trim() === "") columns = 0;
    else if (DELIMITER_ROW.test(line)) columns = Math.max(columns, line.split("|").length);
    cells += columns;
    if (cells > CELLS_MAX) break;
  }
  return cells;
}

/** Each piece of one text as HTML, undefined above the budget. A code block that a cut divides is one in both. */
export async function renderMarkdownPieces(pieces: readonly string[], clock: Clock) {
  const deadline = clock.now() + FORMATTING_MS_MAX;
  const rendered: (string | undefined)[] = [];
  let open: OpenFence | undefined;
  let length = 0;
  for (const piece of pieces) {
    const source = open === undefined ? piece : `${open.opening}\n${piece}`;
    open = openFenceAfter(piece, open);
    length += source.length;
    const isAffordable =
      length <= FORMATTED_LENGTH_MAX && clock.now() < deadline && cellsAtMost(source) <= CELLS_MAX;
    const tokens = isAffordable ? renderer.parse(source, {}) : undefined;
    const isShallow = tokens !== undefined && depthOf(tokens) <= DEPTH_MAX;
    rendered.push(isShallow ? renderer.renderer.render(tokens, renderer.options, {}).trim() : undefined);
    await new Promise((resolve) => setImmediate(resolve));
  }
  return rendered;
}

export const renderMarkdown = (text: string): string => renderer.render(text).trim();

/** A body as clients show it, and its HTML (Matrix client-server API, "m.room.message msgtypes"). */
export const withHtml = (body: string, html: string) => {
  return { body, format: "org.matrix.custom.html", formatted_body: html };
};

export const escapeHtml = (text: string): string => renderer.utils.escapeHtml(text);
export const renderCode = (text: string): string => `<pre><code>${escapeHtml(text)}</code></pre>`;

/** A word joiner (U+2060) between `@` and `room`, so that no client takes it for a mention of everybody. */
export const withoutRoomMention = (text: string): string => text.replaceAll(/@(?=room\b)/gi, "@\u2060");

/** A text of an agent on one line: nothing invisible is in it, nothing notifies a room, and what is too long is cut. */
export function plainLine(text: string, charactersMax: number): string {
  const plain = visibleLine(text);
  const characters = [...plain];
  const isCut = characters.length > charactersMax;
  return withoutRoomMention(isCut ? `${characters.slice(0, charactersMax - 1).join("")}…` : plain);
}
