// What operators see of the work that waits, as lists and as gauges, and what they may do to it while bridges run.
// Invariants: no result holds content; the gauges read what is open by its indices, and nothing of what has ended; an action
// is one transaction and asserts the state that it needs; a retry only makes due what waits, and takes no lease away.
import type { Pool } from "pg";
import type { AgentId, EventId, GhostMxid, RoomId, UserId } from "../../domain/identifiers.ts";
import { cancelDelegations } from "./cancel-or-edit.ts";
import { expireUnheld } from "./envelopes.ts";
import { writeNotices } from "./notices.ts";
import { inRooms, inTransaction, statement, toTime } from "./postgres.ts";
import type { DelegationState, IntakeEnvelopeState, OpenState } from "./states.ts";

/** What a delegation or an intake envelope waits for; the help of `drawbridge delegation list` explains each. */
export type WaitsFor =
  | "nothing"
  | "its_turn"
  | "next_try"
  | "the_agent"
  | "the_asker"
  | "the_homeserver"
  | "its_key"
  | "a_bridge";

export interface OpenDelegation {
  readonly id: string;
  readonly event: EventId;
  readonly room: RoomId;
  readonly ghost: GhostMxid;
  readonly agent: AgentId;
  readonly sender: UserId;
  readonly state: DelegationState;
  readonly reason: string | undefined;
  readonly attempts: number;
  readonly lastReason: string | undefined;
  readonly admittedAt: number;
  /** When it came into its present state, or its first try began. */
  readonly since: number;
  readonly nextAt: number | undefined;
  readonly cancelRequested: boolean;
  readonly traceparent: string;
  readonly waitsFor: WaitsFor | undefined;
  /** The delegation (its ID) or the encrypted event at the head of its room. */
  readonly behind: string | undefined;
}

export interface OpenEnvelope {
  readonly event: EventId;
  readonly room: RoomId;
  readonly sender: UserId;
  readonly state: IntakeEnvelopeState;
  readonly reason: string | undefined;
  readonly attempts: number;
  readonly keyRequests: number;
  readonly since: number;
  readonly deadline: number;
  readonly nextAt: number | undefined;
  readonly holdsRoom: boolean;
  readonly waitsFor: WaitsFor | undefined;
}

interface WaitingRoom {
  readonly room: RoomId;
  readonly encrypted: boolean;
  readonly delegations: number;
  readonly envelopes: number;
  /** A delegation (its ID) or an encrypted event. */
  readonly head: string | undefined;
  /** Since when the oldest of it waits for what it waits for now. */
  readonly since: number | undefined;
}

const AT_HEAD = "d.room_seq = r.head_seq AND d.room_ordinal = r.head_ordinal";
const HEAD = `COALESCE(
    (SELECT e.matrix_event_id FROM bridge_encrypted_intake e
     WHERE e.room_id = r.room_id AND e.room_seq = r.head_seq AND e.state = 'awaiting_key'),
    (SELECT h.id::text FROM bridge_delegations h
     WHERE h.room_id = r.room_id AND h.room_seq = r.head_seq AND h.room_ordinal = r.head_ordinal))`;

/** A question of its agent could not be posted yet, and nobody has answered a part of it. */
const UNPOSTED = `(d.state = 'awaiting_input' AND d.prompt IS NULL AND EXISTS (SELECT FROM bridge_sends s
      WHERE s.delegation_id = d.id AND s.purpose = 'question' AND s.state = 'pending'))`;

const delegationsWhere = (name: string, where: string) => statement<DelegationRow>(name)`
  SELECT d.id, d.matrix_event_id AS event, d.room_id AS room, d.ghost_mxid AS ghost, d.agent_id AS agent,
    d.sender_mxid AS sender, d.state, d.terminal_reason AS reason, d.attempts, d.retry_reason AS "lastReason",
    d.admitted_at AS "admittedAt", d.traceparent, d.cancel_requested_at IS NOT NULL AS "cancelRequested",
    COALESCE(d.terminal_at, d.waiting_since, d.tried_at, d.admitted_at) AS since,
    ${UNPOSTED} AS "isUnposted",
    COALESCE(d.due_at, CASE WHEN d.terminal_at IS NULL AND ${AT_HEAD} THEN r.head_at END) AS "nextAt",
    d.lease_until AS "leaseUntil",
    CASE WHEN d.terminal_at IS NULL AND d.due_at IS NULL AND NOT (${AT_HEAD}) THEN ${HEAD} END AS behind
  FROM bridge_delegations d LEFT JOIN bridge_rooms r ON r.room_id = d.room_id
  WHERE ${where} ORDER BY d.admitted_at, d.id`;
