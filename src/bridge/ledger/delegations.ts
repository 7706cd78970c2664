// The transitions of a delegation after it was claimed. One statement each.
// Invariants: every one is fenced in its WHERE and asserts its row; what a transition implies (the room's
// next turn, freed capacity, cleared content, audit, notice) happens in the same statement.

import type { EventId, GhostMxid, RoomId, TransactionId } from "../../domain/identifiers.ts";
import { advanceRoom, HELD } from "./fragments.ts";
import { noticeBound } from "./notice-bound.ts";
import type { ContentKeys } from "./seal.ts";
import { assertHeld, leaseLost, oneRow, type Queryable, rows, type Statement, toTime } from "./statement.ts";
import type { SendPurpose } from "./states.ts";
import { noticeTransactionId, replyTransactionId } from "./transaction-ids.ts";
import type { Lease, LimiterBucket, Outcome, PendingSend, ReplyPart } from "./types.ts";

const held = (lease: Lease) => [lease.delegationId, lease.holder, lease.fence] as const;

const BEGIN_DISPATCH: Statement = {
  name: "begin_dispatch",
  text: `
  WITH held AS (
    SELECT d.id, d.a2a_attempted, d.cancel_requested_at IS NOT NULL AS canceled
    FROM bridge_delegations d WHERE ${HELD} AND d.state = 'dispatching' FOR UPDATE
  ), spent AS (
    INSERT INTO bridge_limiter AS b (bucket, tokens, refilled_at)
    SELECT $4, $6::float8 - 1, $7::timestamptz FROM held WHERE NOT a2a_attempted AND NOT canceled
    ON CONFLICT (bucket) DO UPDATE SET
      tokens = LEAST($6::float8, b.tokens + $5::float8
        * GREATEST(0, EXTRACT(EPOCH FROM $7::timestamptz - b.refilled_at)::float8) / 60) - 1,
      refilled_at = GREATEST(b.refilled_at, $7::timestamptz)
    WHERE LEAST($6::float8, b.tokens + $5::float8
        * GREATEST(0, EXTRACT(EPOCH FROM $7::timestamptz - b.refilled_at)::float8) / 60) >= 1
    RETURNING 1
  ), begun AS (
    UPDATE bridge_delegations d SET a2a_attempted = true, a2a_unsettled = true
    FROM held h WHERE d.id = h.id AND NOT h.canceled AND (h.a2a_attempted OR EXISTS (SELECT FROM spent))
    RETURNING 1
  )
  SELECT (SELECT count(*)::int FROM held) AS held,
         COALESCE((SELECT canceled FROM held), false) AS canceled,
         (SELECT count(*)::int FROM begun) AS begun`,
};

export async function beginDispatch(
  on: Queryable,
  lease: Lease,
  bucket: LimiterBucket,
  now: number,
): Promise<"begun" | "rate_limited" | "canceled"> {
  const row = await oneRow<{ held: number; canceled: boolean; begun: number }>(on, BEGIN_DISPATCH, [
    ...held(lease),
    bucket.key,
    bucket.ratePerMinute,
    bucket.burst,
    toTime(now),
  ]);
  assertHeld(row.held, lease);
  if (row.canceled) return "canceled";
  return row.begun === 1 ? "begun" : "rate_limited";
}

const RECORD_ACCEPTED: Statement = {
  name: "record_accepted",
  text: `
  WITH moved AS (
    UPDATE bridge_delegations d SET
      state = 'following', accepted_at = $4, due_at = d.lease_until, prompt = NULL,
      a2a_task_id = $5, a2a_context_id = $6, agent_version = $7
    WHERE ${HELD} AND d.state = 'dispatching'
    RETURNING d.room_id, d.room_seq, d.room_ordinal, d.room_siblings
  ), advanced AS (${advanceRoom("$4", 0)})
  SELECT count(*)::int AS touched FROM moved`,
};

export async function recordAccepted(
  on: Queryable,
  lease: Lease,
  accepted: { taskId: string; contextId: string | undefined; agentVersion: string | undefined },
  now: number,
): Promise<void> {
  const row = await oneRow<{ touched: number }>(on, RECORD_ACCEPTED, [
    ...held(lease),
    toTime(now),
    accepted.taskId,
    accepted.contextId ?? null,
    accepted.agentVersion ?? null,
  ]);
  assertHeld(row.touched, lease);
}

