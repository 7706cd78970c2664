// Intake envelopes, encrypted events that wait for their keys: claimed by a worker, deferred, woken and expired.
// Invariants: every write of a holder is fenced; one that is woken while it is claimed becomes due when it is deferred; it
// holds its place until it has ended, or for `limits.roomGate`, after which what it asks is placed last; a room gets one
// notice of missing keys until an event of it is decrypted, and none within the interval.
import type { Pool } from "pg";
import type { EventId, GhostMxid, RoomId } from "../../domain/identifiers.ts";
import type { Ingress, NewIntakeEnvelope, NewNotice } from "./admission-types.ts";
import { joinedGhosts } from "./memberships.ts";
import { noticeBound } from "./notices.ts";
import { type ClaimRequest, claimValues, inRooms, type Queryable, statement, toTime } from "./postgres.ts";
import { lockedRooms, releasePlaces, settledWithout } from "./room-order.ts";
import type { CancelReason, ExpiryReason } from "./states.ts";

export interface ClaimedIntakeEnvelope extends Omit<NewIntakeEnvelope, "position"> {
  readonly fence: string;
  /** The event's place in the room's queue; undefined once the room has continued without it. */
  readonly place: number | undefined;
  /** Whether the question that it edits still waits for its key itself. */
  readonly questionWaits: boolean;
  readonly ingress: Ingress;
  readonly attempts: number;
  readonly keyRequests: number;
  readonly admittedAt: number;
}

export const nameOf = ({ event }: ClaimedIntakeEnvelope): string => `the intake envelope of ${event}`;

/** Of intake envelopes that are named: an expression, for with the predicate of an index all that wait would be read. */
export const AWAITS_KEY = "state || '' = 'awaiting_key'";

const COLUMNS = `
  e.matrix_event_id AS event, e.fence, e.room_id AS room, e.room_seq::float8 AS place,
  e.sender_mxid AS sender, e.origin_server_ts::float8 AS "originServerTs", e.intake_fingerprint AS fingerprint,
  e.ingress, e.attempts, e.key_requests AS "keyRequests", e.admitted_at AS "admittedAt", e.deadline,
  e.edits_event_id AS edits, e.direct_ghost AS direct, EXISTS (
    SELECT FROM bridge_encrypted_intake q
    WHERE q.matrix_event_id = e.edits_event_id AND q.room_id = e.room_id AND q.state = 'awaiting_key'
  ) AS "questionWaits"`;

const CLAIM = statement<ClaimedIntakeEnvelope>("claim_envelopes")`
  WITH due AS MATERIALIZED (
    SELECT matrix_event_id FROM bridge_encrypted_intake i
    WHERE due_at <= $2 AND matrix_event_id <> ALL ($6::text[]) AND ($5::text[] IS NULL OR (
      SELECT COALESCE(bool_or(ghost_mxid = ANY ($5)) FILTER (WHERE membership = 'join'),
        bool_or(ghost_mxid = ANY ($5)) FILTER (WHERE membership = 'invite'), true)
      FROM bridge_ghost_rooms g WHERE g.room_id = i.room_id))
    ORDER BY due_at LIMIT $1 FOR UPDATE SKIP LOCKED
  )
  UPDATE bridge_encrypted_intake e SET due_at = $3, holder = $4, woken_at = NULL, fence = e.fence + 1
  FROM due WHERE e.matrix_event_id = due.matrix_event_id
  RETURNING ${COLUMNS}`;

/** How many of the edits that wait are tried at once, from the latest. */
const LATER_MAX = 3;

const LATER_EDITS = statement<ClaimedIntakeEnvelope>("later_edits")`
  SELECT ${COLUMNS} FROM bridge_encrypted_intake e
  WHERE e.room_id = $1 AND e.sender_mxid = $2 AND e.edits_event_id = $3 AND e.state = 'awaiting_key'
    AND (e.origin_server_ts, e.matrix_event_id) > ($4::bigint, $5)
  ORDER BY e.origin_server_ts DESC, e.matrix_event_id DESC LIMIT ${LATER_MAX}`;

