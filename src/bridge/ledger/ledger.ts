// The ledger: every table of the bridge's database, one object a concern, apart from crypto-stores.ts and processes.ts.
// Invariants: each method is one statement or one short transaction, and makes no remote call; every write of a lease
// holder carries the fence in its WHERE, and rejects with DrawbridgeError `lease_lost` when it touches no row: the
// caller drops its work; times are milliseconds since the Unix epoch, passed in by the caller.
import type { Pool } from "pg";
import { createIntake } from "./admission.ts";
import type { LedgerSettings } from "./admission-types.ts";
import { createQuestions } from "./agent-questions.ts";
import { createAuditOutbox } from "./audit-outbox.ts";
import type { ContentKeys } from "./content-keys.ts";
import { createDatabaseMarker } from "./database-marker.ts";
import { createTransitions } from "./delegation-transitions.ts";
import { createEnvelopeDerivation } from "./envelope-derivation.ts";
import { createIntakeEnvelopes } from "./envelopes.ts";
import { createDeviceInbox, createGhosts, createReadPositions } from "./ghosts.ts";
import { createLeases } from "./leases.ts";
import { createMemberships } from "./memberships.ts";
import { createNotices } from "./notices.ts";
import { createGauges } from "./operator-commands.ts";
import { createReplies } from "./replies.ts";
import { createRetention } from "./retention.ts";
import { createReports, createStatuses } from "./status-messages.ts";
import { createTargets } from "./target-trust.ts";

export function createLedger(pool: Pool, keys: ContentKeys, options: Omit<LedgerSettings, "keys">) {
  const { noticeIntervalMs, roomGateMs } = options;
  const settings = { ...options, keys };
  const { intentOf, ...transitions } = createTransitions(pool, noticeIntervalMs);
  return {
    intake: createIntake(pool, settings, intentOf),
    delegations: {
      ...createLeases(pool, keys, roomGateMs),
      ...transitions,
      ...createReplies(pool, keys),
      ...createQuestions(pool, keys),
      ...createReports(pool, keys),
    },
    envelopes: {
      ...createIntakeEnvelopes(pool, roomGateMs, noticeIntervalMs),
      ...createEnvelopeDerivation(pool, settings),
    },
    notices: createNotices(pool),
    statuses: createStatuses(pool, keys),
    memberships: createMemberships(pool, settings),
    ghosts: createGhosts(pool),
    toDevicePositions: createReadPositions(pool, "to_device_since"),
    roomPositions: createReadPositions(pool, "rooms_since"),
    deviceInbox: createDeviceInbox(pool),
    targets: createTargets(pool),
    audit: createAuditOutbox(pool),
    retention: createRetention(pool),
    waiting: createGauges(pool),
    marker: createDatabaseMarker(pool),
  };
}

export type Ledger = ReturnType<typeof createLedger>;
export type DelegationLedger = Ledger["delegations"];
export type GhostLedger = Ledger["ghosts"];
export type AuditOutbox = Ledger["audit"];
