// A process that opens one ghost's machine and prints how long that took and how much memory it has then; the benchmark
// of stores starts it anew for each measurement.
// Arguments: database URL, ghost, device, and another ghost, which is opened first.
import { memoryUsage } from "node:process";
import { pino } from "pino";
import { Machines } from "../../src/bridge/crypto/machines.ts";
import { ContentKeys } from "../../src/bridge/ledger/content-keys.ts";
import { systemClock, systemRandom } from "../../src/domain/clock.ts";
import type { GhostMxid } from "../../src/domain/identifiers.ts";

const [databaseUrl = "", ghost = "", device = "", first = ""] = process.argv.slice(2);
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
async function open(name: string): Promise<void> {
  const { kind } = await machines.open(name as GhostMxid, device, "load");
  if (kind !== "opened") throw new Error(kind);
}
// The thread has started, with the library in it, once it has answered.
await open(first);
const begun = performance.now();
await open(ghost);
const openMs = performance.now() - begun;
process.stdout.write(JSON.stringify({ openMs, residentMiB: memoryUsage.rss() / 1024 ** 2 }));
await machines.close();
