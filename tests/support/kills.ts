// Killing a program at work, and how often a crash test does. A short run meets the same boundaries less often.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { ROOT, type Running, start } from "./temporary.ts";

/** Set to `short` by `./task test:crash-recovery --short`. */
export const CRASH_RUN = "DRAWBRIDGE_TEST_CRASH_RUN";

/** Set to `short` by `./task test:lab --short`. */
export const LAB_RUN = "DRAWBRIDGE_TEST_LAB_RUN";

/** The seed of random orders, by `--seed N` of `./task test` and `./task test:lab`; a random one when absent. */
export const ORDERS_SEED = "DRAWBRIDGE_TEST_ORDERS_SEED";

/** How many random histories of the ledger are compared with its model, by `./task test --runs N`. */
export const MODEL_RUNS = "DRAWBRIDGE_TEST_MODEL_RUNS";

/** How often `./task test:homeserver-stops` stops the homeserver. */
export const STOPS = "DRAWBRIDGE_TEST_STOPS";

/** How often `./task test:failover` kills the primary of a replicated database. */
export const FAILOVERS = "DRAWBRIDGE_TEST_FAILOVERS";

/** The program that runs a procedure of federation control by its name. */
export const FEDERATION_PROCESS = join(ROOT, "tests/support/federation-process.ts");

const SHORT_MAX = 10;
const STOPS_SHORT = 6;

export function isShortRun(): boolean {
  return process.env[CRASH_RUN] === "short";
}

/** @param whole how many kills a whole run makes */
export function killsOf(whole: number): number {
  return isShortRun() ? Math.min(whole, SHORT_MAX) : whole;
}

/** How often a homeserver is stopped, unless the task that runs the test says otherwise. */
export function stopsOf(whole: number): number {
  const asked = process.env[STOPS];
  if (asked !== undefined) return Number(asked);
  return isShortRun() ? STOPS_SHORT : whole;
}

export function failoversOf(whole: number): number {
  return Number(process.env[FAILOVERS] ?? whole);
}

/**
 * Runs one procedure of federation control in a process of its own, and kills it so long after it has begun if a time
 * is given. Files that it leaves in its temporary directory are removed.
 * @returns how long it worked, whether it was killed, and what it printed
 */
export async function runUntilKilled(
  args: readonly string[],
  killAfterMs?: number,
  program = FEDERATION_PROCESS,
) {
  const scratch = mkdtempSync(join(tmpdir(), "drawbridge kill "));
  const env = { ...process.env, TMPDIR: scratch };
  const running = start(process.execPath, [program, ...args], { env });
  try {
    return await untilKilled(running, killAfterMs);
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

async function untilKilled(running: Running, killAfterMs: number | undefined) {
  await running.printed("begun");
  const begun = performance.now();
  const kill = () => running.child.kill("SIGKILL");
  const timer = killAfterMs === undefined ? undefined : setTimeout(kill, killAfterMs);
  const { signal, stdout, stderr } = await running.finished;
  clearTimeout(timer);
  assert.equal(stderr, "");
  assert.doesNotMatch(stdout, /drift/);
  return { killed: signal === "SIGKILL", durationMs: performance.now() - begun, stdout };
}
