// Notices: claimed and settled under a fence of their own. Their markers are inserted by the transitions
// that cause them (delegations.ts, intake.ts, memberships.ts). No text is ever stored.
import type { EventId, GhostMxid, RoomId, TransactionId } from "../../domain/identifiers.ts";
import { noLongerHeld, type Queryable, rows, type Statement, toTime } from "./statement.ts";
import type { NoticeKind, NoticeReason } from "./states.ts";
import type { ClaimedNotice } from "./types.ts";

const CLAIM: Statement = {
  name: "claim_notices",
  text: `
  WITH due AS MATERIALIZED (
    SELECT id FROM bridge_notices WHERE due_at <= $2 ORDER BY due_at LIMIT $1 FOR UPDATE SKIP LOCKED
  )
  UPDATE bridge_notices n SET due_at = $3, is_held = true, fence = n.fence + 1
  FROM due WHERE n.id = due.id
  RETURNING n.id, n.fence, n.kind, n.room_id, n.ghost_mxid, n.source_event_id, n.thread_root, n.reason,
    n.transaction_id, n.first_attempted_at, n.attempts`,
};

interface NoticeRow {
  id: string;
  fence: string;
  kind: NoticeKind;
  room_id: string;
  ghost_mxid: string;
  source_event_id: string | null;
  thread_root: string | null;
  reason: NoticeReason | null;
  transaction_id: string;
  first_attempted_at: Date | null;
  attempts: number;
}

export async function claimNotices(
  on: Queryable,
  request: { limit: number; now: number; leaseUntil: number },
): Promise<ClaimedNotice[]> {
  const claimed = await rows<NoticeRow>(on, CLAIM, [
    request.limit,
    toTime(request.now),
    toTime(request.leaseUntil),
  ]);
  return claimed.map((row) => ({
    noticeId: row.id,
    fence: row.fence,
    kind: row.kind,
    roomId: row.room_id as RoomId,
    ghost: row.ghost_mxid as GhostMxid,
    sourceEventId: (row.source_event_id ?? undefined) as EventId | undefined,
    threadRoot: (row.thread_root ?? undefined) as EventId | undefined,
    reason: row.reason ?? undefined,
    transactionId: row.transaction_id as TransactionId,
    firstAttemptedAt: row.first_attempted_at?.getTime(),
    attempts: row.attempts,
  }));
}

// A notice whose fence has moved on is another's to settle; the row then simply does not match.
const SETTLE = "WHERE id = $1 AND fence = $2 AND state = 'pending'";

const ATTEMPTED: Statement = {
  name: "notice_attempted",
  text: `UPDATE bridge_notices SET first_attempted_at = COALESCE(first_attempted_at, $3) ${SETTLE} RETURNING id`,
};
const SENT: Statement = {
  name: "notice_sent",
  text: `UPDATE bridge_notices SET state = 'sent', event_id = $3, due_at = NULL ${SETTLE}`,
};
const DEFERRED: Statement = {
  name: "notice_deferred",
  text: `UPDATE bridge_notices SET due_at = $3, is_held = false, attempts = attempts + 1 ${SETTLE}`,
};
const DROPPED: Statement = {
  name: "notice_dropped",
  text: `UPDATE bridge_notices SET state = 'dropped', due_at = NULL ${SETTLE}`,
};

/** @throws DrawbridgeError `lease_lost` when another has it: it must not be said by this one */
export async function noticeAttempted(on: Queryable, notice: ClaimedNotice, now: number): Promise<void> {
  const touched = await rows(on, ATTEMPTED, [notice.noticeId, notice.fence, toTime(now)]);
  if (touched.length !== 1) throw noLongerHeld(`notice ${notice.noticeId}`);
}

export async function noticeSent(on: Queryable, notice: ClaimedNotice, eventId: EventId): Promise<void> {
  await rows(on, SENT, [notice.noticeId, notice.fence, eventId]);
}

export async function noticeDeferred(on: Queryable, notice: ClaimedNotice, wakeAt: number): Promise<void> {
  await rows(on, DEFERRED, [notice.noticeId, notice.fence, toTime(wakeAt)]);
}

export async function noticeDropped(on: Queryable, notice: ClaimedNotice): Promise<void> {
  await rows(on, DROPPED, [notice.noticeId, notice.fence]);
}