const DELEGATION = delegationsWhere("show_delegation", "d.id = $1");
const OPEN_DELEGATIONS = delegationsWhere(
  "list_delegations",
  "d.terminal_at IS NULL AND ($1::text IS NULL OR d.room_id = $1)",
);

const envelopesWhere = (name: string, where: string) => statement<Omit<OpenEnvelope, "waitsFor">>(name)`
  SELECT e.matrix_event_id AS event, e.room_id AS room, e.sender_mxid AS sender, e.state, e.terminal_reason AS reason,
    e.attempts, e.key_requests AS "keyRequests", COALESCE(e.terminal_at, e.admitted_at) AS since, e.deadline,
    CASE WHEN e.holder IS NULL THEN e.due_at END AS "nextAt",
    e.state = 'awaiting_key' AND e.room_seq IS NOT NULL AS "holdsRoom"
  FROM bridge_encrypted_intake e WHERE ${where} ORDER BY e.admitted_at, e.matrix_event_id`;
const ENVELOPE = envelopesWhere("show_envelope", "e.matrix_event_id = $1");
const OPEN_ENVELOPES = envelopesWhere(
  "list_envelopes",
  "e.state = 'awaiting_key' AND ($1::text IS NULL OR e.room_id = $1)",
);

const ROOMS = statement<WaitingRoom>("list_rooms")`
  WITH open AS (
    SELECT room_id, 1 AS delegation, COALESCE(waiting_since, tried_at, admitted_at) AS since FROM bridge_delegations
    WHERE terminal_at IS NULL AND ($1::text IS NULL OR room_id = $1)
    UNION ALL SELECT room_id, 0, admitted_at AS since FROM bridge_encrypted_intake
    WHERE state = 'awaiting_key' AND ($1::text IS NULL OR room_id = $1)
  )
  SELECT r.room_id AS room, r.encrypted, sum(o.delegation)::int AS delegations,
    (count(*) - sum(o.delegation))::int AS envelopes, ${HEAD} AS head, min(o.since) AS since
  FROM open o JOIN bridge_rooms r ON r.room_id = o.room_id
  GROUP BY r.room_id ORDER BY min(o.since)`;

// A new deadline begins with the next try. What a bridge holds now is left alone.
const RETRY_DELEGATION = statement("retry_delegation")`
  WITH again AS (
    UPDATE bridge_delegations d SET
      input_until = CASE WHEN ${UNPOSTED} THEN input_until + ($2 - waiting_since) ELSE input_until END,
      waiting_since = CASE WHEN ${UNPOSTED} THEN $2::timestamptz ELSE waiting_since END,
      attempts = 0, tried_at = CASE WHEN state IN ('queued', 'dispatching') THEN NULL ELSE tried_at END,
      reply_at = CASE WHEN reply_at IS NULL THEN NULL ELSE $2::timestamptz END,
      due_at = CASE WHEN due_at IS NULL THEN NULL ELSE $2::timestamptz END
    WHERE id = $1 AND terminal_at IS NULL AND (lease_until IS NULL OR lease_until <= $2)
    RETURNING room_id, room_seq, room_ordinal
  ), heads AS (
    UPDATE bridge_rooms r SET head_at = $2 FROM again a
    WHERE r.room_id = a.room_id AND r.head_seq = a.room_seq AND r.head_ordinal = a.room_ordinal
      AND r.head_at IS NOT NULL
  )
  SELECT 1 FROM again`;

const RETRY_ENVELOPE = statement("retry_envelope")`
  UPDATE bridge_encrypted_intake SET due_at = $2
  WHERE matrix_event_id = $1 AND state = 'awaiting_key' AND holder IS NULL RETURNING 1`;

type DelegationRow = Omit<OpenDelegation, "waitsFor"> & {
  readonly leaseUntil: number | undefined;
  readonly isUnposted: boolean;
};

function waitsFor(row: DelegationRow, now: number): WaitsFor | undefined {
  if (row.reason !== undefined) return undefined;
  if (row.leaseUntil !== undefined && row.leaseUntil > now) return "nothing";
  if (row.behind !== undefined) return "its_turn";
  if (row.nextAt === undefined || row.nextAt <= now) return "a_bridge";
  if (row.state === "reply_pending") return "the_homeserver";
  if (row.state === "awaiting_input") return row.isUnposted ? "the_homeserver" : "the_asker";
  return row.state === "following" ? "the_agent" : "next_try";
}

