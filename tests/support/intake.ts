// The real intake over HTTP, on a real ledger: the homeserver's side is played by `put`.

import type { TestContext } from "node:test";
import { pino } from "pino";
import {
  createTransactionHandler,
  type EncryptedIntake,
  type HandledTransaction,
} from "../../src/bridge/intake/handle-transaction.ts";
import { createNamespace } from "../../src/bridge/intake/namespace.ts";
import { createIntakeServer } from "../../src/bridge/intake/server.ts";
import { createMetrics, intakeMetrics } from "../../src/bridge/metrics.ts";
import { type Clock, systemClock } from "../../src/domain/clock.ts";
import type { GhostMxid, ServerName } from "../../src/domain/identifiers.ts";
import { namedTarget } from "./agents.ts";
import { ghost, type LedgerFixture, ledgerFixture } from "./ledger.ts";

/** The ghosts of a partner's bridge. */
const PARTNER_GHOSTS = { server: "b.test", prefix: "agent_" };

export const HS_TOKEN = "the-homeserver-token";

export interface IntakeFixture extends LedgerFixture {
  readonly metrics: ReturnType<typeof createMetrics>;
  /** Lines the intake logged. */
  readonly logged: string[];
  readonly committed: HandledTransaction[];
  /** PUTs a transaction; `body` is sent as it is. */
  put(transactionId: string, body: string | Uint8Array, headers?: Record<string, string>): Promise<Response>;
  /** PUTs a list of events. */
  events(transactionId: string, ...events: unknown[]): Promise<Response>;
  readonly url: string;
  /** What the server, and a catchup, hands transactions to. */
  readonly handle: ReturnType<typeof createTransactionHandler>;
}

export async function intakeFixture(
  t: TestContext,
  options: {
    agents?: readonly string[];
    /** Of every agent; all of a.test when absent. */
    allowedSenders?: readonly string[];
    allowedServers?: readonly string[];
    bodyBytesMax?: number;
    room?: number;
    global?: number;
    encryption?: EncryptedIntake;
    clock?: Clock;
  } = {},
): Promise<IntakeFixture> {
  const base = await ledgerFixture(t);
  const clock = options.clock ?? systemClock;
  const byGhost = new Map(
    (options.agents ?? ["docs"]).map((name) => {
      const target = namedTarget(name);
      const allowedSenders = [...(options.allowedSenders ?? target.entry.allowedSenders)];
      const allowedServers = [...(options.allowedServers ?? target.entry.allowedServers)];
      return [
        ghost(name) as GhostMxid,
        { ...target, entry: { ...target.entry, allowedSenders, allowedServers } },
      ];
    }),
  );
  const metrics = createMetrics();
  const logged: string[] = [];
  const committed: HandledTransaction[] = [];
  const handle = createTransactionHandler({
    ledger: base.ledger,
    agents: {
      current: async () => ({ byGhost, partnerGhosts: [PARTNER_GHOSTS] }),
    },
    namespace: createNamespace({
      serverName: "a.test" as ServerName,
      ghostPrefix: "agent_",
      senderLocalpart: "drawbridge",
    }),
    clock,
    capacity: { roomQueue: options.room ?? 64, globalQueue: options.global ?? 4_096, roomEnvelopes: 64 },
    contextLifetimeMs: 86_400_000,
    encryption: options.encryption,
  });
  const server = createIntakeServer({
    hsToken: HS_TOKEN,
    bodyBytesMax: options.bodyBytesMax ?? 16 * 1024 * 1024,
    handle,
    onCommitted: (transaction) => committed.push(transaction),
    provideGhost: async (user) => byGhost.has(user as GhostMxid),
    observe: intakeMetrics(metrics),
    clock: systemClock,
    log: pino({ level: "debug" }, { write: (line: string) => logged.push(line) }),
  });
  const url = await server.listen({ host: "127.0.0.1", port: 0 });
  t.after(() => server.close());
  const put: IntakeFixture["put"] = (transactionId, body, headers = {}) =>
    fetch(`${url}/_matrix/app/v1/transactions/${encodeURIComponent(transactionId)}`, {
      method: "PUT",
      body: typeof body === "string" ? body : Buffer.from(body),
      headers: { authorization: `Bearer ${HS_TOKEN}`, "content-type": "application/json", ...headers },
    });
  return {
    ...base,
    metrics,
    logged,
    committed,
    url,
    handle,
    put,
    events: (transactionId, ...events) => put(transactionId, JSON.stringify({ events })),
  };
}

/** A message as a homeserver sends it, mentioning the ghost `docs`. */
export function question(
  id: string,
  changes: Record<string, unknown> = {},
  content: Record<string, unknown> = {},
) {
  return {
    type: "m.room.message",
    event_id: `$${id}`,
    room_id: "!r",
    sender: "@alice:a.test",
    origin_server_ts: 1_700_000_000_000,
    content: {
      msgtype: "m.text",
      body: `question ${id}`,
      "m.mentions": { user_ids: [ghost("docs")] },
      ...content,
    },
    ...changes,
  };
}

let memberships = 0;

/** A new membership event. */
export function member(user: string, membership: string, changes: Record<string, unknown> = {}, more = {}) {
  return {
    type: "m.room.member",
    event_id: `$membership-${++memberships}`,
    room_id: "!r",
    sender: user,
    state_key: user,
    origin_server_ts: 1_700_000_000_000,
    content: { membership, ...more },
    ...changes,
  };
}

/** The events that became delegations, in order. */
export async function jobs({ rows }: Pick<IntakeFixture, "rows">): Promise<unknown[]> {
  const admitted = await rows("SELECT matrix_event_id AS event FROM bridge_delegations ORDER BY id");
  return admitted.map(({ event }) => event);
}
