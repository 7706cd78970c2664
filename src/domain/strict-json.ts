// Reads JSON (RFC 8259) so that no two readers can understand it differently.
// Invariants: plain UTF-8 only; duplicate names are refused at every level, escapes resolved; strings are
// well-formed and free of U+0000; numbers are finite doubles; size and depth are bounded; nothing follows
// the value. This is I-JSON (RFC 7493) as RFC 8785 demands it of its input.
import { emptyObject, type Json, parseJson } from "./json.ts";

export const JSON_DEPTH_MAX = 128;

/** Why a text is not taken as JSON: a closed set of stable codes. */
export const JSON_FAULTS = [
  /** Larger than the reader's bound. */
  "too_large",
  /** Not plain UTF-8: another encoding, a byte order mark, or invalid bytes. */
  "not_utf8",
  /** Not one JSON value (RFC 8259), or something after it. */
  "not_json",
  /** Nested deeper than JSON_DEPTH_MAX. */
  "too_deep",
  "duplicate_key",
  /** A string that is not well-formed Unicode, or that holds U+0000. */
  "bad_string",
  /** A number that a double cannot hold. */
  "bad_number",
] as const;
export type JsonFaultReason = (typeof JSON_FAULTS)[number];

/** Ends the reading at its first problem; carries a place in the text, never a piece of it. */
export class JsonFault extends Error {
  readonly reason: JsonFaultReason;
  /** `offset N` in the text. */
  readonly at: string;

  constructor(reason: JsonFaultReason, at: string) {
    super(`${reason} at ${at}`);
    this.name = "JsonFault";
    this.reason = reason;
    this.at = at;
  }
}

