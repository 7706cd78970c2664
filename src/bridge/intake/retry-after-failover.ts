// Has a transaction wait for a database that is away for a moment, such as during a failover. The homeserver would come
// again by itself, but ever more rarely, so that it waited much longer than the database is away.
// Invariants: only a failure that passes is waited for, and no try begins so late that it could outlast the homeserver's
// patience; a transaction is handled again as a whole, as it is when the homeserver repeats it.
import type { Clock } from "../../domain/clock.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { isPassing } from "../ledger/postgres-servers.ts";
import type { TransactionHandler } from "./handle-transaction.ts";

const AGAIN_MS = 100;
/** When the last try begins. Where a server hangs, a try takes some 25 s; Synapse gives a transaction up after a minute. */
const BEGIN_MS_MAX = 25_000;

/** Whether the database is away; a ghost's device throws only because its keys could not be committed. */
function mayPass(error: unknown): boolean {
  const isOfDevice = error instanceof DrawbridgeError && error.code === "device_unavailable";
  return isOfDevice || isPassing(error);
}

/** @param stop ends the wait: then the failure is thrown */
export function throughFailover(
  handle: TransactionHandler,
  clock: Clock,
  stop: AbortSignal,
): TransactionHandler {
  return async (...transaction) => {
    const until = clock.now() + BEGIN_MS_MAX;
    for (;;) {
      try {
        return await handle(...transaction);
      } catch (error) {
        if (!mayPass(error) || stop.aborted || clock.now() + AGAIN_MS > until) throw error;
        await clock.sleep(AGAIN_MS, stop).catch(() => undefined);
      }
    }
  };
}
