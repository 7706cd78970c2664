// A real ledger on a database of the test's own, and short ways to admit and claim delegations and intake envelopes, and to
// write and read records of cryptographic stores.
import assert from "node:assert/strict";
import type { TestContext } from "node:test";
import type { Pool } from "pg";
import { ALL_KEYS } from "../../src/bridge/crypto/idb-keys.ts";
import type { StoreHolder } from "../../src/bridge/crypto/store-writer.ts";
import type {
  Admission,
  Admitted,
  KnownFacts,
  NewDelegation,
  NewIntakeEnvelope,
} from "../../src/bridge/ledger/admission-types.ts";
import { ContentKeys } from "../../src/bridge/ledger/content-keys.ts";
import {
  type CryptoRecord,
  createCryptoStore,
  cryptoRecords,
  layOutCryptoStore,
} from "../../src/bridge/ledger/crypto-stores.ts";
import type { LimiterBucket } from "../../src/bridge/ledger/delegation-transitions.ts";
import type { Derivation } from "../../src/bridge/ledger/envelope-derivation.ts";
import type { ClaimedIntakeEnvelope } from "../../src/bridge/ledger/envelopes.ts";
import type { ClaimedDelegation } from "../../src/bridge/ledger/leases.ts";
import { createLedger, type Ledger } from "../../src/bridge/ledger/ledger.ts";
import { sha256 } from "../../src/domain/digest.ts";
import type { AgentId, EventId, GhostMxid, RoomId, UserId } from "../../src/domain/identifiers.ts";
import { testDatabase } from "./database.ts";

export const T0 = Date.UTC(2026, 0, 1);
export const LEASE_MS = 30_000;
export const ROOM_GATE_MS = 60_000;
export const room = (name: string) => `!${name}` as RoomId;
export const event = (name: string) => `$${name}` as EventId;
export const ghost = (name = "docs") => `@agent_${name}:a.test` as GhostMxid;
/** What an agent that has accepted returned. */
export const ACCEPTED = { taskId: "t", contextId: undefined, agentVersion: undefined };
export const PART = { eventType: "m.room.message", content: { msgtype: "m.text", body: "the answer" } };
export const BUCKET: LimiterBucket = { key: "docs", ratePerMinute: 60, burst: 100 };

export function job(name: string, options: Partial<NewDelegation> = {}): NewDelegation {
  return {
    position: 0,
    event: event(name),
    room: room("r"),
    ghost: ghost(),
    agent: "docs" as AgentId,
    targetFingerprint: "sha256:target",
    sender: "@alice:a.test" as UserId,
    originServerTs: T0,
    threadRoot: undefined,
    agentTurn: 1,
    prompt: `prompt of ${name}`,
    indexDigest: undefined,
    ...options,
  };
}

export interface LedgerFixture {
  readonly pool: Pool;
  readonly url: string;
  readonly ledger: Ledger;
  readonly delegations: Ledger["delegations"];
  /** Admits jobs as one transaction. */
  admit(jobs: readonly NewDelegation[], options?: Partial<Admission>): Promise<Admitted>;
  claim(options?: { holder?: string; limit?: number; now?: number }): Promise<ClaimedDelegation[]>;
  /** The first of the delegations that can be claimed; there must be one. */
  claimOne(options?: { holder?: string; limit?: number; now?: number }): Promise<ClaimedDelegation>;
  /** Rows of a query, for checking what is durable. */
  rows(sql: string, values?: unknown[]): Promise<Record<string, unknown>[]>;
}

export async function ledgerFixture(
  t: Pick<TestContext, "after">,
  poolSize = 10,
  roomGateMs: number = ROOM_GATE_MS,
): Promise<LedgerFixture> {
  const { pool, url } = await testDatabase(t, { poolSize });
  return { ...ledgerOn(pool, roomGateMs), url };
}

