// The bridge's intake as a process of its own, so that its client does not share its core.
// Prints its URL, then serves until it is ended. Argument: the database's URL.

import { pino } from "pino";
import { createTransactionHandler } from "../../src/bridge/intake/handle-transaction.ts";
import { createNamespace } from "../../src/bridge/intake/namespace.ts";
import { createIntakeServer } from "../../src/bridge/intake/server.ts";
import { ContentKeys } from "../../src/bridge/ledger/content-keys.ts";
import { createLedger } from "../../src/bridge/ledger/ledger.ts";
import { createLedgerPool } from "../../src/bridge/ledger/postgres.ts";
import { createMetrics, intakeMetrics } from "../../src/bridge/metrics.ts";
import { systemClock } from "../../src/domain/clock.ts";
import type { ServerName } from "../../src/domain/identifiers.ts";
import { namedTarget } from "../../tests/support/agents.ts";

const pool = createLedgerPool({ connectionString: process.argv[2] ?? "", max: 4 });
const namespace = createNamespace({
  serverName: "a.test" as ServerName,
  ghostPrefix: "agent_",
  senderLocalpart: "drawbridge",
});
const ledger = createLedger(pool, ContentKeys.parse(Buffer.alloc(32, 1).toString("base64")), {
  noticeIntervalMs: 600_000,
  roomGateMs: 60_000,
  isGhost: namespace.isGhost,
});
const target = namedTarget("docs");
const byGhost = new Map([[target.ghost, target]]);
const unbounded = Number.MAX_SAFE_INTEGER;
const server = createIntakeServer({
  hsToken: "bench",
  bodyBytesMax: 16 * 1024 * 1024,
  handle: createTransactionHandler({
    ledger,
    agents: {
      current: async () => ({ byGhost, partnerGhosts: [] }),
    },
    namespace,
    clock: systemClock,
    capacity: { roomQueue: unbounded, globalQueue: unbounded },
    contextLifetimeMs: 86_400_000,
  }),
  onCommitted: () => {},
  provideGhost: async () => false,
  observe: intakeMetrics(createMetrics()),
  clock: systemClock,
  log: pino({ level: "warn" }),
});
process.stdout.write(`${await server.listen({ host: "127.0.0.1", port: 0 })}\n`);
