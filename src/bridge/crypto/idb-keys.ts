// Keys of IndexedDB as bytes. Invariants: bytes sort as IndexedDB sorts the keys: numbers before strings before arrays; no
// key is a prefix of another, so that the bytes of a prefix of a string bound the strings that begin with it.
import { membersOf } from "../../domain/json.ts";
import type { KeyRange } from "../ledger/crypto-stores.ts";

export type IdbKey = string | number | readonly IdbKey[];

const NUMBER = 0x10;
const STRING = 0x30;
const ARRAY = 0x50;

function numberBytes(value: number): Buffer {
  const bytes = Buffer.alloc(9);
  bytes[0] = NUMBER;
  // Zero and its negative are one key.
  bytes.writeDoubleBE(value + 0, 1);
  const bits = bytes.readBigUInt64BE(1);
  bytes.writeBigUInt64BE(value < 0 ? BigInt.asUintN(64, ~bits) : bits ^ (1n << 63n), 1);
  return bytes;
}

/** The byte that ends a key would end it too early where the text itself has it. */
const escaped = (text: string) =>
  text.replaceAll("\u0001", "\u0001\u0002").replaceAll("\u0000", "\u0001\u0001");
const unescaped = (text: string) =>
  text.replaceAll("\u0001\u0001", "\u0000").replaceAll("\u0001\u0002", "\u0001");

/** @throws DOMException `DataError` for what is no key of these kinds */
export function encodeKey(key: unknown): Buffer {
  if (typeof key === "string") return Buffer.from(`${String.fromCharCode(STRING)}${escaped(key)}\u0000`);
  if (typeof key === "number" && !Number.isNaN(key)) return numberBytes(key);
  if (Array.isArray(key)) {
    return Buffer.concat([Buffer.of(ARRAY), ...key.map(encodeKey), Buffer.of(0)]);
  }
  throw new DOMException("a key of a kind that is not supported", "DataError");
}

/** The key of these bytes; only strings are read back. */
export function decodeKey(bytes: Buffer): string {
  if (bytes[0] === STRING) return unescaped(bytes.toString("utf8", 1, bytes.length - 1));
  throw new DOMException("only keys that are strings are listed", "NotSupportedError");
}

/** The key in an index with this key path; undefined for a record that is not in the index. */
export function indexKeyOf(keyPath: string | readonly string[], value: unknown): Buffer | undefined {
  const members = membersOf(value);
  const key = typeof keyPath === "string" ? members[keyPath] : keyPath.map((member) => members[member]);
  try {
    return encodeKey(key);
  } catch {
    return undefined;
  }
}

export const ALL_KEYS: KeyRange = { from: Buffer.alloc(0), to: Buffer.of(0xff) };

const justAfter = (key: Buffer) => Buffer.concat([key, Buffer.of(0)]);

export class IDBKeyRange implements KeyRange {
  readonly from: Buffer;
  readonly to: Buffer;

  private constructor(from: Buffer, to: Buffer) {
    this.from = from;
    this.to = to;
  }

  static bound(lower: IdbKey, upper: IdbKey, lowerOpen = false, upperOpen = false): IDBKeyRange {
    const [from, to] = [encodeKey(lower), encodeKey(upper)];
    return new IDBKeyRange(lowerOpen ? justAfter(from) : from, upperOpen ? to : justAfter(to));
  }
}

export function toKeyRange(query: unknown): KeyRange {
  if (query === undefined || query === null) return ALL_KEYS;
  if (query instanceof IDBKeyRange) return query;
  const key = encodeKey(query);
  return { from: key, to: justAfter(key) };
}

export const isWithin = ({ from, to }: KeyRange, key: Buffer): boolean =>
  Buffer.compare(from, key) <= 0 && Buffer.compare(key, to) < 0;

/** Ends the first part of a key, in object stores whose keys name a room or a device, and a session. */
const SEPARATOR = 0x1d;

export function sameFirstPart(key: Buffer): KeyRange | undefined {
  const end = key.indexOf(SEPARATOR);
  if (end === -1) return undefined;
  const followedBy = (byte: number) => Buffer.concat([key.subarray(0, end), Buffer.of(byte)]);
  return { from: followedBy(SEPARATOR), to: followedBy(SEPARATOR + 1) };
}