const SOURCE_OF: Statement = {
  name: "source_of",
  text: `SELECT d.matrix_event_id, d.ghost_mxid, d.room_id FROM bridge_delegations d WHERE ${HELD}`,
};

interface Source {
  readonly event: EventId;
  readonly ghost: GhostMxid;
  readonly room: RoomId;
}

async function sourceOf(on: Queryable, lease: Lease): Promise<Source> {
  const [row] = await rows<{ matrix_event_id: string; ghost_mxid: string; room_id: string }>(on, SOURCE_OF, [
    ...held(lease),
  ]);
  if (row === undefined) throw leaseLost(lease);
  return {
    event: row.matrix_event_id as EventId,
    ghost: row.ghost_mxid as GhostMxid,
    room: row.room_id as RoomId,
  };
}

const sealedFor = (transactionId: string) => `send\n${transactionId}`;

const RECORD_REPLY: Statement = {
  name: "record_reply",
  text: `
  WITH held AS (
    SELECT d.id, d.cancel_requested_at IS NOT NULL AS canceled
    FROM bridge_delegations d WHERE ${HELD} AND d.state IN ('dispatching', 'following') FOR UPDATE
  ), moved AS (
    UPDATE bridge_delegations d SET
      state = 'reply_pending', accepted_at = COALESCE(d.accepted_at, $4), due_at = d.lease_until,
      prompt = NULL, agent_version = COALESCE($5, d.agent_version)
    FROM held h WHERE d.id = h.id AND NOT h.canceled
    RETURNING d.id, d.room_id, d.room_seq, d.room_ordinal, d.room_siblings
  ), advanced AS (${advanceRoom("$4", 0)}
  ), sends AS (
    INSERT INTO bridge_sends (delegation_id, purpose, ordinal, transaction_id, event_type, content)
    SELECT m.id, 'reply', p.ordinal - 1, p.transaction_id, p.event_type, p.content
    FROM moved m, unnest($6::text[], $7::text[], $8::bytea[])
      WITH ORDINALITY AS p (transaction_id, event_type, content, ordinal)
    RETURNING id, ordinal
  )
  SELECT (SELECT count(*)::int FROM held) AS held, COALESCE((SELECT canceled FROM held), false) AS canceled,
    ARRAY(SELECT id::text FROM sends ORDER BY ordinal) AS send_ids`,
};

export async function recordReply(
  on: Queryable,
  keys: ContentKeys,
  lease: Lease,
  reply: { parts: readonly ReplyPart[]; agentVersion: string | undefined },
  now: number,
): Promise<PendingSend[] | "canceled"> {
  const source = await sourceOf(on, lease);
  const transactionIds = reply.parts.map((_, ordinal) =>
    replyTransactionId(source.event, source.ghost, "reply", ordinal),
  );
  const row = await oneRow<{ held: number; canceled: boolean; send_ids: string[] }>(on, RECORD_REPLY, [
    ...held(lease),
    toTime(now),
    reply.agentVersion ?? null,
    transactionIds,
    reply.parts.map((part) => part.eventType),
    reply.parts.map((part, ordinal) =>
      keys.seal(JSON.stringify(part.content), sealedFor(transactionIds[ordinal] ?? "")),
    ),
  ]);
  assertHeld(row.held, lease);
  if (row.canceled) return "canceled";
  return reply.parts.map((part, ordinal) => ({
    sendId: row.send_ids[ordinal] ?? "",
    purpose: "reply",
    ordinal,
    roomId: source.room,
    ghost: source.ghost,
    sourceEventId: source.event,
    transactionId: transactionIds[ordinal] as TransactionId,
    eventType: part.eventType,
    content: part.content,
    firstAttemptedAt: undefined,
  }));
}

const PENDING_REPLY: Statement = {
  name: "pending_reply",
  text: `
  SELECT s.id, s.purpose, s.ordinal, s.transaction_id, s.event_type, s.content, s.first_attempted_at
  FROM bridge_sends s JOIN bridge_delegations d ON d.id = s.delegation_id
  WHERE ${HELD} AND s.state = 'pending' AND s.purpose = 'reply'
  ORDER BY s.ordinal`,
};