// The places of what still awaits its key after the time that it may hold its room. Only under the rooms' locks,
// because it computes the room's gate.
const GIVE_UP_PLACES = statement("give_up_places")`
  WITH late AS MATERIALIZED (
    SELECT matrix_event_id, room_id, int8range(room_seq, room_seq + 1) AS place FROM bridge_encrypted_intake
    WHERE matrix_event_id = ANY ($1) AND ${AWAITS_KEY} AND room_seq IS NOT NULL
    ORDER BY matrix_event_id FOR UPDATE
  ), given_up AS (
    UPDATE bridge_encrypted_intake e SET room_seq = NULL FROM late o WHERE e.matrix_event_id = o.matrix_event_id
  ), ${settledWithout("late")}, ${lockedRooms("settled")}
  ${releasePlaces("$2")} AND r.room_id IN (SELECT room_id FROM locked)`;

// $6: how long it may hold its room, in milliseconds since its admission; it is due at the end of that time.
const DEFER = statement("defer_envelope")`
  UPDATE bridge_encrypted_intake SET
    due_at = LEAST($3::timestamptz, CASE WHEN NOT $5 THEN deadline END, woken_at,
      CASE WHEN room_seq IS NOT NULL THEN admitted_at + $6 * interval '1 millisecond' END), holder = NULL,
    attempts = attempts + 1, key_requests = key_requests + $4
  WHERE matrix_event_id = $1 AND fence = $2 AND holder IS NOT NULL
  RETURNING 1`;

const WAKE = statement("wake_envelopes")`
  WITH waiting AS MATERIALIZED (
    SELECT matrix_event_id FROM bridge_encrypted_intake
    WHERE room_id = ANY ($1) AND state = 'awaiting_key' ORDER BY matrix_event_id FOR UPDATE
  )
  UPDATE bridge_encrypted_intake e SET
    due_at = CASE WHEN e.holder IS NOT NULL THEN e.due_at ELSE LEAST(e.due_at, $2::timestamptz) END, woken_at = $2
  FROM waiting w WHERE e.matrix_event_id = w.matrix_event_id
  RETURNING 1`;

const EXPIRE = statement("expire_envelopes")`
  WITH hit AS MATERIALIZED (
    SELECT e.matrix_event_id FROM bridge_encrypted_intake e
    JOIN unnest($1::text[], $2::text[]) AS u (event, room) ON e.matrix_event_id = u.event AND e.room_id = u.room
    WHERE ${AWAITS_KEY} AND ($3::bigint IS NULL OR e.fence = $3)
    ORDER BY e.matrix_event_id FOR UPDATE OF e
  ), ended AS (
    UPDATE bridge_encrypted_intake e SET
      state = 'expired', terminal_reason = $4, terminal_at = $5, due_at = NULL, holder = NULL
    FROM hit WHERE e.matrix_event_id = hit.matrix_event_id
    RETURNING e.*
  ), own AS (
    SELECT room_id, CASE WHEN room_seq IS NULL THEN 'empty' ELSE int8range(room_seq, room_seq + 1) END AS place
    FROM ended
  ), ${settledWithout("own")}, ${lockedRooms("settled")}, noticed AS (
    INSERT INTO bridge_notices
      (marker, kind, room_id, ghost_mxid, source_event_id, reason, transaction_id, created_at, due_at)
    SELECT $6, $7, e.room_id, $8, $9, $10, $11, $5, $5 FROM ended e JOIN locked l ON l.room_id = e.room_id
    WHERE $7::text IS NOT NULL AND ($7 <> 'keys_missing' OR l.keys_missing_at IS NULL) AND NOT EXISTS (
      SELECT FROM bridge_notices n WHERE n.room_id = e.room_id AND n.kind = $7
        AND (n.ghost_mxid = $8 OR $7 = 'keys_missing') AND n.created_at > $12)
    ON CONFLICT DO NOTHING
    RETURNING kind
  ), rooms AS (${releasePlaces("$5", {
    also: "keys_missing_at = CASE WHEN EXISTS (SELECT FROM noticed WHERE kind = 'keys_missing') THEN $5 ELSE r.keys_missing_at END",
  })} AND r.room_id IN (SELECT room_id FROM locked)
  ), audited AS (
    INSERT INTO bridge_audit (schema, record, created_at)
    SELECT 'svc.encrypted_intake.v1', bridge_encrypted_intake_audit(e.*::bridge_encrypted_intake), $5 FROM ended e
  )
  SELECT 1 FROM ended`;

