// Files that programs of their own read while they are replaced. Invariants: a file is whole or absent, never
// half written; what was written survives a loss of power once `writeWhole` has returned (file and folder are
// flushed); two processes that write the same file do not spoil each other's staging copy; a copy that a kill
// has left behind goes with the first write of a later process in the same folder.
import {
  closeSync,
  fchmodSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeSync,
} from "node:fs";
import { dirname, join, resolve } from "node:path";
import process from "node:process";

/** Readable by this user alone. */
export const PRIVATE = 0o600;
export const PUBLIC = 0o644;

/** Makes a rename or a removal in the folder durable. */
export function flushFolder(folder: string): void {
  const handle = openSync(folder, "r");
  try {
    fsyncSync(handle);
  } finally {
    closeSync(handle);
  }
}

/** Replaces a file in one durable step; its folder is made if it is not there. */
export function writeWhole(file: string, text: string | Buffer, mode: number): void {
  const folder = dirname(file);
  mkdirSync(folder, { recursive: true });
  const staging = `${file}.${process.pid}.new`;
  try {
    const handle = openSync(staging, "w", mode);
    try {
      fchmodSync(handle, mode); // The mode above is subject to the umask, and ignored for a file that is there.
      const bytes = typeof text === "string" ? Buffer.from(text, "utf8") : text;
      for (let written = 0; written < bytes.length; ) written += writeSync(handle, bytes, written);
      fsyncSync(handle);
    } finally {
      closeSync(handle);
    }
    renameSync(staging, file);
  } finally {
    rmSync(staging, { force: true });
  }
  removeLeftBehind(resolve(folder));
  flushFolder(folder);
}

/** A write takes moments: what is an hour older than the file itself is nobody's any more. */
const LEFT_BEHIND_MS = 3_600_000;
/** Looked through already: a folder may hold a file for each of ten thousand partners, all written in turn. */
const lookedThrough = new Set<string>();

function removeLeftBehind(folder: string): void {
  if (lookedThrough.has(folder)) return;
  lookedThrough.add(folder);
  for (const copy of readdirSync(folder)) {
    const file = /^(.+)\.[0-9]+\.new$/.exec(copy)?.[1];
    if (file === undefined) continue;
    const [made, now] = [copy, file].map(
      (name) => statSync(join(folder, name), { throwIfNoEntry: false })?.mtimeMs,
    );
    if (made === undefined || now === undefined || now - made <= LEFT_BEHIND_MS) continue;
    rmSync(join(folder, copy), { force: true });
  }
}

/** The text of a file; undefined when there is none. */
export function readIfPresent(file: string): string | undefined {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}
