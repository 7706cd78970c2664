// Which ghosts are in which rooms, and the task that each has there: answer an invitation, read the room, or leave.
// Invariants: the result of a task is recorded only under the fence it was claimed with, otherwise no row matches; of the
// invitations of one server no more are claimed than its share.
import type { Pool } from "pg";
import type { GhostMxid, RoomId, ServerName, UserId } from "../../domain/identifiers.ts";
import { encryptedRoomMarker } from "./notices.ts";
import {
  type ClaimRequest,
  claimValues,
  type Queryable,
  type Statement,
  statement,
  toTime,
} from "./postgres.ts";
import { type Share, Shares } from "./shares.ts";
import { noticeTransactionId } from "./transaction-ids.ts";

export interface ClaimedMembership {
  readonly roomId: RoomId;
  readonly ghost: GhostMxid;
  readonly fence: string;
  /** `answer_invite`: decide by policy; `settle`: read the room's state; `leave`: nobody is left to serve. */
  readonly task: "answer_invite" | "settle" | "leave";
  readonly inviter: UserId | undefined;
  /** The server whose share it takes; undefined when it is about no invitation. */
  readonly invitingServer: ServerName | undefined;
  readonly attempts: number;
}

const INVITING_SERVER = "CASE WHEN membership = 'invite' THEN bridge_server_of(inviter) END";

const CLAIM = statement<ClaimedMembership>("claim_memberships")`
  WITH due AS MATERIALIZED (
    SELECT room_id, ghost_mxid, ${INVITING_SERVER} AS server FROM bridge_ghost_rooms
    WHERE due_at <= $2 AND (${INVITING_SERVER} = ANY ($5)) IS NOT TRUE ORDER BY due_at LIMIT $1 FOR UPDATE SKIP LOCKED
  )
  UPDATE bridge_ghost_rooms g SET due_at = $3, holder = $4, fence = g.fence + 1
  FROM due WHERE g.room_id = due.room_id AND g.ghost_mxid = due.ghost_mxid
  RETURNING g.room_id AS "roomId", g.ghost_mxid AS ghost, g.fence, g.task, g.inviter,
    due.server AS "invitingServer", g.attempts`;

const MINE = "WHERE room_id = $1 AND ghost_mxid = $2 AND fence = $3";
const mine = (membership: ClaimedMembership) =>
  [membership.roomId, membership.ghost, membership.fence] as const;

const JOINED = statement("membership_joined")`
  UPDATE bridge_ghost_rooms SET membership = 'join', inactive_since = NULL, task = 'settle', due_at = $4, attempts = 0
  ${MINE}`;

// $4: encrypted; $5: members without ghosts.
const ROOM_READ = statement("room_facts")`
  WITH settled AS (
    UPDATE bridge_ghost_rooms SET
      membership = 'join', inactive_since = NULL,
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
  ON CONFLICT DO NOTHING`;

const LEFT = statement("membership_left")`
  UPDATE bridge_ghost_rooms SET membership = 'leave', inactive_since = $4, task = NULL, due_at = NULL, attempts = 0
  ${MINE}`;

const DEFERRED = statement("membership_deferred")`
  UPDATE bridge_ghost_rooms SET due_at = $4, holder = NULL, attempts = attempts + 1 ${MINE}`;

const CATCHUP_ROOM_STATE = statement("catchup_room_state")`
  UPDATE bridge_ghost_rooms SET task = 'settle', due_at = $3, attempts = 0
  WHERE ghost_mxid = $1 AND ($2::text[] IS NULL OR room_id = ANY ($2)) AND membership = 'join' AND task IS NULL`;

const JOINED_GHOSTS = statement<{ room_id: string; ghosts: string[] | null }>("joined_ghosts")`
  SELECT room_id, array_agg(ghost_mxid ORDER BY ghost_mxid) FILTER (WHERE membership = 'join') AS ghosts
  FROM bridge_ghost_rooms WHERE room_id = ANY ($1) GROUP BY room_id`;

/** A room without any record is missing from the map. */
export async function joinedGhosts(
  on: Queryable,
  roomIds: readonly RoomId[],
): Promise<ReadonlyMap<RoomId, readonly GhostMxid[]>> {
  if (roomIds.length === 0) return new Map();
  const found = await JOINED_GHOSTS.rows(on, [roomIds]);
  return new Map(found.map((row) => [row.room_id as RoomId, (row.ghosts ?? []) as GhostMxid[]]));
}

const ROOM_ENCRYPTED = statement<{ encrypted: boolean }>("is_room_encrypted")`
  SELECT EXISTS (SELECT FROM bridge_rooms WHERE room_id = $1 AND encrypted) AS encrypted`;

/**
 * @param isGhost tells ghosts, and the appservice's own user, from people
 * @param refuseEncryptedRooms whether a room that turns out to be encrypted gets the notice that it is refused
 */
export function createMemberships(
  pool: Pool,
  isGhost: (user: UserId) => boolean,
  refuseEncryptedRooms: boolean,
) {
  const recordAt = (write: Statement) => (membership: ClaimedMembership, time: number) =>
    write.run(pool, [...mine(membership), toTime(time)]);
  return {
    async claim(
      request: ClaimRequest & { readonly share?: Share<ServerName> },
    ): Promise<ClaimedMembership[]> {
      const shares = new Shares(request.share);
      const claimed: ClaimedMembership[] = [];
      for (;;) {
        const limit = Math.min(request.limit - claimed.length, shares.size);
        if (limit === 0) return claimed;
        const values = [...claimValues({ ...request, limit }).slice(0, 4), shares.full];
        const found = await CLAIM.entities(pool, values);
        for (const { invitingServer } of found) if (invitingServer !== undefined) shares.take(invitingServer);
        claimed.push(...found);
        if (found.length < limit && !shares.next()) return claimed;
      }
    },

    recordJoined: recordAt(JOINED),

    /** The room's state was read; `members` include ghosts. Writes the notice of a refused encrypted room as well. */
    async recordRoomFacts(
      membership: ClaimedMembership,
      facts: { readonly encrypted: boolean; readonly members: readonly UserId[] },
      now: number,
    ): Promise<void> {
      const marker = encryptedRoomMarker(membership.roomId);
      await ROOM_READ.run(pool, [
        ...mine(membership),
        facts.encrypted,
        facts.members.filter((member) => !isGhost(member)),
        toTime(now),
        marker,
        noticeTransactionId(marker),
        refuseEncryptedRooms,
      ]);
    },

    recordLeft: recordAt(LEFT),

    defer: recordAt(DEFERRED),

    /** Has a ghost read these rooms, or all that it is in, again, because events of them may have been missed. */
    catchupRoomState: (ghost: GhostMxid, inRooms: readonly RoomId[] | undefined, now: number) =>
      CATCHUP_ROOM_STATE.run(pool, [ghost, inRooms, toTime(now)]),

    joinedGhosts: (inRooms: readonly RoomId[]) => joinedGhosts(pool, inRooms),

    /** Whether the room is known to be encrypted; encryption is never switched off again. */
    async isRoomEncrypted(room: RoomId): Promise<boolean> {
      return (await ROOM_ENCRYPTED.one(pool, [room])).encrypted;
    },
  };
}
