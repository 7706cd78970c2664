// The real side of a run: three rooms, two agents and two senders, the ledger on a database, the workers' claims, an agent
// that remembers what it was asked, and a homeserver that remembers what it was sent. And one call: made on the real ledger,
// then on the model, then compared.
// Invariants: after each call every table is read in one statement and compared with the model, in a shape that holds all
// that a caller can observe, and nothing that only an implementation has; an agent gets a message once, unless its worker has
// looked for the task first; a claim that was lost stays among the claims, so that its holder can still try to write.

import assert from "node:assert/strict";
import type { Pool } from "pg";
import type { DelegationOutcome } from "../../../../../src/bridge/ledger/delegation-transitions.ts";
import type { ClaimedIntakeEnvelope } from "../../../../../src/bridge/ledger/envelopes.ts";
import type { ClaimedDelegation } from "../../../../../src/bridge/ledger/leases.ts";
import type { ClaimedNotice } from "../../../../../src/bridge/ledger/notices.ts";
import { createOperations } from "../../../../../src/bridge/ledger/operator-commands.ts";
import type { ClaimedStatus } from "../../../../../src/bridge/ledger/status-messages.ts";
import type {
  EventId,
  GhostMxid,
  RoomId,
  TransactionId,
  UserId,
} from "../../../../../src/domain/identifiers.ts";
import {
  BUCKET,
  ghost,
  LEASE_MS,
  ledgerOn,
  NOTICE_INTERVAL_MS,
  room,
  T0,
} from "../../../../support/ledger.ts";
import { type Fault, FaultyPool, type Planted } from "./faulty-pool.ts";
import type { LedgerModel } from "./model.ts";
import { type Arrival, type Claim, isDelegation, isOpen, keyOf, type Notice, type Send } from "./rows.ts";

const ms = (column: string) => `(extract(epoch FROM ${column}) * 1000)::float8`;
const array = (select: string) => `(SELECT coalesce(json_agg(x), '[]') FROM (${select}) x)`;

// A room's line: what is open behind its head's place. A head that ended while it waited is stepped over by a claim.
const READ = `SELECT json_build_object(
  'delegations', ${array(`
    SELECT matrix_event_id || ' ' || ghost_mxid AS key, state, terminal_reason AS reason, ${ms("terminal_at")} AS "endedAt",
      lease_holder AS holder, ${ms("lease_until")} AS "leaseUntil", fence, ${ms("due_at")} AS "dueAt",
      ${ms("tried_at")} AS "triedAt", attempts, prompt IS NOT NULL AS "hasPrompt", answer_event_id AS "answerEvent",
      options IS NOT NULL AS "hasOptions", asked, a2a_task_id AS task, a2a_attempted AS attempted,
      a2a_unsettled AS unsettled, input_until IS NOT NULL AS "isAwaited", cancel_reason AS cancel,
      ${array(`SELECT purpose, ordinal, state, first_attempted_at IS NOT NULL AS attempted, content IS NOT NULL AS "hasContent"
        FROM bridge_sends s WHERE s.delegation_id = d.id AND s.purpose <> 'progress' ORDER BY s.id`)} AS sends
    FROM bridge_delegations d ORDER BY matrix_event_id, ghost_mxid`)},
  'envelopes', ${array(`
    SELECT matrix_event_id AS event, state, terminal_reason AS reason, ${ms("terminal_at")} AS "endedAt",
      holder IS NOT NULL AS "isHeld", ${ms("due_at")} AS "dueAt",
      CASE WHEN state = 'awaiting_key' THEN ${ms("woken_at")} END AS "wokenAt", fence, attempts, jobs
    FROM bridge_encrypted_intake ORDER BY matrix_event_id`)},
  'rooms', ${array(`
    SELECT r.room_id AS room, r.open_count AS open, r.keys_missing_at IS NOT NULL AS "keysMissing",
      r.head_at IS NOT NULL AND ${ms("r.head_at")} <= $1 AS "isDue",
      (SELECT ${ms("r.head_at")} FROM bridge_delegations d WHERE d.room_id = r.room_id AND d.room_seq = r.head_seq
         AND d.room_ordinal = r.head_ordinal AND d.terminal_at IS NOT NULL) AS "steppedOverAt",
      ARRAY(SELECT name FROM (
        SELECT d.matrix_event_id || ' ' || d.ghost_mxid AS name, d.room_seq AS seq, d.room_ordinal AS ordinal
        FROM bridge_delegations d WHERE d.room_id = r.room_id AND d.terminal_at IS NULL
          AND (d.room_seq, d.room_ordinal) >= (r.head_seq, r.head_ordinal)
        UNION ALL SELECT e.matrix_event_id, e.room_seq, 0
        FROM bridge_encrypted_intake e WHERE e.room_id = r.room_id AND e.state = 'awaiting_key' AND e.room_seq >= r.head_seq
      ) line ORDER BY seq, ordinal) AS line
    FROM bridge_rooms r ORDER BY r.room_id`)},
  'notices', ${array(`
    SELECT kind, room_id AS room, ghost_mxid AS ghost, source_event_id AS source, reason,
      ${ms("created_at")} AS "createdAt", state, ${ms("due_at")} AS "dueAt",
      holder IS NOT NULL AS "isHeld", fence, attempts
    FROM bridge_notices ORDER BY id`)},
  'statuses', ${array(`
    SELECT d.matrix_event_id || ' ' || d.ghost_mxid AS key, s.event_id AS event, ${ms("s.due_at")} AS "dueAt",
      s.holder IS NOT NULL AS "isHeld", s.fence
    FROM bridge_statuses s JOIN bridge_delegations d ON d.id = s.delegation_id ORDER BY 1`)},
  'audit', ARRAY(SELECT concat_ws(' ', record->>'event_id', COALESCE(record->'target'->>'ghost', '-'), record->>'outcome',
      record->>'terminal_reason') FROM bridge_audit ORDER BY 1),
  'handled', (SELECT count(*) FROM bridge_handled_events),
  'bound', (SELECT counted_open + admitted - counted_at_admitted FROM bridge_capacity),
  'ids', (SELECT json_object_agg(matrix_event_id || ' ' || ghost_mxid, id::text) FROM bridge_delegations),
  'noticeIds', ARRAY(SELECT n.id::text FROM bridge_notices n ORDER BY n.id)
) AS tables`;

