// What each ghost has to do about the rooms it is invited to or sits in, and who is in those rooms.
// Invariants: a task is settled only under the fence it was claimed with; a newer membership event raises
// the fence, so an answer to an old invitation never overwrites what happened since; events may come in another
// order than they happened (a transaction that was held up behind what was read back), so that a ghost is out,
// or a room empty, is acted on only once the homeserver has said the same.
import type { EventId, GhostMxid, RoomId, UserId } from "../../domain/identifiers.ts";
import { encryptedRoomMarker } from "./notice-bound.ts";
import { type Queryable, rows, type Statement, toTime } from "./statement.ts";
import { noticeTransactionId } from "./transaction-ids.ts";
import type { ClaimedMembership, RoomFacts } from "./types.ts";

/** How far the bridge takes part in encrypted rooms (`encryption.mode`): only with `on` do ghosts serve there. */
export type EncryptionMode = "refuse" | "devices" | "on";

const isRefused = (mode: EncryptionMode) => mode !== "on";

const CLAIM: Statement = {
  name: "claim_memberships",
  text: `
  WITH due AS MATERIALIZED (
    SELECT room_id, ghost_mxid FROM bridge_ghost_rooms
    WHERE due_at <= $2 ORDER BY due_at LIMIT $1 FOR UPDATE SKIP LOCKED
  )
  UPDATE bridge_ghost_rooms g SET due_at = $3, is_held = true, fence = g.fence + 1
  FROM due WHERE g.room_id = due.room_id AND g.ghost_mxid = due.ghost_mxid
  RETURNING g.room_id, g.ghost_mxid, g.fence, g.task, g.inviter, g.attempts`,
};

export async function claimMemberships(
  on: Queryable,
  request: { limit: number; now: number; leaseUntil: number },
): Promise<ClaimedMembership[]> {
  const claimed = await rows<{
    room_id: string;
    ghost_mxid: string;
    fence: string;
    task: ClaimedMembership["task"];
    inviter: string | null;
    attempts: number;
  }>(on, CLAIM, [request.limit, toTime(request.now), toTime(request.leaseUntil)]);
  return claimed.map((row) => ({
    roomId: row.room_id as RoomId,
    ghost: row.ghost_mxid as GhostMxid,
    fence: row.fence,
    task: row.task,
    inviter: (row.inviter ?? undefined) as UserId | undefined,
    attempts: row.attempts,
  }));
}

const MINE = "WHERE room_id = $1 AND ghost_mxid = $2 AND fence = $3";
const mine = (membership: ClaimedMembership) =>
  [membership.roomId, membership.ghost, membership.fence] as const;

const JOINED: Statement = {
  name: "membership_joined",
  text: `UPDATE bridge_ghost_rooms SET membership = 'join', task = 'settle', due_at = $4, attempts = 0 ${MINE}`,
};

export async function membershipJoined(
  on: Queryable,
  membership: ClaimedMembership,
  now: number,
): Promise<void> {
  await rows(on, JOINED, [...mine(membership), toTime(now)]);
}

// The members as the homeserver gave them replace what was known. $4 encrypted, $5 members without ghosts.
const SETTLED: Statement = {
  name: "membership_settled",
  text: `
  WITH settled AS (
    UPDATE bridge_ghost_rooms SET
      membership = 'join',
      task = CASE WHEN cardinality($5::text[]) = 0 THEN 'leave' END,
      due_at = CASE WHEN cardinality($5::text[]) = 0 THEN $6::timestamptz END, attempts = 0
    ${MINE} RETURNING room_id, ghost_mxid
  ), room AS (
    INSERT INTO bridge_rooms AS r (room_id, encrypted) SELECT room_id, $4 FROM settled
    ON CONFLICT (room_id) DO UPDATE SET encrypted = r.encrypted OR excluded.encrypted
  ), gone AS (
    DELETE FROM bridge_room_members m USING settled s WHERE m.room_id = s.room_id AND m.user_id <> ALL ($5::text[])
  ), present AS (
    INSERT INTO bridge_room_members (room_id, user_id)
    SELECT s.room_id, u FROM settled s, unnest($5::text[]) u ON CONFLICT DO NOTHING
  )
  INSERT INTO bridge_notices (marker, kind, room_id, ghost_mxid, transaction_id, created_at, due_at)
  SELECT $7, 'encrypted_room_refused', s.room_id, s.ghost_mxid, $8, $6, $6 FROM settled s WHERE $4 AND $9
  ON CONFLICT DO NOTHING`,
};

