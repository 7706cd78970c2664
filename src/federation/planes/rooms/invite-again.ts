// Invites again the users whom this plane took out of a room, once everything else is taken back: a ban that is lifted
// leaves its user outside, and nobody comes into a private room without an invitation.
// Invariants: only users who were in the room, or invited, are invited, and nobody whose membership somebody has
// changed since; nobody after a removal; what a partner's server refuses is its own decision.
import { DrawbridgeError } from "../../../domain/errors.ts";
import { type ServerName, serverOf, type UserId } from "../../../domain/identifiers.ts";
import type { ActingUser } from "../../homeserver/acting-user.ts";
import { deniedByEnforcement } from "./acl.ts";
import { inviteLevel, levelOf } from "./power-levels.ts";
import type { Obstacle } from "./room-plan.ts";
import type { RoomState } from "./room-state.ts";
import { actingAs, planFor, type RoomsSession, readRoom } from "./session.ts";
import type { RoomRecord } from "./undo-journal.ts";

export interface InvitationCounts {
  invited: number;
  /** Invitations that the homeserver, or the partner's, refused. */
  refused: number;
}

/**
 * Invites into the room, or into the one that replaces it.
 * @param state of the room as it is now, its bans lifted
 * @returns why some users could not be invited; undefined when none is left
 */
export async function inviteAgain(
  session: RoomsSession,
  partner: ServerName,
  record: RoomRecord,
  state: RoomState,
  counts: InvitationCounts,
): Promise<Obstacle["reason"] | undefined> {
  const { actor } = planFor(session, state);
  const users = whoToInvite(session, partner, record, state, actor);
  if (users.length === 0) return undefined;
  if (actor === undefined) return session.tokens.unusable.size > 0 ? "no_actor" : "left";
  if (levelOf(state.power, actor) < inviteLevel(state.power)) return "no_power";
  // Where the ACL still denies them they could not accept.
  if (state.acl !== undefined && deniedByEnforcement(state.acl.content, partner)) return "not_invited";
  const acting = await actingAs(session, actor);
  if (acting === undefined) return inviteAgain(session, partner, record, state, counts);
  for (const user of users) {
    const isTaken = await invite(acting, state, user);
    if (isTaken === undefined) return "not_invited";
    if (isTaken) counts.invited += 1;
    else counts.refused += 1;
  }
  return undefined;
}

/** The state of the room that replaces one that was left; undefined when there is none to invite into. */
export async function replacementOf(
  session: RoomsSession,
  { replacement }: RoomRecord,
): Promise<RoomState | undefined> {
  return replacement === undefined ? undefined : readRoom(session, replacement.to);
}

/** Undefined when the partner's server could not be reached. */
async function invite(acting: ActingUser, state: RoomState, user: UserId): Promise<boolean | undefined> {
  try {
    return await acting.invite(state.roomId, user);
  } catch (error) {
    if (error instanceof DrawbridgeError && error.code === "homeserver_unavailable") return undefined;
    throw error;
  }
}

function whoToInvite(
  { intent }: RoomsSession,
  partner: ServerName,
  { room, bans, replace, removed }: RoomRecord,
  state: RoomState,
  actor: UserId | undefined,
): readonly UserId[] {
  if (removed === true || intent.notInvitedAgain.includes(partner)) return [];
  const before = new Map((replace?.users ?? []).map((one) => [one.user, one.before]));
  for (const [user, ban] of bans) before.set(user, ban.before);
  const isElsewhere = state.roomId !== room;
  return (
    [...before]
      .filter(([, how]) => how === "join" || how === "invite")
      .map(([user]) => user)
      // Another server name on the partner's host was put out with it, and is nobody who is admitted.
      .filter((user) => serverOf(user) === partner)
      .filter((user) => {
        const member = state.members.get(user);
        if (isElsewhere && member === undefined) return true;
        // A user who left, or was kicked by somebody else since, is not invited. A replacement may have been in use before:
        // then the users' own homeserver took them out of it, in their names, when it replaced that one in turn.
        const leftBy: readonly (string | undefined)[] = isElsewhere ? [user] : [bans.get(user)?.actor, actor];
        return member?.membership === "leave" && leftBy.includes(member.sender);
      })
      .sort()
  );
}
