// A process with one ghost's machine that takes in to-device messages, one line each from standard input, and
// prints the number of each once its key is durable. Ended by SIGKILL in tests.
// Arguments: database URL, ghost, device.
import { createInterface } from "node:readline";
import { pino } from "pino";
import { Machines } from "../../../../src/bridge/crypto/machines.ts";
import { ContentKeys } from "../../../../src/bridge/ledger/content-keys.ts";
import { systemClock, systemRandom } from "../../../../src/domain/clock.ts";
import type { GhostMxid } from "../../../../src/domain/identifiers.ts";

const [databaseUrl = "", ghost = "", device = ""] = process.argv.slice(2);
const machines = new Machines({
  threads: 1,
  databaseUrl,
  storeKeys: ContentKeys.parse(Buffer.alloc(32, 1).toString("base64")),
  policy: { senderDevices: "allow_all", verifiedIdentities: [] },
  clock: systemClock,
  random: systemRandom,
  log: pino({ level: "silent" }),
  onLost: () => process.exit(1),
});
const opened = await machines.open(ghost as GhostMxid, device, "load");
process.stdout.write(`${JSON.stringify(opened)}\n`);
let count = 0;
for await (const line of createInterface({ input: process.stdin })) {
  const message = JSON.parse(line) as Record<string, unknown>;
  const number = count++;
  // Not awaited: several are under way when the process is killed.
  void machines
    .receive(ghost as GhostMxid, {
      toDevice: [message],
      changedUsers: [],
      leftUsers: [],
      oneTimeKeyCounts: undefined,
      unusedFallbackKeys: undefined,
    })
    .then(() => process.stdout.write(`${number}\n`));
}