export async function membershipSettled(
  on: Queryable,
  membership: ClaimedMembership,
  facts: RoomFacts,
  isGhost: (user: UserId) => boolean,
  now: number,
  encryptionMode: EncryptionMode,
): Promise<void> {
  const marker = encryptedRoomMarker(membership.roomId);
  await rows(on, SETTLED, [
    ...mine(membership),
    facts.encrypted,
    facts.members.filter((member) => !isGhost(member)),
    toTime(now),
    marker,
    noticeTransactionId(marker),
    isRefused(encryptionMode),
  ]);
}

const LEFT: Statement = {
  name: "membership_left",
  text: `UPDATE bridge_ghost_rooms SET membership = 'leave', task = NULL, due_at = NULL, attempts = 0 ${MINE}`,
};

export async function membershipLeft(on: Queryable, membership: ClaimedMembership): Promise<void> {
  await rows(on, LEFT, mine(membership));
}

const DEFERRED: Statement = {
  name: "membership_deferred",
  text: `UPDATE bridge_ghost_rooms SET due_at = $4, is_held = false, attempts = attempts + 1 ${MINE}`,
};

export async function membershipDeferred(
  on: Queryable,
  membership: ClaimedMembership,
  wakeAt: number,
): Promise<void> {
  await rows(on, DEFERRED, [...mine(membership), toTime(wakeAt)]);
}

/** A membership event of a ghost, as intake read it. */
export interface GhostMembershipEvent {
  readonly kind: "ghost";
  readonly room: RoomId;
  readonly ghost: GhostMxid;
  readonly membership: "invite" | "join" | "leave";
  readonly inviter: UserId | undefined;
  readonly direct: boolean;
  /** Milliseconds, as the event says. */
  readonly originServerTs?: number;
}

/** A membership event of somebody else. */
export interface MemberEvent {
  readonly kind: "member";
  readonly room: RoomId;
  readonly user: UserId;
  readonly joined: boolean;
}

/** Encryption was switched on; it never goes off again. */
export interface EncryptionEvent {
  readonly kind: "encryption";
  readonly room: RoomId;
  readonly event: EventId;
}

export type RoomStateEvent = GhostMembershipEvent | MemberEvent | EncryptionEvent;

// One that was in a room, and is told to have left, asks whether that is still so; told once more before it has
// asked (banned, and let in again), it still asks. A leave that is older than the invitation says nothing of it;
// should a clock be wrong, the homeserver refuses the join.
const GHOST_EVENT: Statement = {
  name: "ghost_membership",
  text: `
  INSERT INTO bridge_ghost_rooms AS g (room_id, ghost_mxid, membership, inviter, direct, task, due_at, invited_at)
  VALUES ($1, $2, $3, $4, $5,
    CASE $3 WHEN 'invite' THEN 'answer_invite' WHEN 'join' THEN 'settle' END,
    CASE WHEN $3 <> 'leave' THEN $6::timestamptz END,
    CASE WHEN $3 = 'invite' THEN $7::bigint END)
  ON CONFLICT (room_id, ghost_mxid) DO UPDATE SET
    membership = excluded.membership,
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
  WHERE ($3 = 'leave' AND g.membership = 'invite' AND $7::bigint < g.invited_at) IS NOT TRUE`,
};

// A ghost that reads the room's members just now, or leaves because there are none, may be acting on what
// is no longer so: it reads them again, and what it found before is refused by the fence.
const SETTLE_ANEW = `
  UPDATE bridge_ghost_rooms SET task = 'settle', due_at = $3, fence = fence + 1, attempts = 0
  WHERE room_id = $1 AND membership = 'join' AND task IN ('settle', 'leave')`;

const MEMBER_JOINED: Statement = {
  name: "member_joined",
  text: `
  WITH present AS (
    INSERT INTO bridge_room_members (room_id, user_id) VALUES ($1, $2) ON CONFLICT DO NOTHING
  ) ${SETTLE_ANEW}`,
};

