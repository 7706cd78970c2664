// Writing files that other programs read meanwhile, and files that hold secrets. Invariants: a file is whole or absent,
// never half written; a file that holds a secret has mode 0600 from its first byte; what was written survives a loss of
// power once the function has returned; two processes that write the same file do not spoil each other's staging copy; a
// copy that a killed process has left is removed, when its file is an hour younger, by the first write of a process in the folder.
import {
  closeSync,
  existsSync,
  fchmodSync,
  fsyncSync,
  linkSync,
  lstatSync,
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
import { DrawbridgeError } from "../domain/errors.ts";

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

/** Makes a folder and those above it: Node's own way never ends where the kernel answers "not found", as below /proc. */
function makeFolder(folder: string, mode?: number): void {
  if (existsSync(folder)) return;
  makeFolder(dirname(folder), mode);
  try {
    mkdirSync(folder, { mode });
  } catch (error) {
    // Another process may have made it meanwhile.
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  }
}

/** Replaces a file in one durable step; its folder is made if it is not there. */
export function writeWhole(file: string, text: string | Buffer, mode: number): void {
  writeStaged(file, text, mode, renameSync);
}

function writeStaged(file: string, text: string | Buffer, mode: number, place: typeof renameSync): void {
  const folder = dirname(file);
  makeFolder(folder);
  const staging = `${file}.${process.pid}.new`;
  try {
    // Left by a process that was killed and had the same ID, as programs in containers have.
    rmSync(staging, { force: true });
    const handle = openSync(staging, "wx", mode);
    try {
      fchmodSync(handle, mode); // The mode above is subject to the umask.
      const bytes = typeof text === "string" ? Buffer.from(text, "utf8") : text;
      for (let written = 0; written < bytes.length; ) written += writeSync(handle, bytes, written);
      fsyncSync(handle);
    } finally {
      closeSync(handle);
    }
    place(staging, file);
  } finally {
    rmSync(staging, { force: true });
  }
  removeLeftBehind(resolve(folder));
  flushFolder(folder);
}

/** A write takes moments: a copy that is an hour older than the file itself has no writer any more. */
const LEFT_BEHIND_MS = 3_600_000;
/** Folders that were searched already: one may hold a file for each of ten thousand partners, all written in turn. */
const searched = new Set<string>();

function removeLeftBehind(folder: string): void {
  if (searched.has(folder)) return;
  searched.add(folder);
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

export function readIfPresent(file: string): string | undefined {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

/** @throws DrawbridgeError `usage` when the path cannot be written */
function orRefused(path: string, write: () => void): void {
  try {
    write();
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code ?? "unknown error";
    const isThere = "Move it away first, or name another place: what is there is never overwritten.";
    // Also said of a folder in the path that is a file.
    const hint = code === "EEXIST" && existsSync(path) ? isThere : "Check the path and its rights.";
    throw new DrawbridgeError("usage", `cannot write ${path}: ${code}`, { hint, cause });
  }
}

/** Replaces a file that only this user may read. @throws DrawbridgeError `usage` when it cannot be written, or is no regular file */
export function replacePrivateFile(path: string, text: string): void {
  let isOther = false;
  orRefused(path, () => {
    isOther = lstatSync(path, { throwIfNoEntry: false })?.isFile() === false;
    if (!isOther) writeWhole(path, text, PRIVATE);
  });
  if (!isOther) return;
  throw new DrawbridgeError("usage", `${path} is no regular file, and was not replaced`, {
    hint: "Name a file that is not there yet, or one that may be replaced; not a device, a folder or a link.",
  });
}

/** Writes a file that is not there yet. @throws DrawbridgeError `usage` when it is there, or cannot be written */
export function createFile(path: string, text: string, mode = PRIVATE): void {
  orRefused(path, () => {
    makeFolder(dirname(path), 0o700);
    // A link, unlike a rename, does not replace what is there.
    writeStaged(path, text, mode, linkSync);
  });
}

/** @throws DrawbridgeError `usage` when a file or folder is there already */
export function requireAbsent(paths: readonly string[]): void {
  const there = paths.find((path) => existsSync(path));
  if (there === undefined) return;
  throw new DrawbridgeError("usage", `${there} exists already; nothing was written`, {
    hint: "Name an empty directory. If an earlier init was interrupted here, remove what it left, and give it again.",
  });
}
