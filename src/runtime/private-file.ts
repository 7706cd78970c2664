// Files that hold secrets. Invariants: mode 0600 from the first byte; a file is replaced whole or not at all.
import { mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import process from "node:process";
import { DrawbridgeError } from "../domain/errors.ts";

function refused(path: string, cause: unknown): DrawbridgeError {
  const code = (cause as NodeJS.ErrnoException).code ?? "unknown error";
  return new DrawbridgeError("usage", `cannot write ${path}: ${code}`, {
    hint: code === "EEXIST" ? "Move it away first, or name another place." : "Check the path and its rights.",
    cause,
  });
}

/**
 * Writes a file that only this user may read, in the place of one that is there.
 * @throws DrawbridgeError `usage` when it cannot be written
 */
export function replacePrivateFile(path: string, text: string): void {
  const staging = `${path}.${process.pid}.new`;
  try {
    mkdirSync(dirname(path), { recursive: true });
    // Left behind by a process that was killed and had the same ID, as programs in containers have.
    rmSync(staging, { force: true });
    writeFileSync(staging, text, { mode: 0o600, flag: "wx" });
    renameSync(staging, path);
  } catch (cause) {
    rmSync(staging, { force: true });
    throw refused(path, cause);
  }
}

/**
 * Writes a file that only this user may read; one that is there is never touched.
 * @throws DrawbridgeError `usage` when it is there already or cannot be written
 */
export function createPrivateFile(path: string, text: string): void {
  try {
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    writeFileSync(path, text, { mode: 0o600, flag: "wx" });
  } catch (cause) {
    throw refused(path, cause);
  }
}
