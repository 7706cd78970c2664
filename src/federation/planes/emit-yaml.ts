// Writes plain values as block YAML, fast enough for lists of ten thousand servers.
// Invariants: the same value always gives the same text; what a YAML 1.1 reader (the homeserver's) and a
// YAML 1.2 reader would read differently is quoted; read back, the text gives the value again.
import { isList } from "../../domain/json.ts";

export type Plain =
  | string
  | number
  | boolean
  | null
  | readonly Plain[]
  | { readonly [key: string]: Plain | undefined };

/** The head of every rendered file that can hold a comment. */
const HEAD =
  "# Rendered from registry/ by `drawbridge federation render`: change the registry, not this file.\n";

/** A rendered YAML file of one document. Members that are undefined are left out. */
export function yamlFile(value: { readonly [key: string]: Plain | undefined }): string {
  const out: Output = { text: "" };
  writeMap(out, value, "");
  return `${HEAD}${out.text}`;
}

/** A rendered YAML file of several documents, such as Kubernetes resources. */
export function yamlDocuments(values: readonly { readonly [key: string]: Plain | undefined }[]): string {
  return `${HEAD}${values
    .map((value) => {
      const out: Output = { text: "---\n" };
      writeMap(out, value, "");
      return out.text;
    })
    .join("")}`;
}

/** What has been written so far. One growing text is faster than a list of pieces. */
interface Output {
  text: string;
}

function writeMap(
  out: Output,
  map: { readonly [key: string]: Plain | undefined },
  indent: string,
  first = indent,
): void {
  let lead = first;
  for (const [key, value] of Object.entries(map)) {
    if (value === undefined) continue;
    out.text += `${lead}${scalar(key)}:`;
    lead = indent;
    writeValue(out, value, indent);
  }
}

/** What follows a key: on the same line, or as a block below it. */
function writeValue(out: Output, value: Plain, indent: string): void {
  if (value === null || typeof value !== "object") {
    if (typeof value === "string" && isLongText(value)) writeLiteral(out, value, indent);
    else out.text += ` ${scalar(value)}\n`;
  } else if (isList(value)) {
    if (value.length === 0) out.text += " []\n";
    else {
      out.text += "\n";
      writeList(out, value, `${indent}  `);
    }
  } else if (isEmpty(value)) out.text += " {}\n";
  else {
    out.text += "\n";
    writeMap(out, value, `${indent}  `);
  }
}

function writeList(out: Output, list: readonly Plain[], indent: string): void {
  for (const item of list) {
    if (item === null || typeof item !== "object") out.text += `${indent}- ${scalar(item)}\n`;
    else if (isList(item)) {
      out.text += `${indent}-`;
      writeValue(out, item, indent);
    } else if (isEmpty(item)) out.text += `${indent}- {}\n`;
    else writeMap(out, item, `${indent}  `, `${indent}- `);
  }
}

/** A file within a file, as ConfigMaps hold it. */
function writeLiteral(out: Output, text: string, indent: string): void {
  out.text += ` |\n${indent}  ${text.slice(0, -1).replaceAll(/\n(?!\n)/g, `\n${indent}  `)}\n`;
}

/** Text that a literal block keeps unchanged: it ends in exactly one line break and starts with no blank. */
function isLongText(value: string): boolean {
  return value.includes("\n") && !NOT_LITERAL.test(value) && /^[!-~]/.test(value) && /[!-~]\n$/.test(value);
}

/** What is not printable ASCII, and a blank before a line break. */
const NOT_LITERAL = /[^\n -~]| \n/;

function isEmpty(map: { readonly [key: string]: Plain | undefined }): boolean {
  return Object.values(map).every((value) => value === undefined);
}

const PLAIN = /^[A-Za-z/][A-Za-z0-9._/-]*(?::[A-Za-z0-9._/-]+)*$/;
// What some YAML reader takes for a boolean or for nothing.
const WORDS = new Set(["true", "false", "yes", "no", "on", "off", "y", "n", "null"]);

function scalar(value: string | number | boolean | null): string {
  if (typeof value !== "string") return String(value);
  if (PLAIN.test(value) && !WORDS.has(value.toLowerCase())) return value;
  return JSON.stringify(value).replaceAll(
    /[\u007f-\u009f\u2028\u2029\ufeff\ufffe\uffff]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}
