// Reads JSON (RFC 8259) so that no two readers can understand it differently. Invariants: plain UTF-8 only; duplicate names
// are refused at every level, escapes resolved; strings are well-formed and free of U+0000; numbers are finite doubles;
// size and depth are bounded; nothing follows the value. This is I-JSON (RFC 7493) as RFC 8785 demands it of its input.
import { isUtf8 } from "node:buffer";
import { emptyObject, isList, isObject, type Json, parseJson } from "./json.ts";

export const JSON_DEPTH_MAX = 128;

/** How many commas and opening brackets a document may hold: the record of ten thousand rooms has less than a million. */
export const JSON_VALUES_MAX = 8_000_000;
const [COMMA, BRACKET, BRACE] = Buffer.from(",[{");

export const JSON_FAULTS = [
  "too_large",
  /** Not plain UTF-8: another encoding, a byte order mark, or invalid bytes. */
  "not_utf8",
  "not_json",
  "too_deep",
  "duplicate_key",
  /** A string that is not well-formed Unicode, or that holds U+0000. */
  "bad_string",
  "bad_number",
] as const;
export type JsonFaultReason = (typeof JSON_FAULTS)[number];

/** Ends the reading at its first problem; carries a place in the text, never a piece of it. */
export class JsonFault<Reason extends string = JsonFaultReason> extends Error {
  readonly reason: Reason;
  /** `offset N` in the text. */
  readonly at: string;

  constructor(reason: Reason, at: string) {
    super(`${reason} at ${at}`);
    this.name = "JsonFault";
    this.reason = reason;
    this.at = at;
  }
}

/**
 * The tokens that are checked: strings, with the colon behind a name; brackets; numbers. A string without an end goes
 * up to the end of the text, so that no text takes more than a step for each character.
 */
