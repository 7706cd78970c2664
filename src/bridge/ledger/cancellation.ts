// Delegations are canceled: by the redaction of their event, or of an answer that the agent does not have yet, by the
// person who asked, or by an operator.
// Invariants: a cancellation is a durable intent; whoever holds the lease, in whichever process, ends the delegation; who
// asked is told by the transition that ends it.
import type { Admission, NewNotice } from "./admission-types.ts";
import { expireUnheld } from "./envelopes.ts";
import { CANCEL_NOTICES } from "./notices.ts";
import { type Queryable, statement, toTime } from "./postgres.ts";
import type { CancelReason } from "./states.ts";

interface Canceled {
  readonly marked: readonly string[];
  readonly ended: readonly Omit<NewNotice, "kind" | "reason">[];
}

// A queued delegation ends in this statement. One that is leased is marked, and its worker ends it. One that was
// deferred becomes due at once, so that a worker ends it. A room becomes due only if its head was redacted: the lease
// of another head must not be cut short.
const cancel = (name: string, hit: string) => statement<Canceled>(name)`
  WITH hit AS MATERIALIZED (
    SELECT d.id, d.state FROM ${hit} AND d.terminal_at IS NULL ORDER BY d.id FOR UPDATE OF d
  ), marked AS (
    UPDATE bridge_delegations d SET
      cancel_requested_at = COALESCE(d.cancel_requested_at, $2), cancel_reason = COALESCE(d.cancel_reason, $1),
      due_at = CASE WHEN d.lease_holder IS NULL AND d.due_at IS NOT NULL THEN $2::timestamptz ELSE d.due_at END
    FROM hit WHERE d.id = hit.id AND hit.state <> 'queued'
    RETURNING d.id, d.room_id, d.room_seq, d.room_ordinal, d.lease_holder IS NULL AS is_free
  ), ended AS (
    UPDATE bridge_delegations d SET
      state = 'canceled', terminal_stage = 'intake', terminal_reason = $1, terminal_at = $2,
      cancel_requested_at = $2, cancel_reason = $1, prompt = NULL, due_at = NULL
    FROM hit WHERE d.id = hit.id AND hit.state = 'queued'
    RETURNING d.*
  ), moved AS MATERIALIZED (
    SELECT room_id, room_seq, room_ordinal, 1 AS freed FROM ended
    UNION ALL SELECT room_id, room_seq, room_ordinal, 0 FROM marked WHERE is_free
  ), locked AS MATERIALIZED (
    SELECT room_id FROM bridge_rooms WHERE room_id IN (SELECT room_id FROM moved) ORDER BY room_id FOR UPDATE
  ), rooms AS (
    UPDATE bridge_rooms r SET
      open_count = r.open_count - (SELECT sum(m.freed)::int FROM moved m WHERE m.room_id = r.room_id),
      head_at = CASE WHEN EXISTS (
          SELECT FROM moved m WHERE m.room_id = r.room_id
            AND m.room_seq = r.head_seq AND m.room_ordinal = r.head_ordinal)
        THEN LEAST(r.head_at, $2::timestamptz) ELSE r.head_at END
    FROM locked l WHERE r.room_id = l.room_id
  ), audited AS (
    INSERT INTO bridge_audit (schema, record, created_at)
    SELECT 'svc.delegation.v1', bridge_delegation_audit(e.*::bridge_delegations), $2 FROM ended e
  )
  SELECT ARRAY(SELECT id::text FROM marked) AS marked,
    (SELECT COALESCE(json_agg(json_build_object(
       'room', room_id, 'ghost', ghost_mxid, 'source', matrix_event_id, 'threadRoot', thread_root)), '[]') FROM ended) AS ended`;

const CANCEL_REDACTED = cancel(
  "cancel_redacted",
  `bridge_delegations d
    JOIN unnest($3::text[], $4::text[]) AS u (event, room) ON d.room_id = u.room
      AND (d.matrix_event_id = u.event OR d.answer_event_id = u.event AND d.prompt IS NOT NULL)
    WHERE true`,
);
const CANCEL_THESE = cancel("cancel_these", "bridge_delegations d WHERE d.id = ANY ($3::bigint[])");

/** Returns the delegations that are marked, for their workers to end, and the notices about those that have ended now. */
export async function cancelDelegations(
  on: Queryable,
  reason: "sender_canceled" | "operator_canceled",
  ids: readonly string[],
  now: number,
): Promise<{ readonly marked: readonly string[]; readonly notices: readonly NewNotice[] }> {
  if (ids.length === 0) return { marked: [], notices: [] };
  const { marked, ended } = await CANCEL_THESE.one(on, [reason, toTime(now), ids]);
  const kind = CANCEL_NOTICES[reason];
  return { marked, notices: ended.map((one) => ({ ...one, kind, reason })) };
}

/** Returns the delegations that are marked as canceled, for their workers to end. Only under the rooms' locks. */
export async function cancelRedacted(
  on: Queryable,
  redacted: Admission["redacted"],
  now: number,
): Promise<readonly string[]> {
  const events = redacted.map(({ event }) => event);
  const rooms = redacted.map(({ room }) => room);
  const reason: CancelReason = "source_redacted";
  const values = [reason, toTime(now), events, rooms];
  const { marked } = await CANCEL_REDACTED.one(on, values);
  await expireUnheld(on, events, rooms, reason, now);
  return marked;
}
