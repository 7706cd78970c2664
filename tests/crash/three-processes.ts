// Three bridge processes behind one address, and how each is disturbed in turn: restarted in order, killed, stopped for a while.
// Invariant: a process is stopped while it holds leases, and goes on when others have them, so that what it writes is late.
import assert from "node:assert/strict";
import { systemClock } from "../../src/domain/clock.ts";
import { type AnotherBridge, type EncryptedBridge, eventually } from "../support/encrypted-bridge.ts";

const COUNT = 3;
const EVERY_MS = 2_500;
const STOPPED_MS = 2_000;
/** A statement that is on its way when its process is stopped has ended by then. */
const STATEMENT_MS_MAX = 200;

export const quantile = (sorted: readonly number[], at: number) =>
  sorted[Math.floor((sorted.length - 1) * at)] ?? 0;

export async function threeProcesses(bridge: EncryptedBridge) {
  const isUp = async (one: AnotherBridge) =>
    await eventually("the process takes transactions", async () => {
      const unready = await bridge.unready(one);
      if (unready.length > 0) throw new Error(unready.join());
      return true;
    });
  const processes: AnotherBridge[] = [];
  for (let started = 0; started < COUNT; started++) {
    const another = await bridge.spawnAnother();
    processes.push(another);
    if (started === 0) bridge.reach(another);
    await isUp(another);
  }
  bridge.reachAny(processes);

  const holdsLeases = async ({ running }: AnotherBridge) => {
    // One that could not run for a second goes on under another number.
    const numbers = (await running.printed('"event":"process"')).matchAll(/"process":"(\d+)"/g);
    const held = "SELECT FROM bridge_delegations WHERE lease_holder = $1";
    return (await bridge.rows(held, [[...numbers].at(-1)?.[1]])).length > 0;
  };
  const stop = async (one: AnotherBridge) => {
    const { child } = one.running;
    await eventually("it is stopped while it holds leases", async () => {
      if (!(await holdsLeases(one))) return undefined;
      child.kill("SIGSTOP");
      await systemClock.sleep(STATEMENT_MS_MAX);
      if (await holdsLeases(one)) return true;
      child.kill("SIGCONT");
      return undefined;
    });
    await systemClock.sleep(STOPPED_MS);
    await eventually("others have its leases", async () => !(await holdsLeases(one)) || undefined);
    child.kill("SIGCONT");
  };

  /** @param onResumed called with each process that was stopped and goes on */
  const disturb = async (times: number, onResumed?: (one: AnotherBridge) => Promise<void>) => {
    for (let number = 0; number < times; number++) {
      await systemClock.sleep(EVERY_MS);
      const index = number % COUNT;
      const one = processes[index] ?? assert.fail();
      const kind = Math.floor(number / COUNT) % 3;
      if (kind === 2) {
        await stop(one);
        await onResumed?.(one);
        continue;
      }
      one.running.child.kill(kind === 0 ? "SIGTERM" : "SIGKILL");
      await one.running.finished;
      processes[index] = await bridge.spawnAnother(one);
      await isUp(processes[index]);
    }
  };
  return { disturb };
}
