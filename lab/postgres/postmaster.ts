// What PostgreSQL's own lock file, postmaster.pid, says about a data directory.
// Invariant: a server is reported only when the process is alive and its working directory is that data
// directory, so a process ID that was given to another program is never taken for it, let alone ended.
import { spawnSync } from "node:child_process";
import { readFileSync, readlinkSync, realpathSync } from "node:fs";
import { join } from "node:path";
import { isProcessAlive } from "../process-alive.ts";

export interface Postmaster {
  readonly pid: number;
  readonly port: number;
  /** Whether it accepts connections already. */
  readonly ready: boolean;
}

export type PostmasterState =
  | { readonly kind: "absent" }
  /** The lock file is of a server that ended, or its process ID now belongs to another program. */
  | { readonly kind: "stale"; readonly pidReused: boolean }
  | { readonly kind: "running"; readonly postmaster: Postmaster };

/** Whether `pid` is a live server of the data directory; a server ends a little after its lock file is gone. */
export function isPostmasterOf(pid: number, dataDirectory: string): boolean {
  if (!isProcessAlive(pid)) return false;
  try {
    return readlinkSync(`/proc/${pid}/cwd`) === realpathSync(dataDirectory);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === "EACCES") return false; // Another user's process: not one that we could have started.
    if (process.platform === "linux") return false; // It ended meanwhile.
  }
  const listed = spawnSync("ps", ["-o", "command=", "-p", String(pid)], { encoding: "utf8" });
  return listed.status === 0 && listed.stdout.includes("postgres") && listed.stdout.includes(dataDirectory);
}

/** Reads and verifies `postmaster.pid` of a data directory. */
export function postmasterOf(dataDirectory: string): PostmasterState {
  let text: string;
  try {
    text = readFileSync(join(dataDirectory, "postmaster.pid"), "utf8");
  } catch {
    return { kind: "absent" };
  }
  // PostgreSQL's miscadmin.h: 1 pid, 2 data directory, 3 start, 4 port, 5 socket, 6 address, 7 memory, 8 status.
  const lines = text.split("\n").map((line) => line.trim());
  const pid = Number(lines[0]);
  const port = Number(lines[3]);
  if (!Number.isInteger(pid) || pid <= 0 || !isProcessAlive(pid)) return { kind: "stale", pidReused: false };
  if (!isPostmasterOf(pid, dataDirectory)) return { kind: "stale", pidReused: isProcessAlive(pid) };
  return { kind: "running", postmaster: { pid, port, ready: lines[7] === "ready" && port > 0 } };
}
