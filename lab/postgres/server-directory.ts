// The folder in which one embedded PostgreSQL server keeps its data, password, port and log.
// Invariants: a data directory exists whole or not at all, also after a killed initdb; of several processes
// that make it at once, one makes it and the others use it.
import { spawnSync } from "node:child_process";
import {
  chmodSync,
  chownSync,
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { join, resolve } from "node:path";
import type { Random } from "../../src/domain/clock.ts";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import type { PostgresBinaries } from "./binaries.ts";
import { canEnter, reachableDirectory, reachablePath, type UnprivilegedUser } from "./unprivileged-user.ts";

function purposeOf(directory: string): string {
  return `postgres-data ${directory}`;
}

/** Every directory in which a server that was asked for in `directory` may live, whether or not it exists. */
export function serverHomes(directory: string): readonly [string, string] {
  const wanted = resolve(directory);
  return [wanted, reachablePath(purposeOf(wanted))];
}

/** Where the server lives, made if missing: `directory`, or a reachable one in its place. */
export function serverHome(
  directory: string,
  user: UnprivilegedUser | undefined,
  log: ((message: string) => void) | undefined,
): string {
  const wanted = resolve(directory);
  let reason: string;
  try {
    mkdirSync(wanted, { recursive: true, mode: 0o711 });
    if (user === undefined) return wanted;
    chmodSync(wanted, 0o711);
    if (canEnter(wanted, user)) return wanted;
    reason = "PostgreSQL does not run as root, and the user nobody cannot enter it";
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code !== "EROFS" && code !== "EACCES" && code !== "EPERM") throw error;
    reason = `it cannot be written (${code})`;
  }
  const home = reachableDirectory(purposeOf(wanted));
  log?.(`PostgreSQL's data is kept in ${home} instead of ${wanted}: ${reason}`);
  return home;
}

/** The superuser's password, made once; the first of several starters wins. */
export function readOrMakePassword(home: string, user: UnprivilegedUser | undefined, random: Random): string {
  const file = join(home, "password");
  if (!existsSync(file)) {
    const staging = join(home, `password.${process.pid}`);
    writeFileSync(staging, random.bytes(24).toString("base64url"), { mode: 0o600 });
    if (user !== undefined) chownSync(staging, user.uid, user.gid);
    try {
      linkSync(staging, file);
    } catch (error) {
      if (!existsSync(file)) throw error;
    } finally {
      rmSync(staging, { force: true });
    }
  }
  try {
    return readFileSync(file, "utf8").trim();
  } catch (cause) {
    throw new DrawbridgeError("program_failed", `PostgreSQL's data in ${home} belongs to another user`, {
      hint: "Run the command as the user who started it first, or remove that folder and lose its data.",
      cause,
    });
  }
}

/**
 * Makes the data directory if there is none: UTF8, locale C, scram passwords.
 * @throws DrawbridgeError `program_failed`
 */
export function initialise(
  home: string,
  binaries: PostgresBinaries,
  user: UnprivilegedUser | undefined,
): void {
  const data = join(home, "data");
  if (existsSync(data)) return;
  const staging = join(home, `initdb.${process.pid}`);
  rmSync(staging, { recursive: true, force: true });
  mkdirSync(staging, { mode: 0o700 });
  if (user !== undefined) chownSync(staging, user.uid, user.gid);
  const made = spawnSync(
    binaries.initdb,
    [
      `--pgdata=${staging}`,
      "--username=postgres",
      `--pwfile=${join(home, "password")}`,
      "--auth=scram-sha-256",
      "--encoding=UTF8",
      "--locale=C",
      "--no-instructions",
    ],
    { ...user, cwd: "/", encoding: "utf8" },
  );
  if (made.status !== 0) {
    rmSync(staging, { recursive: true, force: true });
    throw new DrawbridgeError(
      "program_failed",
      `initdb failed in ${home}: ${made.stderr.trim().split("\n").at(-1)}`,
      {
        hint: "Check that the disk is not full and that the folder can be written.",
      },
    );
  }
  try {
    renameSync(staging, data);
  } catch (error) {
    if (!existsSync(data)) throw error; // Another starter was first: its data directory is as good.
    rmSync(staging, { recursive: true, force: true });
  }
}

/** Removes what starters that were killed left behind. */
export function sweep(home: string): void {
  for (const name of readdirSync(home)) {
    const pid = Number(/^(?:initdb|password)\.([0-9]+)$/.exec(name)?.[1]);
    if (Number.isInteger(pid) && !existsSync(`/proc/${pid}`) && process.platform === "linux") {
      rmSync(join(home, name), { recursive: true, force: true });
    }
  }
}
