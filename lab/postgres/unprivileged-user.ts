// PostgreSQL refuses to run as root, so root runs it as `nobody`; any other user runs it under the own
// account.
// Invariants: no account is created; whether `nobody` can reach a path is found by trying as `nobody`, not
// from mode bits; a directory under a world-writable folder is used only when it belongs to this user and is
// private.
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { chmodSync, lstatSync, mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { DrawbridgeError } from "../../src/domain/errors.ts";

export interface UnprivilegedUser {
  readonly uid: number;
  readonly gid: number;
}

const NOBODY_BY_CONVENTION: UnprivilegedUser = { uid: 65_534, gid: 65_534 };

/** The user that a server must be run as, or undefined when this process is not root. */
export function unprivilegedUser(): UnprivilegedUser | undefined {
  if (process.getuid?.() !== 0) return undefined;
  let accounts = "";
  try {
    accounts = readFileSync("/etc/passwd", "utf8");
  } catch {
    return NOBODY_BY_CONVENTION;
  }
  const fields = accounts
    .split("\n")
    .find((line) => line.startsWith("nobody:"))
    ?.split(":");
  const uid = Number(fields?.[2]);
  const gid = Number(fields?.[3]);
  return uid > 0 && gid > 0 ? { uid, gid } : NOBODY_BY_CONVENTION;
}

/** Whether a program started as `user` could enter `directory`. */
export function canEnter(directory: string, user: UnprivilegedUser | undefined): boolean {
  // biome-ignore lint/suspicious/noTemplateCurlyInString: a shell's parameter, not a template
  const script = 'cd -- "${1}"';
  return (
    spawnSync("/bin/sh", ["-c", script, "sh", directory], { ...user, cwd: "/", stdio: "ignore" }).status === 0
  );
}

/** The path of `reachableDirectory(purpose)`, which may not exist. */
export function reachablePath(purpose: string): string {
  const hash = createHash("sha256").update(purpose).digest("hex").slice(0, 16);
  return join("/var/tmp", `drawbridge-${process.getuid?.() ?? 0}-${hash}`);
}

/**
 * A directory of this user's own under /var/tmp, outside any folder that others may not enter.
 * Its name is made of the user and of `purpose`, so the same purpose finds the same directory again.
 * @throws DrawbridgeError `program_failed` when something else already stands there.
 */
export function reachableDirectory(purpose: string): string {
  const directory = reachablePath(purpose);
  mkdirSync(directory, { recursive: true, mode: 0o711 });
  const found = lstatSync(directory);
  if (!found.isDirectory() || found.uid !== process.getuid?.() || (found.mode & 0o022) !== 0) {
    throw new DrawbridgeError("program_failed", `${directory} exists and is not this user's own directory`, {
      hint: `Look at what it is, remove it, and run the command again.`,
    });
  }
  chmodSync(directory, 0o711);
  return directory;
}
