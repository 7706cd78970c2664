// Machines for a test: on a database of its own, closed before it is dropped.
import type { TestContext } from "node:test";
import { pino } from "pino";
import { type LossReason, Machines, type MachinesDependencies } from "../../src/bridge/crypto/machines.ts";
import { ContentKeys } from "../../src/bridge/ledger/content-keys.ts";
import { systemClock, systemRandom } from "../../src/domain/clock.ts";
import type { GhostMxid } from "../../src/domain/identifiers.ts";
import { type TestDatabase, testDatabase } from "./database.ts";

export const storeKey = (byte: number): string => Buffer.alloc(32, byte).toString("base64");

export interface TestMachines {
  readonly machines: Machines;
  readonly lost: { readonly ghost: GhostMxid; readonly why: LossReason }[];
}

export interface MachinesScene {
  readonly database: TestDatabase;
  /** Machines as a process has them; several on one database are several processes. */
  start(options?: Partial<MachinesDependencies> & { readonly keys?: string }): TestMachines;
}

export async function machinesScene(t: Pick<TestContext, "after">): Promise<MachinesScene> {
  const started: Machines[] = [];
  t.after(() => Promise.all(started.map((machines) => machines.close())));
  const database = await testDatabase(t);
  return {
    database,
    start: (options = {}) => {
      const lost: { ghost: GhostMxid; why: LossReason }[] = [];
      const machines = new Machines({
        threads: 1,
        databaseUrl: database.url,
        storeKeys: ContentKeys.parse(options.keys ?? storeKey(1)),
        policy: { senderDevices: "allow_all", verifiedIdentities: [] },
        clock: systemClock,
        random: systemRandom,
        log: pino({ level: "silent" }),
        onLost: (ghost, why) => lost.push({ ghost, why }),
        ...options,
      });
      started.push(machines);
      return { machines, lost };
    },
  };
}
