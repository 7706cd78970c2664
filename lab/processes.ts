// Identifies processes. A process ID alone may have passed to another program; together with its start time
// and the boot it is unique (Linux, proc(5)).
// Invariant: the lab signals a process only if its identity was recorded when the lab started it, or if it
// carries the lab's own random ID in its environment.
import { readdirSync, readFileSync } from "node:fs";
import * as z from "zod";
import type { Clock } from "../src/domain/clock.ts";

export const ProcessIdentity = z.strictObject({
  pid: z.int().min(1),
  /** Clock ticks since boot. */
  startTicks: z.string(),
  bootId: z.string(),
});
export type ProcessIdentity = z.output<typeof ProcessIdentity>;

/** The environment variable that every process of a lab inherits. Its value is random: no secret, but unique. */
export const LAB_ID_VARIABLE = "DRAWBRIDGE_LAB_ID";

let bootId: string | undefined;
function currentBootId(): string {
  bootId ??= readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
  return bootId;
}

/** The fields of /proc/PID/stat from the third on: state, parent, and so forth; undefined without a process. */
function statFields(pid: number): string[] | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    // The second field is the program's name in parentheses and may hold anything, parentheses included.
    return stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  } catch {
    return undefined;
  }
}

/** The identity of a live process; undefined if there is none, or if it is a zombie. */
export function identityOf(pid: number): ProcessIdentity | undefined {
  const fields = statFields(pid);
  const startTicks = fields?.[19];
  if (fields?.[0] === "Z" || fields?.[0] === "X" || startTicks === undefined) return undefined;
  return { pid, startTicks, bootId: currentBootId() };
}

/** Whether exactly that process still runs. */
export function isAlive(identity: ProcessIdentity): boolean {
  const now = identityOf(identity.pid);
  return now !== undefined && now.startTicks === identity.startTicks && now.bootId === identity.bootId;
}

/** The processes that a process started and that still run. */
export function childrenOf(pid: number): number[] {
  const found: number[] = [];
  for (const entry of readdirSync("/proc")) {
    const child = Number(entry);
    if (Number.isInteger(child) && statFields(child)?.[1] === String(pid)) found.push(child);
  }
  return found;
}

/** Live processes that carry this lab's ID in their environment, this one aside. */
export function processesOfLab(labId: string): ProcessIdentity[] {
  const wanted = `${LAB_ID_VARIABLE}=${labId}`;
  const found: ProcessIdentity[] = [];
  for (const entry of readdirSync("/proc")) {
    const pid = Number(entry);
    if (!Number.isInteger(pid) || pid === process.pid) continue;
    try {
      if (!readFileSync(`/proc/${pid}/environ`, "utf8").split("\0").includes(wanted)) continue;
    } catch {
      continue; // It has ended, or belongs to another user: not a process that this lab started.
    }
    const identity = identityOf(pid);
    if (identity !== undefined) found.push(identity);
  }
  return found;
}

/** Sends a signal to exactly that process; false if it has ended. */
export function signalProcess(identity: ProcessIdentity, signal: NodeJS.Signals): boolean {
  if (!isAlive(identity)) return false;
  try {
    process.kill(identity.pid, signal);
    return true;
  } catch {
    return false;
  }
}

/** Ends processes: SIGTERM, then SIGKILL for those still there after `graceMs`. Resolves when all are gone. */
export async function endProcesses(
  identities: readonly ProcessIdentity[],
  graceMs: number,
  clock: Clock,
): Promise<void> {
  for (const identity of identities) signalProcess(identity, "SIGTERM");
  const deadline = clock.now() + graceMs;
  let left = identities.filter(isAlive);
  while (left.length > 0 && clock.now() < deadline) {
    await clock.sleep(20);
    left = left.filter(isAlive);
  }
  for (const identity of left) signalProcess(identity, "SIGKILL");
  while (left.length > 0 && clock.now() < deadline + 5_000) {
    await clock.sleep(20);
    left = left.filter(isAlive);
  }
}

/** Whether a process lives, whoever owns it; its ID may have passed to another program. */
export function isProcessAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}
