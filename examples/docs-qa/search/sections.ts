// Markdown cut at its headings (CommonMark ATX and setext). Each section knows the headings above it.
// Invariants: text inside a fenced code block never makes a heading; no line of text is lost.

export interface Section {
  /** Path below the folder of documents, with forward slashes. */
  readonly file: string;
  /** The headings that lead to it, outermost first; empty for text before the first one. */
  readonly headings: readonly string[];
  /** The text below the heading, trimmed, without that of inner sections. */
  readonly text: string;
}

const ATX = /^ {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#*)?[ \t]*$/;
const FENCE = /^ {0,3}(`{3,}|~{3,})(.*)$/;
const SETEXT = /^ {0,3}(=+|-+)[ \t]*$/;
/** A line that cannot be the text of a setext heading: another block starts there. */
const BLOCK_START = /^(?: {0,3}(?:[-*+>|]|\d{1,9}[.)])[ \t]| {4}|\t|\s*$)/;

/** A heading's text without its inline marks, as a reader sees it. */
function plain(heading: string): string {
  return heading
    .replace(/!?\[([^\]]*)\]\([^)]*\)/g, "$1")
    .replace(/[`*]/g, "")
    .trim();
}

/** Cuts one document into its sections, in order; sections without any text are left out. */
export function splitSections(file: string, markdown: string): Section[] {
  const sections: Section[] = [];
  let path: { depth: number; text: string }[] = [];
  let lines: string[] = [];
  let fence: string | undefined;

  const close = () => {
    const text = lines.join("\n").trim();
    if (text !== "") sections.push({ file, headings: path.map((heading) => heading.text), text });
    lines = [];
  };
  const open = (depth: number, text: string) => {
    close();
    path = [...path.filter((heading) => heading.depth < depth), { depth, text: plain(text) }];
  };

  for (const line of markdown.replace(/\r\n?/g, "\n").split("\n")) {
    const mark = FENCE.exec(line);
    if (fence !== undefined) {
      lines.push(line);
      const closes = mark?.[1]?.startsWith(fence) && mark[2]?.trim() === "";
      if (closes) fence = undefined;
      continue;
    }
    if (mark !== null && !(mark[1]?.startsWith("`") && mark[2]?.includes("`"))) {
      fence = mark[1] ?? "";
      lines.push(line);
      continue;
    }
    const atx = ATX.exec(line);
    if (atx !== null) {
      open(atx[1]?.length ?? 1, atx[2] ?? "");
      continue;
    }
    const underline = SETEXT.exec(line);
    const above = lines.at(-1);
    if (underline !== null && above !== undefined && !BLOCK_START.test(above)) {
      lines.pop();
      open(underline[1]?.startsWith("=") ? 1 : 2, above.trim());
      continue;
    }
    lines.push(line);
  }
  close();
  return sections;
}