/** A ledger on a database that stands. */
export function ledgerOn(pool: Pool, roomGateMs: number): Omit<LedgerFixture, "url"> {
  const keys = ContentKeys.parse(Buffer.alloc(32, 7).toString("base64"));
  const ledger = createLedger(pool, keys, {
    noticeIntervalMs: NOTICE_INTERVAL_MS,
    roomGateMs,
    isGhost: (user) => user.startsWith("@agent_"),
  });
  const claim: LedgerFixture["claim"] = ({ holder = "one", limit = 10, now = T0 } = {}) =>
    ledger.delegations.claim({ holder, limit, now, leaseUntil: now + LEASE_MS });
  let transactions = 0;
  return {
    pool,
    ledger,
    delegations: ledger.delegations,
    admit: (jobs, options = {}) => {
      transactions += 1;
      return ledger.intake.admit({
        transactionId: `t${transactions}`,
        ingress: "transaction",
        receivedAt: T0,
        events: jobs,
        malformed: [],
        roomState: [],
        redacted: [],
        about: {
          rooms: [...new Set(jobs.map((one) => one.room))],
          related: [],
        },
        derive: (_known: KnownFacts) => ({
          delegations: jobs,
          answers: [],
          cancels: [],
          envelopes: [],
          notices: [],
        }),
        capacity: { roomQueue: 64, globalQueue: 4_096 },
        ...options,
      });
    },
    claim,
    claimOne: async (options) => {
      const [one] = await claim(options);
      assert.ok(one, "nothing can be claimed");
      return one;
    },
    rows: async (sql, values = []) => (await pool.query(sql, values)).rows,
  };
}

export const KEY_WAIT_MS = 15 * 60_000;
export const NOTICE_INTERVAL_MS = 600_000;

/** An encrypted event whose key is not here. */
export function envelope(name: string, options: Partial<NewIntakeEnvelope> = {}): NewIntakeEnvelope {
  return {
    position: 0,
    event: event(name),
    room: room("r"),
    sender: "@alice:a.test" as UserId,
    originServerTs: T0,
    fingerprint: sha256(name),
    edits: undefined,
    deadline: T0 + KEY_WAIT_MS,
    ...options,
  };
}

/** What a transaction brings, in its order. */
export function arrivals(
  ...arrived: readonly (NewDelegation | NewIntakeEnvelope)[]
): Pick<Admission, "about" | "derive" | "events"> {
  const placed = arrived.map((one, position) => ({ ...one, position }));
  const isJob = (one: NewDelegation | NewIntakeEnvelope): one is NewDelegation => "ghost" in one;
  return {
    events: arrived,
    about: {
      rooms: [...new Set(arrived.map((one) => one.room))],
      related: [],
    },
    derive: () => ({
      delegations: placed.filter(isJob),
      answers: [],
      cancels: [],
      envelopes: placed.filter((one): one is typeof one & NewIntakeEnvelope => !isJob(one)),
      notices: [],
    }),
  };
}

/** What a decrypted intake envelope turns out to ask. */
export function asking(
  { room: where }: Pick<ClaimedIntakeEnvelope, "room">,
  jobs: readonly NewDelegation[],
  capacity: Derivation["capacity"] = { roomQueue: 64, globalQueue: 4_096 },
): Derivation {
  return {
    about: { rooms: [where], related: [] },
    derive: () => ({ delegations: jobs, answers: [], cancels: [], envelopes: [], notices: [] }),
    capacity,
  };
}

/** Claims intake envelopes that are due. */
export function claimEnvelopes(
  ledger: Ledger,
  now: number = T0,
  limit: number = 100,
): Promise<ClaimedIntakeEnvelope[]> {
  return ledger.envelopes.claim({ limit, now, leaseUntil: now + LEASE_MS });
}

/** Claims everything due; the one of this event is handed over. */
export async function claimEnvelope(
  ledger: Ledger,
  name: string,
  now: number = T0,
): Promise<ClaimedIntakeEnvelope> {
  const claimed = await claimEnvelopes(ledger, now);
  const found = claimed.find((one) => one.event === event(name));
  if (found === undefined) throw new Error(`the intake envelope of ${event(name)} is not due`);
  return found;
}