export interface Tables {
  readonly delegations: readonly { readonly key: string; readonly fence: number }[];
  readonly envelopes: readonly { readonly event: string; readonly fence: number }[];
  readonly notices: readonly { readonly fence: number }[];
  readonly statuses: readonly { readonly key: string; readonly fence: number }[];
  readonly rooms: readonly {
    readonly room: string;
    readonly open: number;
    readonly keysMissing: boolean;
    readonly isDue: boolean;
    /** When a claim may step over the head, because it ended while it waited. */
    readonly steppedOverAt?: number | null;
    readonly line: readonly string[];
  }[];
  readonly audit: readonly string[];
  readonly handled: number;
  /** The upper bound of what is open, which refuses nothing before it was counted anew. */
  readonly bound: number;
  /** IDs of delegations by event and ghost. */
  readonly ids: Readonly<Record<string, string>> | null;
  /** IDs of notices, in their order. */
  readonly noticeIds: readonly string[];
}

export async function readTables(pool: Pool, now: number): Promise<Tables> {
  const { rows } = await pool.query<{ tables: Tables }>({ name: "read_tables", text: READ, values: [now] });
  return (rows[0] as { tables: Tables }).tables;
}

const by =
  <T>(key: (one: T) => string) =>
  (left: T, right: T) =>
    key(left) < key(right) ? -1 : 1;

/** The tables as the model expects them. */
export function expectedTables(model: LedgerModel, now: number): Omit<Tables, "bound" | "ids" | "noticeIds"> {
  const delegations = [...model.delegations.values()].map(
    ({
      event: _event,
      ghost: _ghost,
      room: _room,
      sender: _sender,
      agent: _agent,
      admittedAt: _at,
      endedInLine: _in,
      ...one
    }) => one,
  );
  const envelopes = [...model.envelopes.values()].map(
    ({ room: _room, sender: _sender, admittedAt: _at, deadline: _deadline, ...one }) => ({
      ...one,
      wokenAt: isOpen(one) ? one.wokenAt : null,
    }),
  );
  const rooms = [...model.rooms].map(([room, { line, turnAt, keysMissing }]) => ({
    room,
    open: model.openIn((one) => one.room === room),
    keysMissing,
    isDue: line[0] !== undefined && isDelegation(line[0]) && turnAt <= now,
    line: line.map((one) => (isDelegation(one) ? one.key : one.event)),
  }));
  return {
    delegations: delegations.sort(by(({ key }) => key)),
    envelopes: envelopes.sort(by(({ event }) => event)),
    rooms: rooms.sort(by(({ room }) => room)),
    notices: model.notices,
    statuses: [...model.statuses.values()].sort(by(({ key }) => key)),
    audit: [...model.audit].sort(),
    handled: model.handled.size,
  };
}

