// Intake envelopes that expire, and the notice that keys are missing: a key-loss episode of a room begins with the first
// expiry for want of a key and ends when an event of the room is decrypted.
// Invariants: one statement ends the intake envelope, frees its place, and writes its audit record and its notice, under
// the room's lock; a room gets one notice of missing keys an episode, and none within the notice interval of the last.
import type { Pool } from "pg";
import type { EventId, GhostMxid, RoomId } from "../../domain/identifiers.ts";
import type { ClaimedIntakeEnvelope } from "./envelope-claims.ts";
import { joinedGhosts } from "./memberships.ts";
import { noticeBound } from "./notices.ts";
import { inRooms, leaseLost, oneRow, type Queryable, rows, statement, toTime } from "./postgres.ts";
import { GATE, settlePlaces } from "./room-order.ts";
import type { CancelReason, ExpiryReason, NoticeKind, NoticeReason } from "./states.ts";

const EXPIRE = statement("expire_envelopes")`
  WITH hit AS MATERIALIZED (
    SELECT e.matrix_event_id FROM bridge_encrypted_intake e
    JOIN unnest($1::text[], $2::text[]) AS u (event, room) ON e.matrix_event_id = u.event AND e.room_id = u.room
    WHERE e.state = 'awaiting_key' AND ($3::bigint IS NULL OR e.fence = $3)
    ORDER BY e.matrix_event_id FOR UPDATE OF e
  ), ended AS (
    UPDATE bridge_encrypted_intake e SET
      state = 'expired', terminal_reason = $4, terminal_at = $5, due_at = NULL, holder = NULL
    FROM hit WHERE e.matrix_event_id = hit.matrix_event_id
    RETURNING e.*
  ), own AS (
    SELECT room_id, CASE WHEN room_seq IS NULL THEN 'empty' ELSE int8range(room_seq, room_seq + 1) END AS place
    FROM ended
  ), settled AS MATERIALIZED (
    SELECT o.room_id, range_agg(o.place) AS places, range_agg(o.place) AS void, 0 AS opened, ${GATE} AS gate
    FROM own o GROUP BY o.room_id
  ), locked AS MATERIALIZED (
    SELECT r.room_id, r.keys_missing_at FROM bridge_rooms r
    WHERE r.room_id IN (SELECT room_id FROM settled) ORDER BY r.room_id FOR UPDATE
  ), noticed AS (
    INSERT INTO bridge_notices
      (marker, kind, room_id, ghost_mxid, source_event_id, reason, transaction_id, created_at, due_at)
    SELECT $6, $7, e.room_id, $8, $9, $10, $11, $5, $5 FROM ended e JOIN locked l ON l.room_id = e.room_id
    WHERE $7::text IS NOT NULL AND ($7 <> 'keys_missing' OR l.keys_missing_at IS NULL) AND NOT EXISTS (
      SELECT FROM bridge_notices n WHERE n.room_id = e.room_id AND n.kind = $7
        AND (n.ghost_mxid = $8 OR $7 = 'keys_missing') AND n.created_at > $12)
    ON CONFLICT DO NOTHING
    RETURNING kind
  ), rooms AS (${settlePlaces("$5", {
    also: "keys_missing_at = CASE WHEN EXISTS (SELECT FROM noticed WHERE kind = 'keys_missing') THEN $5 ELSE r.keys_missing_at END",
  })} AND r.room_id IN (SELECT room_id FROM locked)
  ), audited AS (
    INSERT INTO bridge_audit (schema, record, created_at)
    SELECT 'svc.encrypted_intake.v1', bridge_encrypted_intake_audit(e.*::bridge_encrypted_intake), $5 FROM ended e
  )
  SELECT count(*)::int AS touched FROM ended`;

interface ExpiryNotice {
  readonly kind: NoticeKind;
  readonly reason: NoticeReason | undefined;
}

/** The notice that the room gets when an intake envelope expires for this reason; for the others it gets none. */
const NOTICES: Readonly<Partial<Record<ExpiryReason, ExpiryNotice>>> = {
  key_wait_elapsed: { kind: "keys_missing", reason: undefined },
  key_requests_exhausted: { kind: "keys_missing", reason: undefined },
  key_withheld: { kind: "keys_missing", reason: undefined },
  device_not_trusted: { kind: "policy_denied", reason: "sender_device_untrusted" },
};

const NO_NOTICE = [null, null, null, null, null, null, null] as const;

function noticeValues(
  { event, room }: ClaimedIntakeEnvelope,
  { kind, reason }: ExpiryNotice,
  ghost: GhostMxid,
  now: number,
  intervalMs: number,
) {
  // Missing keys concern the whole room; an untrusted device concerns the sender of this event.
  const source = kind === "keys_missing" ? undefined : event;
  const bound = noticeBound({ kind, room, ghost, source }, "intake", now, intervalMs);
  return [bound.marker, kind, ghost, source ?? null, reason ?? null, bound.transactionId, bound.since];
}

/** Ends intake envelopes, whoever holds them. Returns how many there were. Only under the rooms' locks. */
export async function expireUnheld(
  on: Queryable,
  events: readonly EventId[],
  rooms: readonly RoomId[],
  reason: CancelReason,
  now: number,
): Promise<number> {
  const values = [events, rooms, null, reason, toTime(now), ...NO_NOTICE];
  return (await oneRow<{ touched: number }>(on, EXPIRE, values)).touched;
}

// Rooms are locked in ascending order, as admissions lock them.
const KEYS_FOUND = statement("keys_found")`
  WITH locked AS MATERIALIZED (
    SELECT room_id FROM bridge_rooms
    WHERE room_id = ANY ($1) AND keys_missing_at IS NOT NULL ORDER BY room_id FOR UPDATE
  )
  UPDATE bridge_rooms r SET keys_missing_at = NULL FROM locked l WHERE r.room_id = l.room_id`;

/** Events of these rooms were decrypted, which ends their key-loss episodes. */
export async function keysFound(on: Queryable, roomIds: readonly RoomId[]): Promise<void> {
  await rows(on, KEYS_FOUND, [roomIds]);
}

export function createEnvelopeExpiry(pool: Pool, noticeIntervalMs: number) {
  return {
    /** Ends an intake envelope without delegations, with its notice. @throws DrawbridgeError `lease_lost` */
    async expire(envelope: ClaimedIntakeEnvelope, reason: ExpiryReason, now: number): Promise<void> {
      await inRooms(pool, [envelope.room], async (client) => {
        const { event, room, fence } = envelope;
        const notice = NOTICES[reason];
        const ghost = notice && (await joinedGhosts(client, [room])).get(room)?.[0];
        const own =
          notice && ghost ? noticeValues(envelope, notice, ghost, now, noticeIntervalMs) : NO_NOTICE;
        const values = [[event], [room], fence, reason, toTime(now), ...own];
        const { touched } = await oneRow<{ touched: number }>(client, EXPIRE, values);
        if (touched !== 1) throw leaseLost(`the intake envelope of ${event}`);
        return { result: undefined };
      });
    },
  };
}