/** A ghost is joined in a room, beside somebody to serve. */
export async function seat(fixture: LedgerFixture, where: RoomId = room("r"), who = ghost()): Promise<void> {
  await fixture.pool.query(
    "INSERT INTO bridge_ghost_rooms (room_id, ghost_mxid, membership) VALUES ($1, $2, 'join')",
    [where, who],
  );
}

export const IDENTITY = { curve25519: "C", ed25519: "E" };

/** A finished store without records. */
export async function finishedStore(pool: Pool, ghost: GhostMxid): Promise<StoreHolder> {
  const fence = await createCryptoStore(
    pool,
    { ghost, deviceId: "D", sealedKey: Buffer.from("sealed") },
    1_000,
  );
  if (fence === undefined) throw new Error("there is one already");
  await layOutCryptoStore(pool, { ghost, fence, records: [] }, { layout: [], identity: IDENTITY });
  return { ghost, fence };
}

/** A record of the object store `core`; without a value it is deleted. */
export const record = (key: string, value?: string, more: Partial<CryptoRecord> = {}): CryptoRecord => ({
  objectStore: "core",
  key: Buffer.from(key),
  value: value === undefined ? undefined : Buffer.from(value),
  indexKey: undefined,
  usedDay: undefined,
  ...more,
});

/** Keys and values of an object store. */
export async function stored(
  pool: Pool,
  ghost: GhostMxid,
  objectStore = "core",
): Promise<Record<string, string>> {
  const found = await cryptoRecords(pool, ghost, objectStore, "key", ALL_KEYS, 100_000);
  return Object.fromEntries(found.map(({ key, value }) => [key.toString(), String(value)]));
}

/** A pool of which each statement may be counted, and outside transactions held up or refused, before it reaches the database. */
export function interrupted(pool: Pool, before: (statement: string) => unknown): Pool {
  type Query = (statement: { readonly name: string } | string) => Promise<unknown>;
  const query: Query = async (statement) => {
    await before(typeof statement === "string" ? statement : statement.name);
    return await (pool.query as Query)(statement);
  };
  const connect = async () => {
    const client = await pool.connect();
    const counted: Query = (statement) => {
      before(typeof statement === "string" ? statement : statement.name);
      return (client.query as Query)(statement);
    };
    return new Proxy(client, { get: (of, key) => (key === "query" ? counted : Reflect.get(of, key)) });
  };
  return Object.assign(Object.create(pool), { query, connect }) as Pool;
}

/** How many deadlocks there were. The ledger repeats what lost in one, so that nothing else shows them. */
export async function deadlocks(pool: Pool): Promise<number> {
  const all = await Promise.all(Array.from({ length: pool.options.max }, () => pool.connect()));
  for (const client of all) await client.query("SELECT pg_stat_force_next_flush()");
  for (const client of all) client.release();
  const counted = "SELECT deadlocks::int AS n FROM pg_stat_database WHERE datname = current_database()";
  return (await pool.query<{ n: number }>(counted)).rows[0]?.n ?? Number.NaN;
}

/** For a transaction that a test leaves open while others wait for it, however slow the machine is. */
export const BEGIN_PATIENT = "BEGIN; SET LOCAL idle_in_transaction_session_timeout = 0";

/** Resolves when so many statements wait for a lock; rejects when the work that is to wait has ended instead. */
export async function untilWaiting(pool: Pool, statements: number, work: Promise<unknown>): Promise<void> {
  let isOver = false;
  const end = () => {
    isOver = true;
  };
  work.then(end, end);
  const text = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
  while ((await pool.query({ name: "waiting", text })).rowCount !== statements) {
    assert.ok(!isOver, "what is to wait for a lock has ended");
  }
}
