// Loaded before the bridge's program (`node --import`), in each of its threads: the bridge as it is, but for the methods at
// which a failpoint is (failpoints.ts). The program gets its ledger from here.
// Invariant: nothing of what the methods do is changed, apart from what a failpoint declares.
import { registerHooks } from "node:module";
import { isMainThread } from "node:worker_threads";
import type { GhostMachine } from "../../src/bridge/crypto/machine.ts";
import type { StoreWriter } from "../../src/bridge/crypto/store-writer.ts";
import * as real from "../../src/bridge/ledger/ledger.ts";
import { ArmedKills, KILLS_FOLDER, killing } from "../support/failpoints.ts";

const LEDGER = new URL("../../src/bridge/ledger/ledger.ts", import.meta.url).href;

const kills = new ArmedKills(process.env[KILLS_FOLDER] ?? "");

export const createLedger: typeof real.createLedger = (...args) => {
  const ledger = real.createLedger(...args);
  const parts = ["intake", "delegations", "statuses", "envelopes"] as const;
  for (const part of parts) killing(ledger[part], part, kills);
  return ledger;
};

if (isMainThread) {
  const { Homeserver } = await import("../../src/bridge/matrix/homeserver.ts");
  killing(Homeserver.prototype, "homeserver", kills);
  registerHooks({
    resolve: (specifier, context, next) => {
      const found = next(specifier, context);
      return found.url === LEDGER ? { ...found, url: import.meta.url } : found;
    },
  });
} else {
  const { GhostMachine } = await import("../../src/bridge/crypto/machine.ts");
  const { StoreWriter } = await import("../../src/bridge/crypto/store-writer.ts");
  killWhereKeysAreWritten(GhostMachine.prototype, StoreWriter.prototype);
}

/** Of all writes those count that are made while a machine takes encrypted to-device messages in. */
function killWhereKeysAreWritten(
  machine: Pick<GhostMachine, "receive">,
  writer: Pick<StoreWriter, "write">,
): void {
  const { receive } = machine;
  const { write } = writer;
  const killed = killing({ write }, "stores", kills).write;
  let receiving = 0;
  machine.receive = async function (this: GhostMachine, changes) {
    const bringsKeys = changes.toDevice.some((message) => message["type"] === "m.room.encrypted");
    if (bringsKeys) receiving += 1;
    try {
      return await receive.call(this, changes);
    } finally {
      if (bringsKeys) receiving -= 1;
    }
  };
  writer.write = function (this: StoreWriter, holder, records) {
    return (receiving > 0 && records.length > 0 ? killed : write).call(this, holder, records);
  };
}