/**
 * A head that leaves at the end of its room's gate may give the turn to one that has ended meanwhile. What comes then waits
 * for the same time, because the head is stepped over at that time.
 */
function adoptGates(tables: Tables, model: LedgerModel, now: number): void {
  for (const { room: name, steppedOverAt } of tables.rooms) {
    const room = model.rooms.get(name);
    if (room === undefined || typeof steppedOverAt !== "number" || steppedOverAt <= now) continue;
    assert.ok(steppedOverAt <= now + model.gateMs, `the head of ${name} ended, and is stepped over too late`);
    room.turnAt = Math.max(room.turnAt, steppedOverAt);
  }
}

/** @throws AssertionError that shows in what the tables differ from the model */
export function assertSame(tables: Tables, model: LedgerModel, now: number): void {
  adoptGates(tables, model, now);
  const { bound, ids: _ids, noticeIds: _noticeIds, ...found } = tables;
  // A head that ended while it waited, with nothing open behind it, leaves its room due; a claim finds nothing there.
  const rooms = found.rooms.map(({ steppedOverAt: _at, ...room }) => ({
    ...room,
    isDue: room.isDue && room.line[0]?.includes(" ") === true,
  }));
  assert.deepEqual({ ...found, rooms }, expectedTables(model, now));
  const open = model.openIn(() => true);
  assert.ok(bound >= open, `${open} are open, but their upper bound is ${bound}`);
}

/** An event that the homeserver has. */
interface SentEvent {
  readonly event: EventId;
  readonly transaction: TransactionId;
  readonly room: RoomId;
  readonly ghost: GhostMxid;
  readonly send: Send;
}

const CLEAR = `DELETE FROM bridge_statuses; DELETE FROM bridge_sends; DELETE FROM bridge_delegations;
  DELETE FROM bridge_encrypted_intake; DELETE FROM bridge_rooms; DELETE FROM bridge_audit; DELETE FROM bridge_notices;
  DELETE FROM bridge_handled_events; DELETE FROM bridge_limiter; DELETE FROM bridge_ghost_rooms;
  UPDATE bridge_capacity SET admitted = 0, counted_open = 0, counted_at_admitted = 0`;

export class World {
  now = T0;
  readonly model: LedgerModel;
  readonly ledger: ReturnType<typeof ledgerOn>["ledger"];
  readonly admit: ReturnType<typeof ledgerOn>["admit"];
  readonly claim: ReturnType<typeof ledgerOn>["claim"];
  readonly operations: ReturnType<typeof createOperations>;
  readonly claims: ClaimedDelegation[] = [];
  readonly envelopes: ClaimedIntakeEnvelope[] = [];
  readonly notices: { readonly claimed: ClaimedNotice; readonly notice: Notice }[] = [];
  readonly statuses: {
    readonly claimed: ClaimedStatus;
    readonly key: string;
    isAttempted?: boolean;
  }[] = [];
  readonly transactions: (readonly Arrival[])[] = [];
  readonly answers: { readonly key: string; readonly event: string }[] = [];
  readonly sent = new Map<string, SentEvent>();
  tables: Tables | undefined;
  readonly #pool: Pool;
  readonly #faults: FaultyPool;
  /** Messages that the agent got, and the claims under which it was called. */
  readonly #messages = new Set<string>();
  readonly #called = new Set<ClaimedDelegation>();
  #names = 0;

