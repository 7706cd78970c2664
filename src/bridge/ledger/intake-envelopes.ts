// Intake intake envelopes in workers' hands: claimed, put off, woken, counted. How they end: derivation.ts, intake-envelope-end.ts.
// Invariants: a claim raises the fence, and every holder's write carries it in its WHERE; an intake envelope that
// somebody holds is woken when it is put off; none is put off beyond its deadline before that has passed.
import type { EventId, RoomId, UserId } from "../../domain/identifiers.ts";
import type { Ingress } from "./admission.ts";
import {
  noLongerHeld,
  oneRow,
  type Queryable,
  rows,
  type Statement,
  toEpochMs,
  toTime,
} from "./statement.ts";
import type { ClaimedIntakeEnvelope, IntakeEnvelopeCounts } from "./types.ts";

const CLAIM: Statement = {
  name: "claim_envelopes",
  text: `
  WITH due AS MATERIALIZED (
    SELECT matrix_event_id FROM bridge_encrypted_intake
    WHERE due_at <= $2 ORDER BY due_at LIMIT $1 FOR UPDATE SKIP LOCKED
  )
  UPDATE bridge_encrypted_intake e SET due_at = $3, is_held = true, woken_at = NULL, fence = e.fence + 1
  FROM due WHERE e.matrix_event_id = due.matrix_event_id
  RETURNING e.matrix_event_id, e.fence, e.room_id, e.room_seq, e.sender_mxid, e.origin_server_ts,
    e.intake_fingerprint, e.ingress, e.attempts, e.key_requests, e.admitted_at, e.deadline`,
};

interface IntakeEnvelopeRow {
  matrix_event_id: string;
  fence: string;
  room_id: string;
  room_seq: string;
  sender_mxid: string;
  origin_server_ts: string;
  intake_fingerprint: Buffer;
  ingress: Ingress;
  attempts: number;
  key_requests: number;
  admitted_at: Date;
  deadline: Date;
}

/** Claims those due longest; a room's come in the order of their places. */
export async function claimEnvelopes(
  on: Queryable,
  request: { limit: number; now: number; leaseUntil: number },
): Promise<ClaimedIntakeEnvelope[]> {
  const claimed = await rows<IntakeEnvelopeRow>(on, CLAIM, [
    request.limit,
    toTime(request.now),
    toTime(request.leaseUntil),
  ]);
  return claimed
    .sort((left, right) => Number(left.room_seq) - Number(right.room_seq))
    .map((row) => ({
      event: row.matrix_event_id as EventId,
      fence: row.fence,
      room: row.room_id as RoomId,
      sender: row.sender_mxid as UserId,
      originServerTs: Number(row.origin_server_ts),
      fingerprint: row.intake_fingerprint,
      ingress: row.ingress,
      attempts: row.attempts,
      keyRequests: row.key_requests,
      admittedAt: toEpochMs(row.admitted_at),
      deadline: toEpochMs(row.deadline),
    }));
}

const DEFER: Statement = {
  name: "defer_envelope",
  text: `
  UPDATE bridge_encrypted_intake SET
    due_at = LEAST($3::timestamptz, CASE WHEN NOT $5 THEN deadline END, woken_at), is_held = false,
    attempts = attempts + 1, key_requests = key_requests + $4
  WHERE matrix_event_id = $1 AND fence = $2 AND is_held
  RETURNING 1`,
};

/** @throws DrawbridgeError `lease_lost` */
export async function deferEnvelope(
  on: Queryable,
  envelope: ClaimedIntakeEnvelope,
  wakeAt: number,
  done: { readonly requested: boolean; readonly prolonged?: boolean },
): Promise<void> {
  const { event, fence } = envelope;
  const { requested, prolonged = false } = done;
  const touched = await rows(on, DEFER, [event, fence, toTime(wakeAt), requested ? 1 : 0, prolonged]);
  if (touched.length !== 1) throw noLongerHeld(`the intake envelope of ${event}`);
}

const WAKE: Statement = {
  name: "wake_envelopes",
  text: `
  WITH waiting AS MATERIALIZED (
    SELECT matrix_event_id FROM bridge_encrypted_intake
    WHERE room_id = ANY ($1) AND state = 'awaiting_key' ORDER BY matrix_event_id FOR UPDATE
  ), woken AS (
    UPDATE bridge_encrypted_intake e SET
      due_at = CASE WHEN e.is_held THEN e.due_at ELSE LEAST(e.due_at, $2::timestamptz) END, woken_at = $2
    FROM waiting w WHERE e.matrix_event_id = w.matrix_event_id
    RETURNING 1
  )
  SELECT count(*)::int AS woken FROM woken`,
};

export async function wakeEnvelopes(on: Queryable, roomIds: readonly RoomId[], now: number): Promise<number> {
  if (roomIds.length === 0) return 0;
  return (await oneRow<{ woken: number }>(on, WAKE, [roomIds, toTime(now)])).woken;
}

const COUNT: Statement = {
  name: "count_envelopes",
  text: `SELECT count(*)::int AS awaiting, min(admitted_at) AS oldest
         FROM bridge_encrypted_intake WHERE state = 'awaiting_key'`,
};

export async function envelopeCounts(on: Queryable): Promise<IntakeEnvelopeCounts> {
  const row = await oneRow<{ awaiting: number; oldest: Date | null }>(on, COUNT, []);
  return {
    awaiting: row.awaiting,
    oldestAdmittedAt: row.oldest === null ? undefined : toEpochMs(row.oldest),
  };
}