const NUMBER = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y;
const WHITE_SPACE: ReadonlySet<number> = new Set([0x20, 0x09, 0x0a, 0x0d]);
// biome-ignore lint/suspicious/noControlCharactersInRegex: a string must escape them
const UNESCAPED = /[^"\\\u0000-\u001f]*/y;
const HEX4 = /[0-9A-Fa-f]{4}/y;
const ESCAPES: Readonly<Record<string, string>> = {
  '"': '"',
  "\\": "\\",
  "/": "/",
  b: "\b",
  f: "\f",
  n: "\n",
  r: "\r",
  t: "\t",
};
const LITERALS = Object.entries<Json>({ true: true, false: false, null: null });

/** Decodes and parses a whole document. @throws JsonFault */
export function parseStrictJson(bytes: Uint8Array, bytesMax: number): Json {
  if (bytes.byteLength > bytesMax) throw new JsonFault("too_large", `offset ${bytesMax}`);
  let text: string;
  try {
    // ignoreBOM keeps a byte order mark in the text, where it is refused below.
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new JsonFault("not_utf8", "offset 0");
  }
  if (text.startsWith("\ufeff")) throw new JsonFault("not_utf8", "offset 0");
  return new Reader(text).document();
}

/** The same for bytes of which nothing is presumed; undefined for anything else than such a document. */
export function strictJsonIn(bytes: Uint8Array, bytesMax: number): Json | undefined {
  try {
    return parseStrictJson(bytes, bytesMax);
  } catch {
    return undefined;
  }
}

class Reader {
  readonly #text: string;
  #at = 0;
  #depth = 0;

  constructor(text: string) {
    this.#text = text;
  }

  document(): Json {
    const value = this.#value();
    this.#skipWhiteSpace();
    if (this.#at < this.#text.length) throw this.#fault("not_json");
    return value;
  }

  #fault(reason: JsonFaultReason): JsonFault {
    return new JsonFault(reason, `offset ${this.#at}`);
  }

  #match(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.#at;
    if (!pattern.test(this.#text)) return undefined;
    const from = this.#at;
    this.#at = pattern.lastIndex;
    return this.#text.slice(from, this.#at);
  }

  #skipWhiteSpace(): void {
    while (WHITE_SPACE.has(this.#text.charCodeAt(this.#at))) this.#at += 1;
  }

  /** Takes one character if it is the next one. */
  #take(character: string): boolean {
    if (this.#text[this.#at] !== character) return false;
    this.#at += 1;
    return true;
  }

  #value(): Json {
    this.#skipWhiteSpace();
    switch (this.#text[this.#at]) {
      case "{":
        return this.#nested(() => this.#object());
      case "[":
        return this.#nested(() => this.#array());
      case '"':
        return this.#string();
      default:
        return this.#scalar();
    }
  }

  #nested<T>(read: () => T): T {
    this.#depth += 1;
    if (this.#depth > JSON_DEPTH_MAX) throw this.#fault("too_deep");
    this.#at += 1;
    const value = read();
    this.#depth -= 1;
    return value;
  }

  #object(): Json {
    const members = emptyObject();
    this.#skipWhiteSpace();
    if (this.#take("}")) return members;
    for (;;) {
      this.#skipWhiteSpace();
      const name = this.#string();
      if (Object.hasOwn(members, name)) throw this.#fault("duplicate_key");
      this.#skipWhiteSpace();
      if (!this.#take(":")) throw this.#fault("not_json");
      members[name] = this.#value();
      this.#skipWhiteSpace();
      if (this.#take("}")) return members;
      if (!this.#take(",")) throw this.#fault("not_json");
    }
  }

  #array(): Json {
    const elements: Json[] = [];
    this.#skipWhiteSpace();
    if (this.#take("]")) return elements;
    for (;;) {
      elements.push(this.#value());
      this.#skipWhiteSpace();
      if (this.#take("]")) return elements;
      if (!this.#take(",")) throw this.#fault("not_json");
    }
  }

  #string(): string {
    if (!this.#take('"')) throw this.#fault("not_json");
    let value = "";
    for (;;) {
      value += this.#match(UNESCAPED) ?? "";
      if (this.#take('"')) break;
      if (!this.#take("\\")) throw this.#fault("not_json");
      value += this.#escape();
    }
    if (!value.isWellFormed() || value.includes("\0")) throw this.#fault("bad_string");
    return value;
  }

  #escape(): string {
    if (this.#take("u")) {
      const digits = this.#match(HEX4);
      if (digits === undefined) throw this.#fault("not_json");
      return String.fromCharCode(Number.parseInt(digits, 16));
    }
    const character = ESCAPES[this.#text[this.#at] ?? ""];
    if (character === undefined) throw this.#fault("not_json");
    this.#at += 1;
    return character;
  }

  #scalar(): Json {
    for (const [word, value] of LITERALS) {
      if (this.#text.startsWith(word, this.#at)) {
        this.#at += word.length;
        return value;
      }
    }
    const digits = this.#match(NUMBER);
    if (digits === undefined) throw this.#fault("not_json");
    const number = Number(digits);
    if (!Number.isFinite(number)) throw this.#fault("bad_number");
    return number;
  }
}

// JSON of other servers, users and agents, bounded in its nesting where it comes in.
// Invariant: what parseUntrustedJson returns can be serialised, cloned to another thread, and walked by recursion; the
// first of them fails at about 3,000 levels.

/** An event stands a few levels down in what carries it: one that was cut is still found by `isTooDeep`. */
const KEPT_DEPTH = 2 * JSON_DEPTH_MAX;

/** A text as JSON, each list and object below 256 levels replaced by `null`; undefined when it is none. */
export function parseUntrustedJson(text: string): unknown {
  const value = parseJson(text);
  return isDeeperThan(value, KEPT_DEPTH) ? cutBelow(value, KEPT_DEPTH) : value;
}

/** Whether an event, a message or an answer is nested deeper than JSON_DEPTH_MAX: it counts as malformed. */
export function isTooDeep(value: unknown): boolean {
  return isDeeperThan(value, JSON_DEPTH_MAX);
}

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
