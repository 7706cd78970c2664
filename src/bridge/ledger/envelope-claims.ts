// Intake envelopes, encrypted events that wait for their keys: claimed by a worker, deferred and woken.
// Invariants: a claim raises the fence, and every write of a holder carries it in its WHERE; one that is woken while it is
// claimed becomes due when it is deferred; it holds its place in the room until it has ended, or until `limits.roomGate`
// has passed since its admission: then the room continues, and what it asks is placed last.
import type { Pool } from "pg";
import type { EventId, RoomId, UserId } from "../../domain/identifiers.ts";
import type { Ingress } from "./admission-types.ts";
import {
  type ClaimRequest,
  claimValues,
  entities,
  inRooms,
  leaseLost,
  oneRow,
  rows,
  statement,
  toTime,
} from "./postgres.ts";
import { GATE, settlePlaces } from "./room-order.ts";

export interface ClaimedIntakeEnvelope {
  readonly event: EventId;
  readonly fence: string;
  readonly room: RoomId;
  /** Its place in the room's queue; undefined once the room has continued without it. */
  readonly place: number | undefined;
  readonly sender: UserId;
  readonly originServerTs: number;
  readonly fingerprint: Buffer;
  readonly ingress: Ingress;
  readonly attempts: number;
  readonly keyRequests: number;
  readonly admittedAt: number;
  readonly deadline: number;
}

const COLUMNS = `
  e.matrix_event_id AS event, e.fence, e.room_id AS room, e.room_seq::float8 AS place,
  e.sender_mxid AS sender, e.origin_server_ts::float8 AS "originServerTs", e.intake_fingerprint AS fingerprint,
  e.ingress, e.attempts, e.key_requests AS "keyRequests", e.admitted_at AS "admittedAt", e.deadline`;

const CLAIM = statement("claim_envelopes")`
  WITH due AS MATERIALIZED (
    SELECT matrix_event_id FROM bridge_encrypted_intake i
    WHERE due_at <= $2 AND ($5::text[] IS NULL OR (
      SELECT COALESCE(bool_or(ghost_mxid = ANY ($5)), true) FROM bridge_ghost_rooms g
      WHERE g.room_id = i.room_id AND g.membership = 'join'))
    ORDER BY due_at LIMIT $1 FOR UPDATE SKIP LOCKED
  )
  UPDATE bridge_encrypted_intake e SET due_at = $3, holder = $4, woken_at = NULL, fence = e.fence + 1
  FROM due WHERE e.matrix_event_id = due.matrix_event_id
  RETURNING ${COLUMNS}`;

// The places of what still awaits its key after the time that it may hold its room. Only under the rooms' locks,
// because it computes the room's gate.
const GIVE_UP_PLACES = statement("give_up_places")`
  WITH late AS MATERIALIZED (
    SELECT matrix_event_id, room_id, int8range(room_seq, room_seq + 1) AS place FROM bridge_encrypted_intake
    WHERE matrix_event_id = ANY ($1) AND state = 'awaiting_key' AND room_seq IS NOT NULL
    ORDER BY matrix_event_id FOR UPDATE
  ), given_up AS (
    UPDATE bridge_encrypted_intake e SET room_seq = NULL FROM late o WHERE e.matrix_event_id = o.matrix_event_id
  ), settled AS MATERIALIZED (
    SELECT o.room_id, range_agg(o.place) AS places, range_agg(o.place) AS void, 0 AS opened, ${GATE} AS gate
    FROM late o GROUP BY o.room_id
  ), locked AS MATERIALIZED (
    SELECT room_id FROM bridge_rooms WHERE room_id IN (SELECT room_id FROM settled) ORDER BY room_id FOR UPDATE
  )${settlePlaces("$2")} AND r.room_id IN (SELECT room_id FROM locked)`;

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
  ), woken AS (
    UPDATE bridge_encrypted_intake e SET
      due_at = CASE WHEN e.holder IS NOT NULL THEN e.due_at ELSE LEAST(e.due_at, $2::timestamptz) END, woken_at = $2
    FROM waiting w WHERE e.matrix_event_id = w.matrix_event_id
    RETURNING 1
  )
  SELECT count(*)::int AS woken FROM woken`;

export function createIntakeEnvelopes(pool: Pool, roomGateMs: number) {
  return {
    /** Claims what is due longest, in the order of places. Rooms that one of them has held for too long continue. */
    async claim(request: ClaimRequest): Promise<ClaimedIntakeEnvelope[]> {
      const claimed = await entities<ClaimedIntakeEnvelope>(pool, CLAIM, claimValues(request));
      const late = claimed.filter(
        ({ place, admittedAt }) => place !== undefined && request.now >= admittedAt + roomGateMs,
      );
      if (late.length > 0) {
        const roomIds = late.map(({ room }) => room);
        await inRooms(pool, roomIds, async (client) => ({
          result: undefined,
          sent: rows(client, GIVE_UP_PLACES, [late.map(({ event }) => event), toTime(request.now)]),
        }));
      }
      return claimed.sort((left, right) => (left.place ?? 0) - (right.place ?? 0));
    },

    /**
     * Releases it until `wakeAt`, its deadline unless that has passed (`prolonged`), or the time it was woken meanwhile,
     * whichever comes first. @throws DrawbridgeError `lease_lost`
     */
    async defer(
      { event, fence }: ClaimedIntakeEnvelope,
      wakeAt: number,
      done: { readonly requested: boolean; readonly prolonged?: boolean },
    ): Promise<void> {
      const { requested, prolonged = false } = done;
      const values = [event, fence, toTime(wakeAt), requested ? 1 : 0, prolonged, roomGateMs];
      const touched = await rows(pool, DEFER, values);
      if (touched.length !== 1) throw leaseLost(`the intake envelope of ${event}`);
    },

    async wake(roomIds: readonly RoomId[], now: number): Promise<number> {
      if (roomIds.length === 0) return 0;
      return (await oneRow<{ woken: number }>(pool, WAKE, [roomIds, toTime(now)])).woken;
    },
  };
}
