// Text of unknown origin on a terminal, in a shell and in JSON.
// Invariant: no control character, and no mark that reorders or hides text, is left in what these functions return.

// C0, DEL and C1 controls, format characters (bidirectional marks among them), line separators, lone surrogates.
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;

function escaped(text: string): string {
  const units = text.split("").map((unit) => unit.charCodeAt(0).toString(16).padStart(4, "0"));
  return units.map((digits) => `\\u${digits}`).join("");
}

/** The text on one line: what could act on a terminal is shown as `\uXXXX`, line breaks and tabs included. */
export const printableLine = (text: string): string => text.replace(UNPRINTABLE, escaped);

/** The same for a text of several lines, whose line breaks are kept. */
export const printableText = (text: string): string => text.split("\n").map(printableLine).join("\n");

/** What has no shape: format characters, U+2800 (a Braille pattern without dots). An emoji's mark stays behind it. */
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

export const counted = (count: number, what: string): string => `${count} ${what}${count === 1 ? "" : "s"}`;

/** A text as a quoted string that is safe on a terminal, in JSON and in YAML. */
export const quoted = (text: string): string => printableLine(JSON.stringify(text));

/** An argument for a shell. What is unusual is in ANSI-C quotes: a shell without them executes nothing either. */
export function shellWord(text: string): string {
  if (/^[A-Za-z0-9_@%+=:,./-]+$/.test(text)) return text;
  const isPlain = printableLine(text) === text && !text.includes("'");
  if (isPlain) return `'${text}'`;
  const bytes = [...Buffer.from(text, "utf8")].map((byte) => `\\x${byte.toString(16).padStart(2, "0")}`);
  return `$'${bytes.join("")}'`;
}
