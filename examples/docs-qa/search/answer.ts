// The answer as Markdown: the sections that were found, quoted, each with its file and heading.
import { splitSections } from "./documents.ts";
import { DocumentSearch, type Found, normalizeTerm, tokenize } from "./search.ts";

export const ANSWER_MEDIA_TYPE = "text/markdown";
const QUOTE_CHARACTERS_MAX = 1_200;

/** Paragraphs, with fenced code kept whole. */
function paragraphs(text: string): string[] {
  const result: string[] = [];
  let fenced = false;
  let current: string[] = [];
  const close = () => {
    if (current.length > 0) result.push(current.join("\n"));
    current = [];
  };
  for (const line of text.split("\n")) {
    if (/^\s*(?:`{3,}|~{3,})/.test(line)) fenced = !fenced;
    if (line.trim() === "" && !fenced) close();
    else current.push(line);
  }
  close();
  return result;
}

/** The part of a long section with most of the question's terms, in whole paragraphs where possible. */
export function excerpt(text: string, terms: readonly string[]): string {
  if (text.length <= QUOTE_CHARACTERS_MAX) return text;
  const wanted = new Set(terms);
  const blocks = paragraphs(text);
  const hits = blocks.map(
    (block) => tokenize(block).filter((token) => wanted.has(normalizeTerm(token))).length,
  );
  let first = hits.indexOf(Math.max(...hits));
  let last = first;
  const length = () => blocks.slice(first, last + 1).join("\n\n").length;
  // A section's first words often define its terms: prefer earlier paragraphs, then later ones.
  while (first > 0 && length() + (blocks[first - 1]?.length ?? 0) <= QUOTE_CHARACTERS_MAX) first -= 1;
  while (last < blocks.length - 1 && length() + (blocks[last + 1]?.length ?? 0) <= QUOTE_CHARACTERS_MAX)
    last += 1;
  const chosen = blocks.slice(first, last + 1).join("\n\n");
  const cut = chosen.length > QUOTE_CHARACTERS_MAX ? `${cutAtWord(chosen, QUOTE_CHARACTERS_MAX)} …` : chosen;
  return `${first > 0 ? "…\n\n" : ""}${cut}${last < blocks.length - 1 ? "\n\n…" : ""}`;
}

function cutAtWord(text: string, charactersMax: number): string {
  const cut = text.slice(0, charactersMax);
  return cut.slice(0, Math.max(cut.search(/\s\S*$/), 1)).replace(/[\ud800-\udbff]$/, "");
}

function quote(text: string): string {
  return text
    .split("\n")
    .map((line) => (line === "" ? ">" : `> ${line}`))
    .join("\n");
}

function source({ section }: Found): string {
  const heading = section.headings.join(" › ");
  return heading === "" ? `\`${section.file}\`` : `\`${section.file}\` — **${heading}**`;
}

/**
 * The answer to a question; a plain "not found" when `found` is empty.
 * @param who subject and verb of what was searched, such as `the documents of org A do`
 */
export function composeAnswer(found: readonly Found[], who: string): string {
  if (found.length === 0) return `Not found: ${who} not say anything that matches this question well.`;
  return found.map((one) => `${source(one)}\n\n${quote(excerpt(one.section.text, one.terms))}`).join("\n\n");
}

const FIRST_SECTIONS = 3;

/** The answer from files that came with a question; how they begin, where there is no question. */
export function answerFromFiles(
  question: string,
  files: readonly { readonly name: string; readonly text: string }[],
): string {
  const sections = files.flatMap(({ name, text }) => splitSections(name.replaceAll("`", ""), text));
  const found =
    question === ""
      ? sections.slice(0, FIRST_SECTIONS).map((section) => ({ section, terms: [] }))
      : new DocumentSearch(sections).find(question);
  return composeAnswer(found, "the attached file does");
}
