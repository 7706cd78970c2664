// Reading a body that may be larger than what is worth holding, however much the other side sends.
// Invariants: nothing is kept beyond the bounds, in bytes, and in values of what other servers write; what is left out, and
// each value of which only the name counts, becomes `null`, so that the rest is JSON whenever the whole was, and a caller
// can count what is missing.
import type { Body } from "../../runtime/http.ts";

/** In bytes. */
export interface PruneBounds {
  readonly what: keyof typeof PLACES;
  /** Of the longest such object that is kept. */
  readonly elementBytesMax: number;
  /** All such objects together that are kept, and as much again of what is none; of an event's members, both together. */
  readonly bytesMax: number;
  /** Of what is read. A list is cut there; an object that would lack members is not kept at all. */
  readonly readBytesMax: number;
}

/** The body as text, without what is too large; undefined when the rest is longer than the bound. */
export async function readPruned(body: Body, bounds: PruneBounds): Promise<string | undefined> {
  const thinner = new Thinner(bounds);
  let length = 0;
  for await (const chunk of body) {
    length += chunk.length;
    thinner.add(chunk);
    const isOver = length > bounds.readBytesMax;
    const isRefused = thinner.isFull || (isOver && bounds.what !== "list_elements");
    if (!isRefused && !(isOver && thinner.isInList)) continue;
    body.destroy();
    return isRefused ? undefined : thinner.text(CUT);
  }
  return thinner.text();
}

/**
 * Lists, objects and members in one such object, and in those that are kept of one event: a person's event has a few dozen,
 * and so has a room of a `/sync` that is thinned. An event that itself has more members than that is left out as a whole.
 */
const ELEMENT_VALUES_MAX = 2_048;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COLON = 0x3a;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;
const OPEN_LIST = 0x5b;
const CLOSE_LIST = 0x5d;
const LEFT_OUT = Buffer.from("null");
/** Closes a list two levels down, with `null` for what was not read of it. */
const CUT = Buffer.from("null]}}");
/** How deep the objects stand that can be left out, and in what. */
const PLACES = {
  /** Of lists two levels down: `{"a":{"b":[{…}]}}`. */
  list_elements: { depth: 3, inside: OPEN_LIST },
  /** Of an object one level down: `{"a":{"name":{…}}}`. */
  named_values: { depth: 2, inside: OPEN_OBJECT },
  /** Of objects two levels down: `{"a":{"b":{"name":{…}}}}`, such as the rooms of a `/sync`. */
  rooms: { depth: 3, inside: OPEN_OBJECT },
  /** Of the objects of a list one level down, lists too: `{"a":[{"name":{…}}]}`. None is left out for the others' length. */
  element_members: { depth: 3, inside: OPEN_OBJECT },
};

/** Follows JSON byte by byte, no further than where its strings, lists and objects begin and end. */
class Thinner {
  readonly #bounds: PruneBounds;
  readonly #place: (typeof PLACES)[PruneBounds["what"]];
  readonly #kept: Uint8Array[] = [];
  #listedBytes = 0;
  #otherBytes = 0;
  #depth = 0;
  #isInside = false;
  #inString = false;
  #isEscaped = false;
  #element: Uint8Array[] | undefined;
  #elementBytes = 0;
  #elementValues = 0;
  #eventValues = 0;
  #eventMembers = 0;
  /** Where the event begins in what is kept. */
  #eventAt = 0;

  constructor(bounds: PruneBounds) {
    this.#bounds = bounds;
    this.#place = PLACES[bounds.what];
  }

  get isFull(): boolean {
    const { what, bytesMax } = this.#bounds;
    return this.#otherBytes + (what === "element_members" ? this.#listedBytes : 0) > bytesMax;
  }

  get isInList(): boolean {
    return this.#element !== undefined;
  }

  add(chunk: Uint8Array): void {
    let from = 0;
    for (let at = 0; at < chunk.length; at++) {
      const byte = chunk[at];
      if (this.#inString) {
        if (this.#isEscaped) this.#isEscaped = false;
        else if (byte === BACKSLASH) this.#isEscaped = true;
        else if (byte === QUOTE) this.#inString = false;
      } else if (byte === QUOTE) {
        this.#inString = true;
      } else if (byte === OPEN_OBJECT || byte === OPEN_LIST) {
        const isElement = byte === OPEN_OBJECT || this.#bounds.what === "element_members";
        if (isElement && this.#depth === this.#place.depth && this.#isInside) {
          this.#keep(chunk.subarray(from, at));
          from = at;
          this.#element = [];
          this.#elementBytes = 0;
          this.#elementValues = 0;
        }
        this.#elementValues += 1;
        this.#depth += 1;
        if (this.#depth === this.#place.depth) {
          this.#isInside = byte === this.#place.inside;
          this.#eventValues = 0;
          this.#eventMembers = 0;
          this.#keep(chunk.subarray(from, at));
          from = at;
          this.#eventAt = this.#kept.length;
        }
      } else if (byte === COLON) {
        this.#elementValues += 1;
        if (this.#depth === this.#place.depth) this.#eventMembers += 1;
      } else if (byte === CLOSE_OBJECT || byte === CLOSE_LIST) {
        this.#depth -= 1;
        if (this.#element !== undefined && this.#depth === this.#place.depth) {
          this.#collect(chunk.subarray(from, at + 1));
          from = at + 1;
          this.#endElement();
        } else if (this.#depth === this.#place.depth - 1 && this.#bounds.what === "element_members") {
          this.#keep(chunk.subarray(from, at + 1));
          from = at + 1;
          this.#endEvent();
        }
      }
    }
    const rest = chunk.subarray(from);
    if (this.#element === undefined) this.#keep(rest);
    else this.#collect(rest);
  }

  /** What was kept. @param end ends it inside such a list */
  text(end = Buffer.alloc(0)): string {
    return Buffer.concat([...this.#kept, end]).toString("utf8");
  }

  #keep(bytes: Uint8Array): void {
    if (bytes.length === 0) return;
    this.#kept.push(bytes);
    this.#otherBytes += bytes.length;
  }

  #collect(bytes: Uint8Array): void {
    this.#elementBytes += bytes.length;
    if (this.#isTooLarge()) this.#element = [];
    else this.#element?.push(bytes);
  }

  #isTooLarge(): boolean {
    const { what, elementBytesMax, bytesMax } = this.#bounds;
    const isOver = what !== "element_members" && this.#listedBytes + this.#elementBytes > bytesMax;
    const isDense = this.#eventValues + this.#elementValues > ELEMENT_VALUES_MAX;
    return this.#elementBytes > elementBytesMax || isOver || isDense;
  }

  #endEvent(): void {
    if (this.#eventMembers <= ELEMENT_VALUES_MAX) return;
    this.#kept.length = this.#eventAt;
    this.#keep(LEFT_OUT);
  }

  #endElement(): void {
    if (this.#isTooLarge()) {
      this.#keep(LEFT_OUT);
    } else {
      this.#kept.push(...(this.#element ?? []));
      this.#listedBytes += this.#elementBytes;
      if (this.#bounds.what === "element_members") this.#eventValues += this.#elementValues;
    }
    this.#element = undefined;
  }
}
