// Sets one field of a private record's text. Invariants: nothing else of its meaning changes; comments stay;
// a JSON text stays JSON.
import { Document, isMap, isScalar, parseDocument } from "yaml";
import { DrawbridgeError } from "../../../domain/errors.ts";
import { RECORD_FIELDS, type RecordField, recordField } from "./fields.ts";
import { RoomPurge } from "./schema.ts";

function usage(message: string, hint: string): DrawbridgeError {
  return new DrawbridgeError("usage", message, { hint });
}

/**
 * A field by what is written on the command line.
 * @throws DrawbridgeError `usage` for a field that there is not
 */
export function requireField(path: string): RecordField {
  const field = recordField(path);
  if (field !== undefined) return field;
  const below = RECORD_FIELDS.filter((one) => one.path.startsWith(`${path}.`)).map((one) => one.path);
  throw usage(
    "the record has no such field",
    below.length > 0
      ? `Name one of ${below.join(", ")}.`
      : "drawbridge offboarding show lists every field; nothing was changed.",
  );
}

/**
 * What the words of a command line mean for a field.
 * @throws DrawbridgeError `usage` when they cannot be meant for it
 */
export function fieldValue(field: RecordField, words: readonly string[]): unknown {
  if (field.list === "rooms") return words.map(roomPurgeOf);
  if (field.list === "items") return [...words];
  const [word, second] = words;
  if (word === undefined || second !== undefined) {
    throw usage(`${field.path} takes one value`, "Put it in quotes if it has blanks; nothing was changed.");
  }
  if (field.boolean !== true) return word;
  if (word !== "true" && word !== "false") {
    throw usage(`${field.path} is true or false`, "Write one of the two; nothing was changed.");
  }
  return word === "true";
}

function roomPurgeOf(word: string): { readonly room: string; readonly how: string } {
  const at = word.lastIndexOf("=");
  const how = RoomPurge.safeParse(word.slice(at + 1));
  if (at < 1 || !how.success) {
    throw usage(
      "duties.purge.rooms takes ROOM=room, ROOM=history or ROOM=keep",
      "Quote each for the shell: '!id=room'. Nothing was changed.",
    );
  }
  return { room: word.slice(0, at), how: how.data };
}

/**
 * The text with one field set; undefined takes its value away.
 * @param text one that parses
 */
export function setField(text: string, path: string, value: unknown): string {
  const steps = path.split(".");
  if (text.trimStart().startsWith("{")) {
    const root = JSON.parse(JSON.stringify(parseDocument(text).toJS({ maxAliasCount: 0 }))) as object;
    return `${JSON.stringify(withValue(root, steps, value ?? null), null, 2)}\n`;
  }
  const document = parseDocument(text);
  let node: unknown = document.contents;
  for (const [depth, step] of steps.slice(0, -1).entries()) {
    const next = isMap(node) ? node.get(step, true) : undefined;
    // An empty section is a null, into which nothing can be set.
    if (!isMap(next)) document.setIn(steps.slice(0, depth + 1), document.createNode({}));
    node = document.getIn(steps.slice(0, depth + 1), true);
  }
  const made = new Document(value ?? null).contents;
  const before = document.getIn(steps, true);
  if (isScalar(before) && isScalar(made) && value === undefined) made.comment = before.comment ?? null;
  document.setIn(steps, made);
  return document.toString({ lineWidth: 0 });
}

function withValue(root: unknown, steps: readonly string[], value: unknown): unknown {
  const [step, ...rest] = steps;
  if (step === undefined) return value;
  const map = typeof root === "object" && root !== null && !Array.isArray(root) ? root : {};
  return { ...map, [step]: withValue((map as Record<string, unknown>)[step], rest, value) };
}
