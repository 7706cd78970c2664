// Room state events that a transaction brings: what they change in the memberships, members and rooms tables.
// Invariants: a newer membership event raises the ghost's fence, so that the result of an older task is discarded;
// events may arrive in another order than they happened (a transaction that was delayed behind a catchup), so that a
// ghost's leave, or a change in a room of few people, leads to a task that asks the homeserver, never to an action.
import type { RoomStateEvent } from "./admission-types.ts";
import { encryptedRoomMarker } from "./notices.ts";
import { type Queryable, statement, toTime } from "./postgres.ts";
import { noticeTransactionId } from "./transaction-ids.ts";

// A leave of a ghost that was joined makes it read the room's state, because the leave may be out of date. A leave that is
// older than the invitation is ignored. So is an invitation of a ghost that has no agent and never had one ($8 false, no
// row in bridge_ghosts), because anybody can invite any number of names, and a leave from a room without a record.
const GHOST_EVENT = statement("ghost_membership")`
  INSERT INTO bridge_ghost_rooms AS g (room_id, ghost_mxid, membership, inviter, direct, task, due_at, invited_at, inactive_since)
  SELECT $1, $2, $3, $4, $5::boolean,
    CASE $3 WHEN 'invite' THEN 'answer_invite' WHEN 'join' THEN 'settle' END,
    CASE WHEN $3 <> 'leave' THEN $6::timestamptz END,
    CASE WHEN $3 = 'invite' THEN $7::bigint END,
    CASE WHEN $3 = 'leave' THEN $6::timestamptz END
  WHERE CASE $3
    WHEN 'invite' THEN $8::boolean OR EXISTS (SELECT FROM bridge_ghosts WHERE ghost_mxid = $2)
    WHEN 'leave' THEN EXISTS (SELECT FROM bridge_ghost_rooms WHERE room_id = $1 AND ghost_mxid = $2)
    ELSE true END
  ON CONFLICT (room_id, ghost_mxid) DO UPDATE SET
    membership = excluded.membership,
    inactive_since = excluded.inactive_since,
    inviter = COALESCE(excluded.inviter, g.inviter),
    direct = CASE WHEN $3 = 'invite' THEN excluded.direct ELSE g.direct END,
    task = CASE
      WHEN g.membership = 'join' AND $3 = 'join' THEN g.task
      WHEN $3 = 'leave' AND (g.membership = 'join' OR g.task = 'settle') THEN 'settle' ELSE excluded.task END,
    due_at = CASE
      WHEN g.membership = 'join' AND $3 = 'join' THEN g.due_at
      WHEN $3 = 'leave' AND (g.membership = 'join' OR g.task = 'settle') THEN $6::timestamptz
      ELSE excluded.due_at END,
    fence = g.fence + CASE WHEN g.membership = 'join' AND $3 = 'join' THEN 0 ELSE 1 END,
    invited_at = CASE
      WHEN $3 <> 'invite' THEN g.invited_at
      WHEN g.membership = 'invite' THEN GREATEST(g.invited_at, excluded.invited_at)
      ELSE excluded.invited_at END,
    attempts = 0
  WHERE ($3 = 'leave' AND g.membership = 'invite' AND $7::bigint < g.invited_at) IS NOT TRUE`;

// A ghost that reads the room's members, or leaves because there are none, reads the room again: the raised fence discards
// its present task. In a room of few people, whether it is direct, or empty, depends on each of them.
const memberChanged = (change: string) => `
  WITH changed AS (${change} RETURNING 1), anew AS (
    UPDATE bridge_ghost_rooms SET task = 'settle', due_at = $3, fence = fence + 1, attempts = 0
    WHERE room_id = $1 AND membership = 'join' AND task IN ('settle', 'leave')
  )
  UPDATE bridge_ghost_rooms SET task = 'settle', due_at = $3, attempts = 0
  WHERE room_id = $1 AND membership = 'join' AND task IS NULL AND EXISTS (SELECT FROM changed)
    AND (SELECT count(*) FROM (
      SELECT FROM bridge_room_members m WHERE m.room_id = $1 AND m.user_id <> $2 LIMIT 2) others) < 2`;

const MEMBER_JOINED = statement("member_joined")`${memberChanged(
  "INSERT INTO bridge_room_members (room_id, user_id) VALUES ($1, $2) ON CONFLICT DO NOTHING",
)}`;

const MEMBER_LEFT = statement("member_left")`${memberChanged(
  "DELETE FROM bridge_room_members WHERE room_id = $1 AND user_id = $2",
)}`;

const ENCRYPTED = statement("room_encrypted")`
  WITH room AS (
    INSERT INTO bridge_rooms AS r (room_id, encrypted) VALUES ($1, true)
    ON CONFLICT (room_id) DO UPDATE SET encrypted = true
  )
  INSERT INTO bridge_notices (marker, kind, room_id, ghost_mxid, transaction_id, created_at, due_at)
  SELECT $2, 'encrypted_room_refused', $1, min(g.ghost_mxid), $3, $4, $4
  FROM bridge_ghost_rooms g WHERE g.room_id = $1 AND g.membership = 'join' AND $5 HAVING count(*) > 0
  ON CONFLICT DO NOTHING`;

/** Applies room state in the order of arrival. Runs inside the transaction of an admission. */
export async function applyRoomState(
  on: Queryable,
  events: readonly RoomStateEvent[],
  now: number,
  refuseEncryptedRooms: boolean,
): Promise<void> {
  const time = toTime(now);
  for (const event of events) {
    switch (event.kind) {
      case "ghost": {
        const { room, ghost, membership, inviter = null, direct, originServerTs = null, hasAgent } = event;
        const values = [room, ghost, membership, inviter, direct, time, originServerTs, hasAgent];
        await GHOST_EVENT.run(on, values);
        break;
      }
      case "member":
        if (event.joined) await MEMBER_JOINED.run(on, [event.room, event.user, time]);
        else await MEMBER_LEFT.run(on, [event.room, event.user, time]);
        break;
      case "encryption": {
        const marker = encryptedRoomMarker(event.room);
        const values = [event.room, marker, noticeTransactionId(marker), time, refuseEncryptedRooms];
        await ENCRYPTED.run(on, values);
        break;
      }
    }
  }
}
