// A delegation worker in a process of its own, on the ledger of a test, that can be killed at a failpoint. It may admit
// events first. Its homeserver is the test's: it answers a POST of an event with the event's ID.
// Argument: ConversationProcess as JSON.
import { pino } from "pino";
import { createAgentHttp } from "../../src/bridge/delegation/a2a/http.ts";
import { createTokenSource } from "../../src/bridge/delegation/a2a/tokens.ts";
import { DelegationWorker } from "../../src/bridge/delegation/worker.ts";
import { ContentKeys } from "../../src/bridge/ledger/content-keys.ts";
import { createLedger } from "../../src/bridge/ledger/ledger.ts";
import { createLedgerPool } from "../../src/bridge/ledger/postgres.ts";
import { CATALOGUES } from "../../src/bridge/texts/catalogue.ts";
import { systemClock, systemRandom } from "../../src/domain/clock.ts";
import type { EventId } from "../../src/domain/identifiers.ts";
import { namedTarget } from "./agents.ts";
import { conversation } from "./conversation.ts";
import { cardOf, LIMITS, RecordedMetrics } from "./delegation.ts";
import { type Failpoint, killing } from "./failpoints.ts";
import { ROOM_GATE_MS } from "./ledger.ts";

export interface ConversationProcess {
  readonly databaseUrl: string;
  readonly agentUrl: string;
  readonly dedupes: boolean;
  readonly homeserverUrl: string;
  readonly failpoint?: Failpoint;
  readonly admit?: readonly object[];
}

/** How long another process waits for a dead one's delegations. */
const LEASE_MS = 3_000;

const options = JSON.parse(process.argv[2] ?? "") as ConversationProcess;
const pool = createLedgerPool({ connectionString: options.databaseUrl, max: 4 });
const ledger = createLedger(pool, ContentKeys.parse(Buffer.alloc(32, 7).toString("base64")), {
  noticeIntervalMs: 600_000,
  roomGateMs: ROOM_GATE_MS,
  isGhost: (user) => user.startsWith("@agent_"),
});
const target = namedTarget("docs");
const card = cardOf(options.agentUrl, { dedupes: options.dedupes });
const allowedOrigins = card.supportedInterfaces.map(({ url }) => new URL(url).origin);
const directory = {
  current: async () => ({
    byGhost: new Map([[target.ghost, { ...target, entry: { ...target.entry, allowedOrigins } }]]),
    partnerGhosts: [],
    revision: 1,
  }),
  onChange: () => () => {},
  close: async () => {},
};
if (options.admit !== undefined) {
  const intake = killing(ledger.intake, options.failpoint);
  await conversation({ ledger: { ...ledger, intake }, directory, clock: systemClock }).events(
    ...options.admit,
  );
}
const http = createAgentHttp();
const worker = new DelegationWorker({
  ledger: killing(ledger.delegations, options.failpoint),
  directory,
  trust: { check: async () => ({ trust: "verified", card, agentVersion: "1.0.0" }) },
  tokens: createTokenSource({ http, clock: systemClock, baseDirectory: "/nonexistent", observe: () => {} }),
  http,
  sender: {
    send: async (send) => {
      await ledger.delegations.recordAttempt(send.sendId, systemClock.now());
      const response = await fetch(options.homeserverUrl, { method: "POST", body: JSON.stringify(send) });
      return { kind: "sent", eventId: (await response.text()) as EventId };
    },
  },
  textsOf: () => CATALOGUES.en,
  clock: systemClock,
  random: systemRandom,
  log: pino({ level: "silent" }),
  metrics: new RecordedMetrics(),
  limits: { ...LIMITS, lease: LEASE_MS },
  holder: String(process.pid),
});
worker.start();