export async function pendingReply(on: Queryable, keys: ContentKeys, lease: Lease): Promise<PendingSend[]> {
  const source = await sourceOf(on, lease);
  const pending = await rows<{
    id: string;
    purpose: SendPurpose;
    ordinal: number;
    transaction_id: string;
    event_type: string;
    content: Buffer;
    first_attempted_at: Date | null;
  }>(on, PENDING_REPLY, [...held(lease)]);
  return pending.map((row) => ({
    sendId: row.id,
    purpose: row.purpose,
    ordinal: row.ordinal,
    roomId: source.room,
    ghost: source.ghost,
    sourceEventId: source.event,
    transactionId: row.transaction_id as TransactionId,
    eventType: row.event_type,
    content: JSON.parse(keys.open(row.content, sealedFor(row.transaction_id))) as Record<string, unknown>,
    firstAttemptedAt: row.first_attempted_at?.getTime(),
  }));
}

const FINISH: Statement = {
  name: "finish",
  text: `
  WITH last_send AS (
    SELECT $8::bigint AS id, $9::text AS event_id
  ), moved AS (
    UPDATE bridge_delegations d SET
      state = $5, terminal_stage = $6, terminal_reason = $7, terminal_at = $4,
      prompt = NULL, lease_holder = NULL, lease_until = NULL, due_at = NULL,
      reply_event_id = (
        SELECT COALESCE(s.event_id, l.event_id) FROM bridge_sends s LEFT JOIN last_send l ON l.id = s.id
        WHERE s.delegation_id = d.id AND s.purpose = 'reply' AND s.ordinal = 0)
    WHERE ${HELD} AND d.terminal_at IS NULL
    RETURNING d.*
  ), advanced AS (${advanceRoom("$4", 1)}
  ), cleared AS (
    UPDATE bridge_sends s SET
      content = NULL,
      event_id = CASE WHEN s.id = l.id THEN l.event_id END,
      state = CASE WHEN s.id = l.id THEN 'sent' ELSE 'abandoned' END
    FROM moved m, last_send l
    WHERE s.delegation_id = m.id AND s.state = 'pending'
  ), audited AS (
    INSERT INTO bridge_audit (schema, record, created_at)
    SELECT 'svc.delegation.v1', bridge_delegation_audit(m.*::bridge_delegations), $4 FROM moved m
  ), noticed AS (
    INSERT INTO bridge_notices
      (marker, kind, room_id, ghost_mxid, source_event_id, thread_root, reason, transaction_id, created_at, due_at)
    SELECT $10, $11, m.room_id, m.ghost_mxid, m.matrix_event_id, m.thread_root, $7, $12, $4, $4 FROM moved m
    WHERE $11::text IS NOT NULL AND NOT EXISTS (
      SELECT FROM bridge_notices n
      WHERE $13::timestamptz IS NOT NULL AND n.room_id = m.room_id AND n.kind = $11
        AND n.ghost_mxid = m.ghost_mxid AND n.created_at > $13)
    ON CONFLICT DO NOTHING
  )
  SELECT count(*)::int AS touched FROM moved`,
};

export async function finish(
  on: Queryable,
  lease: Lease,
  outcome: Outcome,
  now: number,
  noticeIntervalMs: number,
): Promise<void> {
  let notice: readonly (string | Date | null)[] = [null, null, null, null];
  if (outcome.notice !== undefined) {
    const source = await sourceOf(on, lease);
    const said = { kind: outcome.notice, ...source, source: source.event };
    const bound = noticeBound(said, outcome.stage, now, noticeIntervalMs);
    notice = [
      bound.marker,
      outcome.notice,
      noticeTransactionId(bound.marker),
      bound.since === undefined ? null : toTime(bound.since),
    ];
  }
  const row = await oneRow<{ touched: number }>(on, FINISH, [
    ...held(lease),
    toTime(now),
    outcome.state,
    outcome.stage,
    outcome.reason,
    outcome.sent?.sendId ?? null,
    outcome.sent?.eventId ?? null,
    ...notice,
  ]);
  assertHeld(row.touched, lease);
}
