// Changes single values of a YAML file that people write.
// Invariants: the file's meaning afterwards is its meaning before with exactly these values changed, else nothing is
// returned; comments, order, quotes and line ends stay as somebody wrote them; a JSON file stays JSON.
import { isDeepStrictEqual } from "node:util";
import { type Document, isMap, isScalar, type Pair, parseDocument, type YAMLMap } from "yaml";
import { DrawbridgeError } from "../domain/errors.ts";
import { isObject, jsonText, parseJson, type UnknownObject } from "../domain/json.ts";

export interface YamlEdit {
  /** The key, from the file's top; maps on the way are made where they are missing. */
  readonly path: readonly string[];
  /** Plain data; undefined takes the key away. */
  readonly value: unknown;
  /** A key that the file lacks is written after the first of these siblings that it has, or else at the end. */
  readonly after?: readonly string[];
}

/** @param text a valid file whose top is a map. @throws DrawbridgeError `internal` when it cannot be edited so */
export function editYaml(text: string, edits: readonly YamlEdit[]): string {
  const before = meaningOf(text);
  if (before !== undefined) {
    const wanted = edits.reduce(withEdit, before);
    if (isDeepStrictEqual(before, wanted)) return text;
    if (parseJson(text) !== undefined) return jsonText(wanted);
    // In the text itself where that is possible, so that the difference which people review is small.
    let edited: string | undefined = text;
    for (const edit of edits) edited = edited === undefined ? undefined : editText(edited, edit);
    if (edited !== undefined && isDeepStrictEqual(meaningOf(edited), wanted)) return edited;
    const written = rewrite(text, edits);
    if (isDeepStrictEqual(meaningOf(written), wanted)) return written;
  }
  throw new DrawbridgeError("internal", "a YAML file could not be edited");
}

/** The text with one plain value replaced or added; undefined where the layout or the value is not that simple. */
function editText(text: string, { path, value, after = [] }: YamlEdit): string | undefined {
  const isPlain = typeof value === "boolean" || (typeof value === "string" && /^[a-z][a-z_]*$/.test(value));
  if (!isPlain) return undefined;
  let node: unknown = parseDocument(text).contents;
  for (const [depth, key] of path.entries()) {
    if (!isMap(node)) return undefined;
    const item = itemOf(node, key);
    if (item === undefined) return withNewKey(text, node, path.slice(depth), String(value), after);
    node = item.value;
  }
  if (!isScalar(node) || !node.range) return undefined;
  return `${text.slice(0, node.range[0])}${value}${text.slice(node.range[1])}`;
}

function withNewKey(
  text: string,
  map: YAMLMap,
  keys: readonly string[],
  value: string,
  after: readonly string[],
): string | undefined {
  const sibling =
    after.map((key) => itemOf(map, key)).find((item) => isScalar(item?.value)) ??
    map.items.findLast(({ key, value: sibling }) => isScalar(key) && isScalar(sibling));
  if (!isScalar(sibling?.key) || !isScalar(sibling.value)) return undefined;
  const end = sibling.value.range?.[1];
  if (end === undefined) return undefined;
  if (map.flow === true) {
    return keys.length === 1 ? `${text.slice(0, end)}, ${keys[0]}: ${value}${text.slice(end)}` : undefined;
  }
  const key = sibling.key.range?.[0] ?? 0;
  const indent = text.slice(text.lastIndexOf("\n", key - 1) + 1, key);
  if (!/^ *$/.test(indent)) return undefined;
  const lines = keys.map(
    (name, depth) => `${indent}${"  ".repeat(depth)}${name}:${depth === keys.length - 1 ? ` ${value}` : ""}`,
  );
  return withLinesAfter(text, end, lines);
}

function itemOf(map: YAMLMap, name: string): Pair | undefined {
  return map.items.find(({ key }) => isScalar(key) && key.value === name);
}

function withLinesAfter(text: string, offset: number, lines: readonly string[]): string {
  const newline = text.indexOf("\n", offset);
  const lineEnd = text.includes("\r\n") ? "\r\n" : "\n";
  const added = lines.map((line) => `${line}${lineEnd}`).join("");
  if (newline < 0) return `${text}${lineEnd}${added}`;
  return `${text.slice(0, newline + 1)}${added}${text.slice(newline + 1)}`;
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
  if (rest.length > 0) {
    if (value === undefined && !isObject(present)) return meaning;
    const below = withEdit(isObject(present) ? present : {}, { path: rest, value });
    return { ...meaning, [key]: below };
  }
  return value === undefined ? others : { ...meaning, [key]: value };
}