const TOKENS = /"[^"\\]*(?:\\[\s\S][^"\\]*)*(?:"|\\?$)(\s*:)?|[{}[\]]|-?[0-9][0-9.eE+-]*/g;

/** Decodes and parses a whole document. @throws JsonFault */
export function parseStrictJson(bytes: Uint8Array, bytesMax: number): Json {
  if (bytes.byteLength > bytesMax) throw new JsonFault("too_large", `offset ${bytesMax}`);
  checkNumberOfValues(bytes);
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("utf8");
  if (!isUtf8(bytes) || text.startsWith("\ufeff")) throw new JsonFault("not_utf8", "offset 0");
  try {
    checkTokens(text);
    return withoutPrototypes(JSON.parse(text) as Json);
  } catch (error) {
    throw error instanceof JsonFault ? error : new JsonFault("not_json", "offset 0");
  }
}

/** Of a text of `{}` alone, hundreds of bytes of memory would be needed for each three: it is refused before it is parsed. */
function checkNumberOfValues(bytes: Uint8Array): void {
  if (bytes.byteLength <= JSON_VALUES_MAX) return;
  let values = 0;
  for (let offset = 0; offset < bytes.byteLength; offset++) {
    const byte = bytes[offset];
    if (byte !== COMMA && byte !== BRACKET && byte !== BRACE) continue;
    values += 1;
    if (values > JSON_VALUES_MAX) throw faultAt(offset, "too_large");
  }
}

/** Refuses what `JSON.parse` would accept. Of a text that is no JSON nothing is shown: that is refused afterwards. */
function checkTokens(text: string): void {
  /** What is open: the names of an object so far; undefined for a list. */
  const open: (Set<string> | undefined)[] = [];
  for (const { 0: token, 1: colon, index } of text.matchAll(TOKENS)) {
    if (token === "{" || token === "[") {
      if (open.push(token === "{" ? new Set() : undefined) > JSON_DEPTH_MAX) throw faultAt(index, "too_deep");
    } else if (token === "}" || token === "]") {
      open.pop();
    } else if (!token.startsWith('"')) {
      if (Math.abs(Number(token)) === Number.POSITIVE_INFINITY) throw faultAt(index, "bad_number");
    } else {
      const written = token.slice(0, token.length - (colon?.length ?? 0));
      const isPlain = !written.includes("\\");
      const value = isPlain ? written.slice(1, -1) : parseJson(written);
      if (typeof value !== "string") throw faultAt(index, "not_json");
      // A lone surrogate and U+0000 are only ever written as escapes: UTF-8 has no surrogates, a JSON string no controls.
      if (!isPlain && (!value.isWellFormed() || value.includes("\0"))) throw faultAt(index, "bad_string");
      const names = colon === undefined ? undefined : open.at(-1);
      if (names?.has(value)) throw faultAt(index, "duplicate_key");
      names?.add(value);
    }
  }
}

function faultAt(index: number, reason: JsonFaultReason): JsonFault {
  return new JsonFault(reason, `offset ${index}`);
}

function withoutPrototypes(value: Json): Json {
  if (isList(value)) return value.map(withoutPrototypes);
  if (!isObject(value)) return value;
  const members = emptyObject();
  for (const [name, member] of Object.entries(value)) members[name] = withoutPrototypes(member);
  return members;
}

/** The same for bytes of which nothing is presumed; undefined for anything else than such a document. */
export function strictJsonIn(bytes: Uint8Array, bytesMax: number): Json | undefined {
  try {
    return parseStrictJson(bytes, bytesMax);
  } catch {
    return undefined;
  }
}

// JSON of other servers, users and agents, bounded in its nesting where it comes in.
// Invariant: what parseUntrustedJson returns can be serialised, cloned to another thread, and walked by recursion; the
// first of them fails at about 3,000 levels.

/** An event stands a few levels down in what carries it: one that was cut is still found by `isTooDeep`. */
const KEPT_DEPTH = 2 * JSON_DEPTH_MAX;

const [QUOTE, BACKSLASH, COLON, OPEN_LIST, OPEN_OBJECT, CLOSE_LIST, CLOSE_OBJECT] = Buffer.from('"\\:[{]}');

/** How deep a text of JSON is nested, and how many lists, objects and members it has; to walk through these would cost more. */
export function measureJson(text: string): { readonly levels: number; readonly values: number } {
  let [depth, levels, values] = [0, 0, 0];
  for (let at = 0; at < text.length; at++) {
    const character = text.charCodeAt(at);
    if (character === QUOTE) {
      for (at += 1; at < text.length && text.charCodeAt(at) !== QUOTE; at++)
        if (text.charCodeAt(at) === BACKSLASH) at += 1;
    } else if (character === COLON) values += 1;
    else if (character === OPEN_LIST || character === OPEN_OBJECT) {
      values += 1;
      depth += 1;
      levels = Math.max(levels, depth);
    } else if (character === CLOSE_LIST || character === CLOSE_OBJECT) depth -= 1;
  }
  return { levels, values };
}

/** A text as JSON, each list and object below 256 levels replaced by `null`; undefined when it is none. */
export function parseUntrustedJson(text: string): unknown {
  const value = parseJson(text);
  return measureJson(text).levels > KEPT_DEPTH ? cutBelow(value, KEPT_DEPTH) : value;
}

/** Whether an event, a message or an answer is nested deeper than JSON_DEPTH_MAX: it counts as malformed. */
export const isTooDeep = (value: unknown): boolean => isDeeperThan(value, JSON_DEPTH_MAX);

function isDeeperThan(value: unknown, levels: number): boolean {
  if (typeof value !== "object" || value === null) return false;
  if (levels === 0) return true;
  for (const one of Array.isArray(value) ? value : Object.values(value))
    if (isDeeperThan(one, levels - 1)) return true;
  return false;
}

function cutBelow(value: unknown, levels: number): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (levels === 0) return null;
  if (Array.isArray(value)) return value.map((one) => cutBelow(one, levels - 1));
  // As JSON.parse does, `fromEntries` makes a member named `__proto__` a member like any other.
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, cutBelow(one, levels - 1)]));
}
