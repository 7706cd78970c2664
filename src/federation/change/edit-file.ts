// Changes single values of a registry file. Invariants: the file's meaning afterwards is its meaning before
// with exactly these values changed, else nothing is returned; comments and order stay as somebody wrote them.
import { isDeepStrictEqual } from "node:util";
import { type Document, isMap, isScalar, parseDocument } from "yaml";
import { DrawbridgeError } from "../../domain/errors.ts";

export interface FileEdit {
  /** The key, from the file's top; maps on the way are made where they are missing. */
  readonly path: readonly string[];
  /** Plain data; undefined takes the key away. */
  readonly value: unknown;
}

/**
 * @param text a valid file of the registry
 * @throws DrawbridgeError `internal` when it cannot be edited so
 */
export function editFile(text: string, edits: readonly FileEdit[]): string {
  const before = meaningOf(text);
  if (before === undefined) throw cannotEdit();
  const wanted = edits.reduce(withEdit, before);
  if (isDeepStrictEqual(before, wanted)) return text;
  const document = parseDocument(text);
  // One by one in the text where that is possible, so that the difference which people review is small.
  let edited: string | undefined = text;
  for (const edit of edits) edited = edited === undefined ? undefined : replaceScalar(edited, edit);
  if (edited !== undefined && isDeepStrictEqual(meaningOf(edited), wanted)) return edited;
  for (const { path, value } of edits) {
    if (value === undefined) document.deleteIn(path);
    else setIn(document, path, value);
  }
  const written = document.toString({ lineWidth: 0 });
  if (isDeepStrictEqual(meaningOf(written), wanted)) return written;
  throw cannotEdit();
}

function cannotEdit(): DrawbridgeError {
  return new DrawbridgeError("internal", "a registry file could not be edited");
}

/** A value that stands there already, as plain as it is to be. */
function replaceScalar(text: string, { path, value }: FileEdit): string | undefined {
  if (typeof value !== "string" && typeof value !== "boolean") return undefined;
  if (typeof value === "string" && !/^[a-z][a-z_]*$/.test(value)) return undefined;
  const node = parseDocument(text).getIn(path, true);
  if (!isScalar(node) || node.range === undefined || node.range === null) return undefined;
  return `${text.slice(0, node.range[0])}${value}${text.slice(node.range[1])}`;
}

function setIn(document: Document.Parsed, path: readonly string[], value: unknown): void {
  // A map written as `key:` alone holds null, in which nothing can be set.
  for (let depth = 1; depth < path.length; depth++) {
    const above = path.slice(0, depth);
    if (!isMap(document.getIn(above, true))) document.setIn(above, document.createNode({}));
  }
  document.setIn(path, document.createNode(value));
}

type Meaning = Readonly<Record<string, unknown>>;

function meaningOf(text: string): Meaning | undefined {
  const document = parseDocument(text, { uniqueKeys: true, strict: true });
  if (document.errors.length > 0) return undefined;
  const value: unknown = document.toJS({ maxAliasCount: 0 });
  return isRecord(value) ? value : undefined;
}

function isRecord(value: unknown): value is Meaning {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function withEdit(meaning: Meaning, { path, value }: FileEdit): Meaning {
  const [key, ...rest] = path;
  if (key === undefined) return meaning;
  const { [key]: present, ...others } = meaning;
  if (rest.length > 0) {
    const below = withEdit(isRecord(present) ? present : {}, { path: rest, value });
    if (value === undefined && !isRecord(present)) return meaning;
    return { ...meaning, [key]: below };
  }
  return value === undefined ? others : { ...meaning, [key]: value };
}
