// Sets `contained` in a partner's file. Invariants: nothing else of the file's meaning changes, and nothing
// else of its text: comments, order, quotes and line ends stay as somebody wrote them.
import { isDeepStrictEqual } from "node:util";
import { type Document, isMap, isScalar, parseDocument } from "yaml";
import { DrawbridgeError } from "../../domain/errors.ts";

/**
 * @param text a valid partner file
 * @throws DrawbridgeError `internal` when the text is no such file
 */
export function setContained(text: string, contained: boolean): string {
  const edited = editText(text, contained);
  if (edited !== undefined && saysOnly(text, edited, contained)) return edited;
  // An unusual layout: the document is written anew, with its comments.
  const document = parseDocument(text);
  document.set("contained", contained);
  const written = String(document);
  if (saysOnly(text, written, contained)) return written;
  throw new DrawbridgeError("internal", "a partner's file could not be edited");
}

function editText(text: string, contained: boolean): string | undefined {
  const document: Document.Parsed = parseDocument(text);
  const { contents } = document;
  if (!isMap(contents)) return undefined;
  const rangeOf = (name: string) => {
    const found = contents.items.find((item) => isScalar(item.key) && item.key.value === name);
    return isScalar(found?.value) ? (found.value.range ?? undefined) : undefined;
  };
  const present = rangeOf("contained");
  if (present !== undefined) return `${text.slice(0, present[0])}${contained}${text.slice(present[1])}`;
  const after = rangeOf("classification");
  if (after === undefined) return undefined;
  if (contents.flow === true) {
    return `${text.slice(0, after[1])}, contained: ${contained}${text.slice(after[1])}`;
  }
  const newline = text.indexOf("\n", after[1]);
  const lineEnd = text.includes("\r\n") ? "\r\n" : "\n";
  if (newline < 0) return `${text}${lineEnd}contained: ${contained}${lineEnd}`;
  return `${text.slice(0, newline + 1)}contained: ${contained}${lineEnd}${text.slice(newline + 1)}`;
}

/** Whether two texts differ in `contained` alone, and the second says what is wanted. */
function saysOnly(before: string, after: string, contained: boolean): boolean {
  const { contained: _, ...kept } = readMap(before) ?? {};
  const { contained: said, ...now } = readMap(after) ?? {};
  return said === contained && isDeepStrictEqual(kept, now);
}

function readMap(text: string): Record<string, unknown> | undefined {
  const document = parseDocument(text, { uniqueKeys: true, strict: true });
  if (document.errors.length > 0) return undefined;
  const value: unknown = document.toJS({ maxAliasCount: 0 });
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : undefined;
}
