// One round of the queue of status messages in a process of its own, on the ledger of a test, which can be killed at a
// failpoint. Argument: StatusProcess as JSON.
import { pino } from "pino";
import { ContentKeys } from "../../src/bridge/ledger/content-keys.ts";
import { createLedger } from "../../src/bridge/ledger/ledger.ts";
import { createLedgerPool } from "../../src/bridge/ledger/postgres.ts";
import { createStatusQueue } from "../../src/bridge/statuses/queue.ts";
import { CATALOGUES } from "../../src/bridge/texts/catalogue.ts";
import { type Failpoint, killing } from "./failpoints.ts";
import { ghostSide } from "./ghosts.ts";
import { ROOM_GATE_MS } from "./ledger.ts";

export interface StatusProcess {
  readonly databaseUrl: string;
  readonly homeserverUrl: string;
  /** Milliseconds since the Unix epoch. */
  readonly now: number;
  readonly failpoint?: Failpoint;
}

const options = JSON.parse(process.argv[2] ?? "") as StatusProcess;
const pool = createLedgerPool({ connectionString: options.databaseUrl, max: 2 });
const ledger = createLedger(pool, ContentKeys.parse(Buffer.alloc(32, 7).toString("base64")), {
  noticeIntervalMs: 600_000,
  roomGateMs: ROOM_GATE_MS,
  isGhost: (user) => user.startsWith("@agent_"),
});
const closing: (() => unknown)[] = [];
const after = (close: () => unknown) => void closing.push(close);
const { homeserver, ghosts, clock } = ghostSide(
  { after } as Parameters<typeof ghostSide>[0],
  options.homeserverUrl,
  {
    now: options.now,
  },
);
const statuses = killing(ledger.statuses, options.failpoint);
await createStatusQueue({
  ...{ ledger: { ...ledger, statuses }, homeserver, ghosts, clock },
  ...{ log: pino({ level: "silent" }), textsOf: () => CATALOGUES.en },
  onError: (error) => {
    throw error;
  },
}).round();
for (const close of closing) await close();
await pool.end();