// Once the last member has left, a ghost that is joined and settled has nobody to serve: when it finds that so,
// it leaves.
const MEMBER_LEFT: Statement = {
  name: "member_left",
  text: `
  WITH gone AS (DELETE FROM bridge_room_members WHERE room_id = $1 AND user_id = $2 RETURNING 1),
  anew AS (${SETTLE_ANEW})
  UPDATE bridge_ghost_rooms SET task = 'settle', due_at = $3, attempts = 0
  WHERE room_id = $1 AND membership = 'join' AND task IS NULL AND EXISTS (SELECT FROM gone)
    AND NOT EXISTS (SELECT FROM bridge_room_members m WHERE m.room_id = $1 AND m.user_id <> $2)`,
};

const ENCRYPTED: Statement = {
  name: "room_encrypted",
  text: `
  WITH room AS (
    INSERT INTO bridge_rooms AS r (room_id, encrypted) VALUES ($1, true)
    ON CONFLICT (room_id) DO UPDATE SET encrypted = true
  )
  INSERT INTO bridge_notices (marker, kind, room_id, ghost_mxid, transaction_id, created_at, due_at)
  SELECT $2, 'encrypted_room_refused', $1, min(g.ghost_mxid), $3, $4, $4
  FROM bridge_ghost_rooms g WHERE g.room_id = $1 AND g.membership = 'join' AND $5 HAVING count(*) > 0
  ON CONFLICT DO NOTHING`,
};

/** Applies room state in the order it came. Runs inside the intake's transaction. */
export async function applyRoomState(
  on: Queryable,
  events: readonly RoomStateEvent[],
  now: number,
  encryptionMode: EncryptionMode,
): Promise<void> {
  const time = toTime(now);
  for (const event of events) {
    switch (event.kind) {
      case "ghost":
        await rows(on, GHOST_EVENT, [
          event.room,
          event.ghost,
          event.membership,
          event.inviter ?? null,
          event.direct,
          time,
          event.originServerTs ?? null,
        ]);
        break;
      case "member":
        if (event.joined) await rows(on, MEMBER_JOINED, [event.room, event.user, time]);
        else await rows(on, MEMBER_LEFT, [event.room, event.user, time]);
        break;
      case "encryption": {
        const marker = encryptedRoomMarker(event.room);
        await rows(on, ENCRYPTED, [
          event.room,
          marker,
          noticeTransactionId(marker),
          time,
          isRefused(encryptionMode),
        ]);
        break;
      }
    }
  }
}

const CATCHUP_ROOM_STATE: Statement = {
  name: "catchup_room_state",
  text: `
  UPDATE bridge_ghost_rooms SET task = 'settle', due_at = $3, attempts = 0
  WHERE ghost_mxid = $1 AND ($2::text[] IS NULL OR room_id = ANY ($2)) AND membership = 'join' AND task IS NULL`,
};

/**
 * Has a ghost ask again who is in its rooms: some of what happened there was never told.
 * @param rooms all that it is in when undefined
 */
export async function catchupRoomState(
  on: Queryable,
  ghost: GhostMxid,
  inRooms: readonly RoomId[] | undefined,
  now: number,
): Promise<void> {
  await rows(on, CATCHUP_ROOM_STATE, [ghost, inRooms ?? null, toTime(now)]);
}

const JOINED_GHOSTS: Statement = {
  name: "joined_ghosts",
  text: `SELECT room_id, array_agg(ghost_mxid ORDER BY ghost_mxid) FILTER (WHERE membership = 'join') AS ghosts
         FROM bridge_ghost_rooms WHERE room_id = ANY ($1) GROUP BY room_id`,
};

export async function joinedGhosts(
  on: Queryable,
  roomIds: readonly RoomId[],
): Promise<ReadonlyMap<RoomId, readonly GhostMxid[]>> {
  if (roomIds.length === 0) return new Map();
  const found = await rows<{ room_id: string; ghosts: string[] | null }>(on, JOINED_GHOSTS, [roomIds]);
  return new Map(found.map((row) => [row.room_id as RoomId, (row.ghosts ?? []) as GhostMxid[]]));
}
