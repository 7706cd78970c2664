// Where tests keep what they write: in memory where the machine has room for it, since on a disk their databases and
// repositories are made durable for nobody. TMPDIR, when set, says where instead.
// Invariants: the folder goes with the run; one that a killed run has left is swept by the next.
import { spawnSync } from "node:child_process";
import { chmodSync, mkdtempSync, readdirSync, rmSync, statfsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { isProcessAlive } from "../lab/processes.ts";

const MEMORY = "/dev/shm";
const PREFIX = "drawbridge-";
const GIB = 1024 ** 3;
/** Free of the file system, and of the machine's memory: else tests write to the disk. */
const ROOM_MIN_BYTES = 6 * GIB;
/** As of the system's own temporary folder: servers that run as another user go through it. */
const FOR_EVERYBODY = 0o1777;

/** Runs `work` with TMPDIR in memory, if there is room. */
export async function inMemory<Result>(work: () => Promise<Result>): Promise<Result> {
  if (process.env["TMPDIR"]) return await work();
  sweep();
  const folder = hasRoom() ? makeFolder() : undefined;
  if (folder === undefined) return await work();
  process.env["TMPDIR"] = folder;
  try {
    return await work();
  } finally {
    delete process.env["TMPDIR"];
    remove(folder);
  }
}

/** What cannot be removed is left to the next run: it says nothing about the tests. */
function remove(folder: string): void {
  try {
    rmSync(folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
  } catch {
    process.stderr.write(`${folder} could not be removed; remove it by hand.\n`);
  }
}

function hasRoom(): boolean {
  try {
    const { bavail, bsize } = statfsSync(MEMORY);
    return Math.min(bavail * bsize, process.availableMemory()) >= ROOM_MIN_BYTES;
  } catch {
    return false;
  }
}

/** Undefined where nothing may be written, or no program be run from. */
function makeFolder(): string | undefined {
  let folder: string;
  try {
    folder = mkdtempSync(join(MEMORY, `${PREFIX}${process.pid}-`));
  } catch {
    return undefined;
  }
  const program = join(folder, "program");
  writeFileSync(program, "#!/bin/sh\n", { mode: 0o755 });
  if (spawnSync(program).status === 0) {
    rmSync(program);
    chmodSync(folder, FOR_EVERYBODY);
    return folder;
  }
  rmSync(folder, { recursive: true, force: true });
  return undefined;
}

/** Removes what runs have left that were killed. */
function sweep(): void {
  let names: readonly string[];
  try {
    names = readdirSync(MEMORY);
  } catch {
    return;
  }
  for (const name of names) {
    const pid = new RegExp(`^${PREFIX}(\\d+)-`).exec(name)?.[1];
    if (pid === undefined || isProcessAlive(Number(pid))) continue;
    try {
      rmSync(join(MEMORY, name), { recursive: true, force: true });
    } catch {
      // Another user's.
    }
  }
}
