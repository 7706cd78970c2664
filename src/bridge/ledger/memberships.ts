// Which ghosts are in which rooms, and the task that each has there: answer an invitation, read the room, or leave.
// Invariants: the result of a task, but for the room's encryption, is recorded only under the fence it was claimed with, which
// a newer membership event raises; of the invitations of one server, or of all that no agent allows, no more are claimed than
// its share; events may arrive in another order than they happened, and the homeserver passes on some that are not part of
// their room, so that what is told of a ghost that is in a room, or of its encryption, and a change in a room of few people,
// leads to a task: only what is read of the room counts.
import type { Pool } from "pg";
import type { GhostMxid, RoomId, ServerName, UserId } from "../../domain/identifiers.ts";
import type { LedgerSettings, RoomStateEvent } from "./admission-types.ts";
import { claimInShares, type Share } from "./claim-shares.ts";
import { encryptedRoomMarker } from "./notices.ts";
import { type ClaimRequest, claimValues, type Queryable, statement, toTime } from "./postgres.ts";
import { noticeTransactionId } from "./transaction-ids.ts";

export type InvitingServer = ServerName | "";

export interface ClaimedMembership {
  readonly roomId: RoomId;
  readonly ghost: GhostMxid;
  readonly fence: string;
  /** `answer_invite`: decide by policy; `settle`: read the room's state; `leave`: nobody is left to serve. */
  readonly task: "answer_invite" | "settle" | "leave";
  readonly inviter: UserId | undefined;
  /** The server whose share it takes, empty for all that no agent allows; undefined when it is about no invitation. */
  readonly invitingServer: InvitingServer | undefined;
  readonly attempts: number;
}

// Whoever has a domain has any number of servers in it, so that those that no agent allows ($6) count as one.
const INVITING_SERVER = `CASE WHEN membership <> 'invite' THEN NULL
  WHEN bridge_server_of(inviter) = ANY ($6) THEN bridge_server_of(inviter) ELSE '' END`;

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
const mine = ({ roomId, ghost, fence }: ClaimedMembership) => [roomId, ghost, fence] as const;

const JOINED = statement("membership_joined")`
  UPDATE bridge_ghost_rooms SET
    membership = 'join', inactive_since = NULL, invited_at = NULL, task = 'settle', due_at = $4, attempts = 0
  ${MINE}`;

// $4: encrypted, which a room stays: it counts whatever has come of the task, which members could raise the fence of again and
// again. $5: members without ghosts, which are looked up in a hash: of a large room each of the recorded ones is.
const ROOM_READ = statement("room_facts")`
  WITH settled AS (
    UPDATE bridge_ghost_rooms SET
      membership = 'join', inactive_since = NULL, invited_at = NULL,
      task = CASE WHEN cardinality($5::text[]) = 0 THEN 'leave' END,
      due_at = CASE WHEN cardinality($5::text[]) = 0 THEN $6::timestamptz END, attempts = 0
    ${MINE} RETURNING room_id, ghost_mxid
  ), room AS (
    INSERT INTO bridge_rooms AS r (room_id, encrypted) SELECT $1, $4::boolean WHERE $4 OR EXISTS (SELECT FROM settled)
    ON CONFLICT (room_id) DO UPDATE SET encrypted = r.encrypted OR excluded.encrypted
  ), gone AS (
    DELETE FROM bridge_room_members m USING settled s
    WHERE m.room_id = s.room_id AND m.user_id NOT IN (SELECT unnest($5::text[]))
  ), present AS (
    INSERT INTO bridge_room_members (room_id, user_id)
    SELECT s.room_id, u FROM settled s, unnest($5::text[]) u ON CONFLICT DO NOTHING
  )
  INSERT INTO bridge_notices (marker, kind, room_id, ghost_mxid, transaction_id, created_at, due_at)
  SELECT $7, 'encrypted_room_refused', s.room_id, s.ghost_mxid, $8, $6, $6 FROM settled s WHERE $4 AND $9
  ON CONFLICT DO NOTHING`;

/** The ghost was taken for a member when it was invited again, and is none. */
const INVITED_AGAIN = "task = 'settle' AND invited_at IS NOT NULL";

const LEFT = statement("membership_left")`
  UPDATE bridge_ghost_rooms SET
    membership = CASE WHEN ${INVITED_AGAIN} THEN 'invite' ELSE 'leave' END,
    inactive_since = CASE WHEN ${INVITED_AGAIN} THEN NULL ELSE $4::timestamptz END,
    task = CASE WHEN ${INVITED_AGAIN} THEN 'answer_invite' END,
    due_at = CASE WHEN ${INVITED_AGAIN} THEN $4::timestamptz END, attempts = 0
  ${MINE}`;

const DEFERRED = statement("membership_deferred")`
  UPDATE bridge_ghost_rooms SET due_at = $4, holder = NULL, attempts = attempts + 1 ${MINE}`;