  constructor(pool: Pool, model: LedgerModel, gateMs: number, planted?: Planted) {
    this.model = model;
    this.#pool = pool;
    this.#faults = new FaultyPool(pool, planted);
    const fixture = ledgerOn(this.#faults.pool, gateMs);
    this.ledger = fixture.ledger;
    this.admit = fixture.admit;
    this.claim = fixture.claim;
    this.operations = createOperations(this.#faults.pool, NOTICE_INTERVAL_MS);
  }

  /** Empties the tables. @param rooms those in which `speaker` is joined */
  async clear(rooms: readonly string[], speaker: string): Promise<void> {
    await this.#pool.query(CLEAR);
    await this.#pool.query(
      "INSERT INTO bridge_ghost_rooms (room_id, ghost_mxid, membership) SELECT unnest($1::text[]), $2, 'join'",
      [rooms, speaker],
    );
  }

  /** The name of the next event. */
  name(): string {
    this.#names += 1;
    return `e${this.#names}`;
  }

  id(key: string): string {
    return this.tables?.ids?.[key] ?? "0";
  }

  async compare(): Promise<Tables> {
    this.tables = await readTables(this.#pool, this.now);
    assertSame(this.tables, this.model, this.now);
    return this.tables;
  }

  async read(): Promise<Tables> {
    return await readTables(this.#pool, this.now);
  }

  /**
   * Makes a call that may fail at a statement.
   * @returns its result or `lost`, and how the fault ended it
   */
  async attempt<T>(
    fault: Fault | undefined,
    call: () => Promise<T>,
  ): Promise<{ readonly value?: T | "lost"; readonly fired: Fault["kind"] | undefined }> {
    this.#faults.arm(fault);
    let failure: unknown;
    let value: T | "lost" | undefined;
    try {
      value = await call();
    } catch (error) {
      if ((error as { code?: string }).code === "lease_lost") value = "lost";
      else failure = error;
    }
    const fired = await this.#faults.disarm();
    if (fired === undefined && failure !== undefined) throw failure;
    return fired === undefined ? { value: value as T | "lost", fired } : { fired };
  }

  /**
   * Makes a call and the model's transition; both must have the same result. A call that was rolled back changes nothing,
   * and of one in doubt nobody knows the result.
   * @returns the result; undefined when the caller did not get it
   */
  async perform<T>(
    fault: Fault | undefined,
    call: () => Promise<T>,
    transition: () => T | "lost",
  ): Promise<T | "lost" | undefined> {
    const { value, fired } = await this.attempt(fault, call);
    if (fired === "rolled_back") return undefined;
    const expected = transition();
    if (fired === "in_doubt") return undefined;
    assert.deepEqual(value, expected);
    return value;
  }

  /** The agent is called: one that may have the message is asked for its task first. */
  callAgent(claimed: ClaimedDelegation): string {
    const { a2aMessageId: message, a2aUnsettled, a2aTaskId } = claimed;
    const isSearched = a2aUnsettled || this.#called.has(claimed);
    assert.ok(isSearched || !this.#messages.has(message), `the agent gets ${message} twice`);
    this.#messages.add(message);
    this.#called.add(claimed);
    return a2aTaskId ?? `task ${message}`;
  }

  /** Whether a worker knows that the agent has nothing of what it holds. */
  isUndelivered(claimed: ClaimedDelegation): boolean {
    return !claimed.a2aUnsettled && !this.#called.has(claimed);
  }
}

export const claimOf = ({ lease, sourceEventId, ghost }: ClaimedDelegation): Claim => ({
  key: keyOf(sourceEventId, ghost),
  holder: lease.holder,
  fence: Number(lease.fence),
});

export const envelopeClaim = ({ event, fence }: ClaimedIntakeEnvelope): Claim => ({
  key: event,
  holder: "",
  fence: Number(fence),
});

export const ROOMS = ["r0", "r1", "r2"].map(room);
export const GHOSTS = ["docs", "math"].map((name) => ghost(name));
export const SENDERS = ["@alice:a.test", "@bob:b.test", "@carol:a.test"] as UserId[];
export const KEY_WAIT_MS = 9 * LEASE_MS;
export const MANY = { ...BUCKET, burst: 99_999 };

export const ended = (
  state: DelegationOutcome["state"],
  stage: DelegationOutcome["stage"],
  reason: DelegationOutcome["reason"],
  notice?: DelegationOutcome["notice"],
) => ({
  ...{ state, stage, reason },
  ...(notice === undefined ? {} : { notice }),
});
export const OUTCOMES = {
  failed: ended("failed", "dispatch", "agent_failed", "delegation_failed"),
  refused: ended("denied", "limiter", "rate_limited", "rate_limited"),
  canceled: ended("canceled", "dispatch", "source_redacted"),
  late: ended("failed", "follow", "answer_deadline_exceeded", "delegation_failed"),
  unasked: ended("failed", "follow", "input_wait_elapsed", "delegation_failed"),
} satisfies Record<string, DelegationOutcome>;

export const LIMITS = {
  roomQueue: 3,
  globalQueue: 6,
  serverQueue: 5,
  agentQueue: 5,
  agentReserve: 1,
  roomEnvelopes: 2,
  senderEnvelopes: 2,
  serverEnvelopes: 3,
  globalEnvelopes: 4,
};

/** Of a list, one of the newest. */
export const recent = <T>(all: readonly T[], which: number): T | undefined =>
  all[all.length - 1 - (which % all.length)];
