// Writes plain values as block YAML, fast enough for lists of ten thousand servers.
// Invariants: the same value always gives the same text, which gives the value again; what a YAML 1.1 reader (the
// homeserver's) and a YAML 1.2 reader would read differently is quoted.
import { isList } from "../../domain/json.ts";

export type Plain = string | number | boolean | null | readonly Plain[] | PlainMap;

/** Members that are undefined are left out. */
export type PlainMap = { readonly [key: string]: Plain | undefined };

const HEAD =
  "# Rendered from registry/ by `drawbridge federation render`: change the registry, not this file.\n";

export const yamlFile = (value: PlainMap): string => `${HEAD}${mapText(value, "")}`;

export function yamlDocuments(values: readonly PlainMap[]): string {
  return `${HEAD}${values.map((value) => `---\n${mapText(value, "")}`).join("")}`;
}

function mapText(map: PlainMap, indent: string): string {
  let text = "";
  for (const [key, value] of Object.entries(map))
    if (value !== undefined) text += `${indent}${scalar(key)}:${valueText(value, indent)}`;
  return text;
}

/** What follows a key: on the same line, or as a block below it. */
function valueText(value: Plain, indent: string): string {
  if (value === null || typeof value !== "object") {
    const isLong = typeof value === "string" && LONG_TEXT.test(value);
    return isLong ? literal(value, indent) : ` ${scalar(value)}\n`;
  }
  const empty = isList(value) ? " []\n" : " {}\n";
  const block = isList(value) ? listText(value, `${indent}  `) : mapText(value, `${indent}  `);
  return block === "" ? empty : `\n${block}`;
}

function listText(list: readonly Plain[], indent: string): string {
  let text = "";
  for (const item of list) {
    const block = valueText(item, indent);
    // A map begins on the line of its dash.
    text += `${indent}-${isList(item) ? block : block.replace(/^\n +/, " ")}`;
  }
  return text;
}

/** A file within a file, as ConfigMaps hold it. */
function literal(text: string, indent: string): string {
  return ` |\n${indent}  ${text.slice(0, -1).replaceAll(/\n(?!\n)/g, `\n${indent}  `)}\n`;
}

/** What a literal block keeps unchanged: printable ASCII, no blank first or before a line break, one of which ends it. */
const LONG_TEXT = /^(?!.* \n)[!-~](?:[\n -~]*[!-~])?\n$/s;
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