export function createOperations(pool: Pool, noticeIntervalMs: number) {
  const delegations = async (query: typeof DELEGATION, values: readonly unknown[], now: number) =>
    (await query.rows(pool, values)).map((row): OpenDelegation => {
      const { leaseUntil: _until, isUnposted: _isUnposted, ...shown } = row;
      const waits = waitsFor(row, now);
      // While a bridge holds it that would be the end of its lease.
      return { ...shown, waitsFor: waits, nextAt: waits === "nothing" ? undefined : row.nextAt };
    });
  const envelopes = async (query: typeof ENVELOPE, values: readonly unknown[]) =>
    (await query.rows(pool, values)).map(
      (row): OpenEnvelope => ({
        ...row,
        waitsFor: row.state !== "awaiting_key" ? undefined : row.nextAt === undefined ? "nothing" : "its_key",
      }),
    );
  const delegation = async (id: string, now: number) => (await delegations(DELEGATION, [id], now))[0];
  const envelope = async (event: string) => (await envelopes(ENVELOPE, [event]))[0];
  return {
    delegations: (now: number, room?: string) => delegations(OPEN_DELEGATIONS, [room], now),
    delegation,
    envelopes: (room?: string) => envelopes(OPEN_ENVELOPES, [room]),
    envelope,
    rooms: (room?: string) => ROOMS.rows(pool, [room]),

    /** Cancels a delegation. `requested`: a bridge works on it, and will end it; undefined: it is not open. */
    async cancelDelegation(id: string, now: number): Promise<"ended" | "requested" | undefined> {
      return await inTransaction(pool, "BEGIN", async (client) => {
        const { marked, notices } = await cancelDelegations(client, "operator_canceled", [id], now);
        await writeNotices(client, notices, now, noticeIntervalMs);
        return { result: notices.length > 0 ? "ended" : marked.length > 0 ? "requested" : undefined };
      });
    },

    /** Makes a delegation due, with a new deadline; false when it is not open, or a bridge works on it. */
    retryDelegation: async (id: string, now: number) =>
      (await RETRY_DELEGATION.rows(pool, [id, toTime(now)])).length === 1,

    async cancelEnvelope(event: string, now: number): Promise<boolean> {
      const found = await envelope(event);
      if (found === undefined) return false;
      return await inRooms(pool, [found.room], async (client) => {
        const ended = await expireUnheld(client, [found.event], [found.room], "operator_canceled", now);
        return { result: ended === 1 };
      });
    },

    /** Has the key looked for now; false when the wait has ended, or a bridge works on it. */
    retryEnvelope: async (event: string, now: number) =>
      (await RETRY_ENVELOPE.rows(pool, [event, toTime(now)])).length === 1,
  };
}

export type Operations = ReturnType<typeof createOperations>;

export interface Waiting {
  readonly delegations: Readonly<Partial<Record<OpenState, number>>>;
  /** Since when the oldest question, or answer to one of an agent, waits to be accepted by its agent. */
  readonly oldestQuestionAt: number | undefined;
  /** Encrypted events without a key: which hold their rooms, whose rooms have continued, when the oldest came. */
  readonly envelopes: { readonly holding: number; readonly passed: number; readonly oldestAt: number | null };
  readonly oldestAuditAt: number | undefined;
  readonly quarantined: number;
}

const WAITING = statement<Waiting>("gauges")`
  WITH open AS MATERIALIZED (
    SELECT state, count(*)::int AS number, min(COALESCE(waiting_since, admitted_at)) AS oldest
    FROM bridge_delegations WHERE terminal_at IS NULL GROUP BY state
  )
  SELECT COALESCE((SELECT json_object_agg(state, number) FROM open), '{}') AS delegations,
    (SELECT min(oldest) FROM open WHERE state IN ('queued', 'dispatching')) AS "oldestQuestionAt",
    (SELECT json_build_object('holding', count(room_seq), 'passed', count(*) - count(room_seq),
       'oldestAt', (extract(epoch FROM min(admitted_at)) * 1000)::float8)
     FROM bridge_encrypted_intake WHERE state = 'awaiting_key') AS envelopes,
    (SELECT created_at FROM bridge_audit WHERE exported_at IS NULL ORDER BY id LIMIT 1) AS "oldestAuditAt",
    (SELECT count(*)::int FROM bridge_targets WHERE ghost_mxid = ANY ($1) AND trust = 'quarantined') AS quarantined`;

export const createGauges = (pool: Pool) => (ghosts: readonly GhostMxid[]) => WAITING.first(pool, [ghosts]);
