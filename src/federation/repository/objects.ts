// Objects in git's own format: read from the file that each has until git packs it, and packed for git to take in. Starting
// git takes far longer than reading a file.
// Invariants: what does not have its ID's digest is not read; git alone writes into a repository.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { deflateSync, inflateSync } from "node:zlib";

const OBJECT_BYTES_MAX = 1 << 29;
/** As packs number them. */
const TYPES = { commit: 1, tree: 2, blob: 3 } as const;
export const FOLDER_MODE = "40000";

export type ObjectFormat = "sha1" | "sha256";
export type ObjectType = keyof typeof TYPES;

export interface GitObject {
  readonly type: ObjectType;
  readonly bytes: Buffer;
}

export interface NamedEntry {
  /** Its bytes, each as one character: git does not ask for UTF-8. */
  readonly name: string;
  readonly id: string;
  /** As a tree holds it: `40000` is a folder. */
  readonly mode: string;
}

export function formatOf(id: string): ObjectFormat {
  return id.length === 64 ? "sha256" : "sha1";
}

export function objectId(format: ObjectFormat, { type, bytes }: GitObject): string {
  return createHash(format).update(`${type} ${bytes.length}\0`).update(bytes).digest("hex");
}

/** @throws Error when the object has no file of its own, or is not what its ID says */
export function readLooseObject(gitDirectory: string, id: string, type: ObjectType): Buffer {
  const file = readFileSync(join(gitDirectory, "objects", id.slice(0, 2), id.slice(2)));
  const whole = inflateSync(file, { maxOutputLength: OBJECT_BYTES_MAX });
  const bytes = whole.subarray(whole.indexOf(0) + 1);
  if (objectId(formatOf(id), { type, bytes }) !== id) throw new TypeError(`${id} is damaged or no ${type}`);
  return bytes;
}

/** The entries of a tree, in its order. */
export function treeEntries(tree: Buffer, format: ObjectFormat): NamedEntry[] {
  const idBytes = format === "sha256" ? 32 : 20;
  const entries: NamedEntry[] = [];
  for (let at = 0; at < tree.length; ) {
    const space = tree.indexOf(0x20, at);
    const end = tree.indexOf(0, space);
    entries.push({
      mode: tree.toString("latin1", at, space),
      name: tree.toString("latin1", space + 1, end),
      id: tree.toString("hex", end + 1, end + 1 + idBytes),
    });
    at = end + 1 + idBytes;
  }
  return entries;
}

/** Git compares names as if a folder's ended with a slash. */
export function treeOf(entries: readonly NamedEntry[]): GitObject {
  const key = ({ name, mode }: NamedEntry) => (mode === FOLDER_MODE ? `${name}/` : name);
  const parts = entries
    .toSorted((left, right) => (key(left) < key(right) ? -1 : 1))
    .flatMap(({ mode, name, id }) => [Buffer.from(`${mode} ${name}\0`, "latin1"), Buffer.from(id, "hex")]);
  return { type: "tree", bytes: Buffer.concat(parts) };
}

/** Objects as `git unpack-objects` takes them. */
export function packOf(format: ObjectFormat, objects: readonly GitObject[]): Buffer {
  const head = Buffer.from("PACK\0\0\0\x02\0\0\0\0", "latin1");
  head.writeUInt32BE(objects.length, 8);
  const pack = Buffer.concat([
    head,
    ...objects.flatMap((object) => [packedHead(object), deflateSync(object.bytes)]),
  ]);
  return Buffer.concat([pack, createHash(format).update(pack).digest()]);
}

/** Type and size: four bits of the size, then seven a byte, the lowest first. */
function packedHead({ type, bytes }: GitObject): Buffer {
  const head = [(TYPES[type] << 4) | (bytes.length & 15)];
  for (let left = Math.floor(bytes.length / 16); left > 0; left = Math.floor(left / 128)) {
    head[head.length - 1] = (head.at(-1) ?? 0) | 128;
    head.push(left & 127);
  }
  return Buffer.from(head);
}