type ExpiryNotice = Pick<NewNotice, "kind" | "reason">;

const NOTICES: Readonly<Partial<Record<ExpiryReason, ExpiryNotice>>> = {
  key_wait_elapsed: { kind: "keys_missing" },
  key_requests_exhausted: { kind: "keys_missing" },
  key_withheld: { kind: "keys_missing" },
  // A member who has sent the ghost somebody else's key, ahead of that person, would else silence that person unnoticed.
  sender_mismatch: { kind: "keys_missing" },
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
  return [bound.marker, kind, ghost, source, reason, bound.transactionId, bound.since];
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
  return (await EXPIRE.rows(on, values)).length;
}

// Rooms are locked in ascending order, as admissions lock them.
const KEYS_FOUND = statement("keys_found")`
  WITH locked AS MATERIALIZED (
    SELECT room_id FROM bridge_rooms
    WHERE room_id = ANY ($1) AND keys_missing_at IS NOT NULL ORDER BY room_id FOR UPDATE
  )
  UPDATE bridge_rooms r SET keys_missing_at = NULL FROM locked l WHERE r.room_id = l.room_id`;

/** Events of these rooms were decrypted, which ends their key-loss episodes. */
export const keysFound = (on: Queryable, roomIds: readonly RoomId[]) => KEYS_FOUND.run(on, [roomIds]);

export function createIntakeEnvelopes(pool: Pool, roomGateMs: number, noticeIntervalMs: number) {
  return {
    async claim(request: ClaimRequest): Promise<ClaimedIntakeEnvelope[]> {
      const claimed = await CLAIM.rows(pool, [...claimValues(request), request.except ?? []]);
      const late = claimed.filter(
        ({ place, admittedAt }) => place !== undefined && request.now >= admittedAt + roomGateMs,
      );
      if (late.length > 0) {
        const roomIds = late.map(({ room }) => room);
        const givenUp = inRooms(pool, roomIds, async (client) => ({
          result: undefined,
          sent: GIVE_UP_PLACES.rows(client, [late.map(({ event }) => event), toTime(request.now)]),
        }));
        // What was claimed is not to wait for the end of its lease. What keeps its place is due again once it is deferred.
        await givenUp.catch(() => undefined);
      }
      return claimed.sort((left, right) => (left.place ?? 0) - (right.place ?? 0));
    },

    /**
     * Releases it until `wakeAt`, its deadline unless that has passed (`prolonged`), or the time it was woken meanwhile,
     * whichever comes first. @throws DrawbridgeError `lease_lost`
     */
    async defer(
      envelope: ClaimedIntakeEnvelope,
      wakeAt: number,
      { requested = false, prolonged = false } = {},
    ): Promise<void> {
      const { event, fence } = envelope;
      const values = [event, fence, toTime(wakeAt), requested ? 1 : 0, prolonged, roomGateMs];
      await DEFER.held(pool, values, nameOf(envelope));
    },

    /** The edits that wait and come after it, of the question that it asks or edits; the latest is first. */
    laterEdits({ room, sender, edits, event, originServerTs }: ClaimedIntakeEnvelope) {
      const after = edits === undefined ? [event, 0, ""] : [edits, originServerTs, event];
      return LATER_EDITS.rows(pool, [room, sender, ...after]);
    },

    async wake(roomIds: readonly RoomId[], now: number): Promise<number> {
      if (roomIds.length === 0) return 0;
      return (await WAKE.rows(pool, [roomIds, toTime(now)])).length;
    },

    /** Ends an intake envelope without delegations, with its notice. @throws DrawbridgeError `lease_lost` */
    async expire(envelope: ClaimedIntakeEnvelope, reason: ExpiryReason, now: number): Promise<void> {
      await inRooms(pool, [envelope.room], async (client) => {
        const { event, room, fence } = envelope;
        const notice = NOTICES[reason];
        const ghost = notice && (await joinedGhosts(client, [room])).get(room)?.[0];
        const own =
          notice && ghost ? noticeValues(envelope, notice, ghost, now, noticeIntervalMs) : NO_NOTICE;
        const values = [[event], [room], fence, reason, toTime(now), ...own];
        await EXPIRE.held(client, values, nameOf(envelope));
        return { result: undefined };
      });
    },
  };
}
