// The entry of a thread of machines, which has the library, a cache of records, and connections of its own.
// Invariants: an answer leaves this thread only when everything behind it is committed; a panic of the library ends the
// thread, because nothing that shares the library's memory can be trusted afterwards.
import { parentPort, workerData } from "node:worker_threads";
import { initAsync } from "@matrix-org/matrix-sdk-crypto-wasm";
import { systemClock } from "../../domain/clock.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import type { GhostMxid } from "../../domain/identifiers.ts";
import { ForeignStore, GhostMachine } from "./machine.ts";
import { createOutbox, type FromThread, type ThreadData, type ToThread } from "./machine-thread.ts";
import { isPanic } from "./olm-machine-adapter.ts";
import { createRecordCache } from "./store-records.ts";
import { createStorePool, StoreWriter } from "./store-writer.ts";

/** Longest that an answer waits to leave together with others. */
const HOLD_MS = 10;

const { databaseUrl, policy } = workerData as ThreadData;
const pool = createStorePool(databaseUrl, "drawbridge-machines");
const writer = new StoreWriter(pool, systemClock);
const stores = { pool, writer, cache: createRecordCache(), clock: systemClock };
const machines = new Map<GhostMxid, GhostMachine>();

const outbox = createOutbox<FromThread>(
  (messages) => parentPort?.postMessage(messages),
  (flush) => void systemClock.sleep(HOLD_MS).then(flush),
  (message) => {
    if ("id" in message) outbox.put({ id: message.id, error: "refused" });
  },
);
let unanswered = 0;
/** The last answer leaves at once, with those before it. */
const post = (message: FromThread) => {
  outbox.put(message);
  if (unanswered === 0) outbox.flush();
};

function kindOf(error: unknown) {
  if (error instanceof ForeignStore) return "foreign";
  if (!(error instanceof DrawbridgeError)) return "refused";
  if (error.code === "lease_lost") return "fence_lost";
  return error.code === "database_unavailable" ? "database_unavailable" : "refused";
}

async function shut(ghost: GhostMxid): Promise<void> {
  const machine = machines.get(ghost);
  machines.delete(ghost);
  await machine?.close();
}

async function answer(message: ToThread): Promise<FromThread> {
  const { id } = message;
  switch (message.do) {
    case "open": {
      await shut(message.store.ghost);
      const machine = await GhostMachine.open(message.store, policy, stores);
      machines.set(message.store.ghost, machine);
      return { id, result: machine.identity };
    }
    case "shut":
      return { id, result: await shut(message.ghost) };
    case "close":
      await Promise.all([...machines.keys()].map(shut));
      return { id, result: await pool.end() };
    case "call": {
      const machine = machines.get(message.ghost);
      if (machine === undefined) return { id, error: "not_open" };
      const method = machine[message.call] as (...args: unknown[]) => Promise<unknown>;
      return { id, result: await method.apply(machine, [...message.args]) };
    }
  }
}

/** A machine whose changes could not be committed is ahead of its store: it is opened anew from there. */
async function dropFailed(ghost: GhostMxid, why: ReturnType<typeof kindOf>): Promise<void> {
  if (!machines.has(ghost)) return;
  post({ lost: ghost, why });
  await shut(ghost);
}

// Messages wait in the port until somebody listens.
await initAsync();
function take(message: ToThread): void {
  unanswered += 1;
  const answered = (by: FromThread) => {
    unanswered -= 1;
    post(by);
  };
  answer(message).then(answered, (error: unknown) => {
    if (isPanic(error)) {
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
