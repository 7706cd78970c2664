// Changes single values of a YAML file that people write. Invariants: afterwards it means what it did before with exactly
// these values changed, else nothing is returned; where a plain value is replaced, every other byte stays; else comments,
// order and quotes; a JSON file stays JSON.
import { isDeepStrictEqual } from "node:util";
import { type Document, isMap, isScalar, parseDocument } from "yaml";
import { DrawbridgeError } from "../domain/errors.ts";
import { isObject, jsonText, membersOf, parseJson, type UnknownObject } from "../domain/json.ts";

export interface YamlEdit {
  /** The key, from the file's top; maps on the way are made where they are missing. */
  readonly path: readonly string[];
  /** Plain data; undefined takes the key away. */
  readonly value: unknown;
}

/** @param text a valid file whose top is a map. @throws DrawbridgeError `internal` when it cannot be edited so */
export function editYaml(text: string, edits: readonly YamlEdit[]): string {
  const before = meaningOf(text);
  if (before !== undefined) {
    const wanted = edits.reduce(withEdit, before);
    if (isDeepStrictEqual(before, wanted)) return text;
    if (parseJson(text) !== undefined) return jsonText(wanted);
    // In the text itself where that is possible, so that the difference which people review is small.
    const replaced = edits.reduce(withValue, text);
    if (isDeepStrictEqual(meaningOf(replaced), wanted)) return replaced;
    const written = rewrite(text, edits);
    if (isDeepStrictEqual(meaningOf(written), wanted)) return written;
  }
  throw new DrawbridgeError("internal", "a YAML file could not be edited");
}

/** The text with one plain value in the place of another; the same text where it is not that simple. */
function withValue(text: string, { path, value }: YamlEdit): string {
  const isPlain = typeof value === "boolean" || (typeof value === "string" && /^[a-z][a-z_]*$/.test(value));
  const node = parseDocument(text).getIn(path, true);
  if (!isPlain || !isScalar(node) || !node.range) return text;
  return `${text.slice(0, node.range[0])}${value}${text.slice(node.range[1])}`;
}

function rewrite(text: string, edits: readonly YamlEdit[]): string {
  const document = parseDocument(text);
  for (const { path, value } of edits) {
    if (value === undefined) document.deleteIn(path);
    else setIn(document, path, value);
  }
  return document.toString({ lineWidth: 0 });
}

function setIn(document: Document.Parsed, path: readonly string[], value: unknown): void {
  // A map written as `key:` alone holds null, in which nothing can be set.
  for (let depth = 1; depth < path.length; depth++) {
    const above = path.slice(0, depth);
    if (!isMap(document.getIn(above, true))) document.setIn(above, document.createNode({}));
  }
  const made = document.createNode(value);
  const before = document.getIn(path, true);
  if (isScalar(before) && isScalar(made)) made.comment = before.comment ?? null;
  document.setIn(path, made);
}

function meaningOf(text: string): UnknownObject | undefined {
  const document = parseDocument(text, { uniqueKeys: true, strict: true });
  if (document.errors.length > 0) return undefined;
  const value: unknown = document.toJS({ maxAliasCount: 0 });
  return isObject(value) ? value : undefined;
}

function withEdit(meaning: UnknownObject, { path, value }: YamlEdit): UnknownObject {
  const [key, ...rest] = path;
  if (key === undefined) return meaning;
  const { [key]: present, ...others } = meaning;
  if (rest.length === 0) return value === undefined ? others : { ...meaning, [key]: value };
  if (value === undefined && !isObject(present)) return meaning;
  return { ...meaning, [key]: withEdit(membersOf(present), { path: rest, value }) };
}
