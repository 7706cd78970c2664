// Reads the folder of documents and cuts each file at its headings (CommonMark ATX and setext).
// Invariants: only Markdown below the folder is read, links that lead out of it are not followed, and what is
// read is bounded; text inside a fenced code block never makes a heading; no line of text is lost.
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join, relative, sep } from "node:path";
import { DrawbridgeError } from "../../../src/domain/errors.ts";

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

const MiB = 1024 * 1024;
const FILES_MAX = 5_000;
const FILE_BYTES_MAX = 4 * MiB;

function markdownFiles(folder: string): string[] {
  const entries = readdirSync(folder, { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile() && /\.(?:md|markdown)$/i.test(entry.name))
    .map((entry) => join(entry.parentPath, entry.name))
    .filter(
      (path) =>
        !relative(folder, path)
          .split(sep)
          .some((part) => part.startsWith(".") || part === "node_modules"),
    )
    .sort();
}

/**
 * All sections of all Markdown files below a folder, in the order of their paths.
 * @throws DrawbridgeError `config_unreadable` when the folder cannot be read
 */
export function readDocuments(folder: string): Section[] {
  let files: string[];
  try {
    files = markdownFiles(folder);
  } catch (cause) {
    throw new DrawbridgeError("config_unreadable", `cannot read the folder of documents ${folder}`, {
      hint: "Check `documents` in the configuration, and that this user may read the folder.",
      cause,
    });
  }
  return files
    .slice(0, FILES_MAX)
    .filter((path) => statSync(path).size <= FILE_BYTES_MAX)
    .flatMap((path) =>
      splitSections(relative(folder, path).split(sep).join("/"), readFileSync(path, "utf8")),
    );
}