const CATCHUP_ROOM_STATE = statement("catchup_room_state")`
  UPDATE bridge_ghost_rooms SET task = 'settle', due_at = $3, attempts = 0
  WHERE ghost_mxid = $1 AND ($2::text[] IS NULL OR room_id = ANY ($2)) AND membership = 'join' AND task IS NULL`;

// Where no ghost has joined yet, an event that comes before its join may be for one that is invited.
const JOINED_GHOSTS = statement<{ room_id: string; ghosts: string[] | undefined }>("joined_ghosts")`
  SELECT room_id, COALESCE(array_agg(ghost_mxid ORDER BY ghost_mxid) FILTER (WHERE membership = 'join'),
    array_agg(ghost_mxid ORDER BY ghost_mxid) FILTER (WHERE membership = 'invite')) AS ghosts
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

export function createMemberships(pool: Pool, { isGhost, servesEncryptedRooms = false }: LedgerSettings) {
  const recordAt = (write: typeof JOINED) => (membership: ClaimedMembership, time: number) =>
    write.run(pool, [...mine(membership), toTime(time)]);
  return {
    /** @param request `allowed`: the servers that an agent allows */
    claim(
      request: ClaimRequest & {
        readonly share?: Share<InvitingServer>;
        readonly allowed?: ReadonlySet<string>;
      },
    ) {
      const claim = (limit: number, full: readonly InvitingServer[]) => {
        const values = claimValues({ ...request, limit }).slice(0, 4);
        return CLAIM.rows(pool, [...values, full, [...(request.allowed ?? [])]]);
      };
      return claimInShares(request, claim, ({ invitingServer }) => invitingServer);
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
        !servesEncryptedRooms,
      ]);
    },

    recordLeft: recordAt(LEFT),
    defer: recordAt(DEFERRED),

    /** Has a ghost read these rooms, or all that it is in, again, because events of them may have been missed. */
    catchupRoomState: (ghost: GhostMxid, inRooms: readonly RoomId[] | undefined, now: number) =>
      CATCHUP_ROOM_STATE.run(pool, [ghost, inRooms, toTime(now)]),

    joinedGhosts: (inRooms: readonly RoomId[]) => joinedGhosts(pool, inRooms),

    /** Whether the room is known to be encrypted; encryption is never switched off again. */
    isRoomEncrypted: async (room: RoomId) => (await ROOM_ENCRYPTED.one(pool, [room])).encrypted,
  };
}

// An invitation or a leave of a ghost that is joined makes it read the room's state, and changes nothing else: a leave may be
// out of date, and any server may invite to any room (Synapse passes such an invitation on). Whether it was invited again is
// kept for when it is found to be out. A leave that is older than the invitation is ignored. So is an invitation of a ghost
// that has no agent and never had one ($8 false, no row in bridge_ghosts), because anybody can invite any number of names, and
// a leave from a room without a record.
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
    membership = CASE g.membership WHEN 'join' THEN 'join' ELSE excluded.membership END,
    inactive_since = CASE WHEN g.membership <> 'join' THEN excluded.inactive_since END,
    inviter = COALESCE(excluded.inviter, g.inviter),
    direct = CASE WHEN g.membership <> 'join' AND $3 = 'invite' THEN excluded.direct ELSE g.direct END,
    task = CASE
      WHEN g.membership <> 'join' THEN excluded.task WHEN $3 = 'join' THEN g.task ELSE 'settle' END,
    due_at = CASE
      WHEN g.membership <> 'join' THEN excluded.due_at WHEN $3 = 'join' THEN g.due_at ELSE $6::timestamptz END,
    fence = g.fence + CASE WHEN g.membership = 'join' AND $3 = 'join' THEN 0 ELSE 1 END,
    invited_at = CASE
      WHEN $3 = 'invite' AND g.membership <> 'leave' THEN GREATEST(g.invited_at, excluded.invited_at)
      WHEN g.membership = 'join' AND ($3 = 'join' OR $7::bigint < g.invited_at) THEN g.invited_at
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
  UPDATE bridge_ghost_rooms SET task = 'settle', due_at = $2, fence = fence + 1, attempts = 0
  WHERE room_id = $1 AND membership = 'join'
    AND NOT EXISTS (SELECT FROM bridge_rooms r WHERE r.room_id = $1 AND r.encrypted)`;

/** Applies an event of a room's state. Runs inside the transaction of an admission. */
export async function applyRoomState(on: Queryable, event: RoomStateEvent, now: number): Promise<void> {
  const { kind, room } = event;
  const time = toTime(now);
  if (kind === "encryption") return ENCRYPTED.run(on, [room, time]);
  if (kind === "member")
    return (event.joined ? MEMBER_JOINED : MEMBER_LEFT).run(on, [room, event.user, time]);
  const { ghost, membership, inviter, direct, originServerTs, hasAgent } = event;
  await GHOST_EVENT.run(on, [room, ghost, membership, inviter, direct, time, originServerTs, hasAgent]);
}
