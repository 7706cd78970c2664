// A thread of machines: the entry of a worker. It has the library, its databases in memory, and a connection
// of its own on which it makes them durable.
// Invariants: an answer leaves this thread only when everything behind it is committed; a panic of the library
// ends the thread, for nothing that shares its memory can be trusted then.
import { parentPort, workerData } from "node:worker_threads";
import { initAsync } from "@matrix-org/matrix-sdk-crypto-wasm";
import { systemClock } from "../../domain/clock.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import type { GhostMxid } from "../../domain/identifiers.ts";
import { cryptoRecords, replaceCryptoStore } from "../ledger/crypto-stores.ts";
import { createLedgerPool } from "../ledger/postgres.ts";
import { ForeignStore, GhostMachine, type MachineStore } from "./machine.ts";
import { isPanic } from "./panic.ts";
import { StoreWriter } from "./store-writer.ts";
import { Outbox } from "./thread-outbox.ts";
import type { FromThread, OpenTask, ThreadData, ThreadErrorKind, ToThread } from "./thread-protocol.ts";

/** One to write, one to read stores as they are opened. */
const CONNECTIONS = 2;
const CONNECT_TIMEOUT_MS = 5_000;
const STATEMENT_TIMEOUT_MS = 30_000;
/** Longest that an answer waits to leave together with others. */
const HOLD_MS = 10;

const { databaseUrl, policy } = workerData as ThreadData;
const pool = createLedgerPool({
  connectionString: databaseUrl,
  max: CONNECTIONS,
  connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
  statement_timeout: STATEMENT_TIMEOUT_MS,
  keepAlive: true,
  application_name: "drawbridge-machines",
});
pool.on("error", () => {});
const writer = new StoreWriter(pool, systemClock);
const machines = new Map<GhostMxid, GhostMachine>();

const outbox = new Outbox<FromThread>(
  (messages) => parentPort?.postMessage(messages),
  (flush) => void systemClock.sleep(HOLD_MS).then(flush),
);
/** Questions that were not answered yet. */
let open = 0;
/** While others are worked on an answer may wait for them; the last one leaves at once, with those before it. */
const say = (message: FromThread) => {
  outbox.put(message);
  if (open === 0) outbox.flush();
};

function kindOf(error: unknown): ThreadErrorKind {
  if (error instanceof ForeignStore) return "foreign";
  if (!(error instanceof DrawbridgeError)) return "refused";
  if (error.code === "lease_lost") return "fence_lost";
  return error.code === "database_unavailable" ? "database_unavailable" : "refused";
}

function storeOf({ ghost, fence, layout, identity }: OpenTask): MachineStore {
  const holder = { ghost, fence };
  return {
    // With its fence: what an earlier machine of the same ghost left in memory is not found by this one.
    name: `${ghost}#${fence}`,
    layout,
    identity,
    records: () => cryptoRecords(pool, ghost),
    write: (records) => writer.write(holder, records),
    replace: async (records, laidOut, madeIdentity) => {
      await writer.write(holder, []);
      await replaceCryptoStore(pool, { ...holder, records }, { layout: laidOut, identity: madeIdentity });
    },
  };
}

async function shut(ghost: GhostMxid): Promise<void> {
  const machine = machines.get(ghost);
  machines.delete(ghost);
  await machine?.close();
}

async function close(): Promise<void> {
  await Promise.all([...machines.keys()].map(shut));
  await pool.end();
}

async function openMachine(task: OpenTask) {
  await shut(task.ghost);
  const machine = await GhostMachine.open(task.ghost, task.deviceId, task.key, storeOf(task), policy);
  machines.set(task.ghost, machine);
  return machine.identity;
}

function call(message: Extract<ToThread, { do: "call" }>): Promise<unknown> | ThreadErrorKind {
  const machine = machines.get(message.ghost);
  if (machine === undefined) return "not_open";
  const method = machine[message.call] as (...args: unknown[]) => Promise<unknown>;
  return method.apply(machine, [...message.args]);
}

async function answer(message: ToThread): Promise<FromThread> {
  const { id } = message;
  if (message.do === "open") return { id, result: await openMachine(message.task) };
  if (message.do === "shut") return { id, result: await shut(message.ghost) };
  if (message.do === "close") return { id, result: await close() };
  const answered = call(message);
  return typeof answered === "string" ? { id, error: answered } : { id, result: await answered };
}

/** A machine whose changes could not be committed is ahead of its store: it is opened anew from there. */
async function dropFailed(ghost: GhostMxid, why: ThreadErrorKind): Promise<void> {
  if (!machines.has(ghost)) return;
  say({ lost: ghost, why });
  await shut(ghost);
}

// Messages wait in the port until somebody listens.
await initAsync();
function take(message: ToThread): void {
  open += 1;
  const answered = (by: FromThread) => {
    open -= 1;
    say(by);
  };
  answer(message).then(answered, (error: unknown) => {
    if (isPanic(error)) {
      // What was answered before is no part of it.
      outbox.flush();
      throw error;
    }
    const kind = kindOf(error);
    if (message.do === "call" && (kind === "fence_lost" || kind === "database_unavailable")) {
      void dropFailed(message.ghost, kind);
    }
    answered({ id: message.id, error: kind });
  });
}
parentPort?.on("message", (messages: readonly ToThread[]) => messages.forEach(take));
