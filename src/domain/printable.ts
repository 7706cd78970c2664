// Text of unknown origin on a terminal, in a shell and in JSON.
// Invariant: no control character, and no mark that reorders or hides text, is left in what these functions return.

// C0, DEL and C1 controls, format characters (bidirectional marks among them), line separators, lone surrogates.
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;

function escaped(text: string): string {
  return [...Array(text.length).keys()]
    .map((index) => `\\u${text.charCodeAt(index).toString(16).padStart(4, "0")}`)
    .join("");
}

/** The text on one line: what could act on a terminal is shown as `\uXXXX`, line breaks and tabs included. */
export function printableLine(text: string): string {
  return text.replace(UNPRINTABLE, escaped);
}

/** The same for a text of several lines, whose line breaks are kept. */
export function printableText(text: string): string {
  return text.split("\n").map(printableLine).join("\n");
}

/**
 * Format characters, and others without a shape: U+2800 is a Braille pattern without dots. The mark that makes a character an
 * emoji stays behind one.
 */
const INVISIBLE = /\u2800|\p{Cf}|(?!\ufe0f)\p{Default_Ignorable_Code_Point}|(?<!\p{Emoji})\ufe0f/gu;

/** The text on one line, as people see it: without what is invisible, and each white space one space. */
export function visibleLine(text: string): string {
  return text
    .toWellFormed()
    .replace(/[\p{Cc}\p{Zl}\p{Zp}]/gu, " ")
    .replace(INVISIBLE, "")
    .replace(/\s+/gu, " ")
    .trim();
}

/** A number of things in words: `1 server`, `2 servers`. */
export function counted(count: number, what: string): string {
  return `${count} ${what}${count === 1 ? "" : "s"}`;
}

/** A text as a quoted string that is safe on a terminal, in JSON and in YAML. */
export function quoted(text: string): string {
  return printableLine(JSON.stringify(text));
}

/**
 * An argument as a shell takes it back, whatever it holds. What is unusual is written in ANSI-C quotes, byte by byte, so
 * that a shell that does not know them (before POSIX.1-2024) takes another argument and executes nothing either.
 */
export function shellWord(text: string): string {
  if (/^[A-Za-z0-9_@%+=:,./-]+$/.test(text)) return text;
  const isPlain = printableLine(text) === text && !text.includes("'");
  if (isPlain) return `'${text}'`;
  const bytes = [...Buffer.from(text, "utf8")].map((byte) => `\\x${byte.toString(16).padStart(2, "0")}`);
  return `$'${bytes.join("")}'`;
}
