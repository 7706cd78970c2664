// Lets partners back into the rooms that they were taken out of, from the journals.
// Invariants: in each room the ACL is restored and observed to be enforced, stale entries repaired, before a ban is
// lifted; people are invited when all bans are lifted; a record ends only when everything that can be taken back is;
// what cannot come back is named.
import { type RoomId, type ServerName, visibleId } from "../../../domain/identifiers.ts";
import { mapConcurrent } from "../../../runtime/concurrency.ts";
import type { OutOfReach } from "../plane.ts";
import { type EnforcementCounts, enforceAtHome, enforceAtRetained } from "./acl-enforcement.ts";
import { type InvitationCounts, inviteAgain, replacementOf } from "./invite-again.ts";
import { reopenAcl, reopenMembers } from "./reopen-one-room.ts";
import { ROOM_REASONS, type RoomReason } from "./room-reasons.ts";
import type { RoomState } from "./room-state.ts";
import { journalOf, ROOMS_AT_ONCE, type RoomsPass, type RoomsSession } from "./session.ts";
import type { RoomRecord } from "./undo-journal.ts";

/** Takes back what the journals of these partners hold. */
export async function reopenRooms(
  session: RoomsSession,
  partners: readonly ServerName[],
): Promise<RoomsPass> {
  const outOfReach: OutOfReach[] = [];
  let changed = false;
  for (const partner of partners) {
    const miss = (room: RoomId, reason: RoomReason, at = "") =>
      outOfReach.push({ partner, subject: `${visibleId(room)}${at}`, reason, hint: ROOM_REASONS[reason] });
    const records = journalOf(session, partner).rooms;
    const ended = records.filter(({ gone, replace }) => gone !== undefined || replace !== undefined);
    const restorable = records.filter((record) => !ended.includes(record));
    const counts: EnforcementCounts = { checked: 0, stale: 0, repaired: 0, resent: 0 };
    const states: RoomState[] = [];
    await mapConcurrent(restorable, ROOMS_AT_ONCE, async (record) => {
      const room = await reopenAcl(session, partner, record);
      if (room.changed) changed = true;
      for (const { reason } of room.obstacles) miss(record.room, reason);
      if (room.state !== undefined) states.push(room.state);
    });
    const reopened = states.map(({ roomId }) => roomId);
    for (const gap of await enforceAtHome(session, reopened, counts)) miss(gap.room, gap.reason);
    for (const gap of await enforceAtRetained(session, states, counts)) {
      miss(gap.room, gap.reason, ` at ${gap.server}`);
    }
    const back: (readonly [RoomRecord, RoomState])[] = [];
    const blocked = new Set(outOfReach.map(({ subject }) => subject));
    await mapConcurrent(restorable, ROOMS_AT_ONCE, async (record) => {
      if (blocked.has(visibleId(record.room))) return;
      const room = await reopenMembers(session, partner, record);
      if (room.changed) changed = true;
      for (const { reason } of room.obstacles) miss(record.room, reason);
      if (room.state !== undefined && room.obstacles.length === 0) back.push([record, room.state]);
    });
    for (const record of ended) {
      const state = await replacementOf(session, record);
      if (isBlockedFor(session, partner, record)) await session.operator.unblock(record.room);
      const instead = state === undefined ? "nothing replaces it" : `its users are in ${state.roomId}`;
      session.note(`${record.room} does not come back for ${partner}: ${instead}`);
      if (state === undefined) await journalOf(session, partner).append({ act: "lifted", room: record.room });
      else back.push([record, state]);
    }
    const invitations: InvitationCounts = { invited: 0, refused: 0 };
    await mapConcurrent(back, ROOMS_AT_ONCE, async ([record, state]) => {
      const reason = await inviteAgain(session, partner, record, state, invitations);
      if (reason === undefined)
        await journalOf(session, partner).append({ act: "lifted", room: record.room });
      else miss(state.roomId, reason);
    });
    if (invitations.invited > 0) changed = true;
    session.note(
      `${partner}: ${restorable.length} rooms reopened, ${counts.stale} stale at home, ${counts.repaired} repaired; ` +
        `${invitations.invited} invited again, ${invitations.refused} refused`,
    );
  }
  return { changed, outOfReach };
}

/** Whether a containment has blocked the room, of this partner alone: a removal leaves its rooms blocked for good. */
function isBlockedFor(
  { journals }: RoomsSession,
  partner: string,
  { room, gone, removed }: RoomRecord,
): boolean {
  if (gone === undefined || gone.purged || removed === true) return false;
  return [...journals].every(
    ([other, records]) => other === partner || records.room(room)?.gone === undefined,
  );
}

/**
 * Marks every room of a partner that is removed for good: a later re-admission is a new partnership, whose operator
 * chooses whom to invite.
 */
export async function markRemoved(session: RoomsSession): Promise<void> {
  for (const { serverName, mode } of session.intent.closing) {
    if (mode !== "removed") continue;
    const journal = journalOf(session, serverName as ServerName);
    const unmarked = journal.rooms.filter(({ removed }) => removed === undefined);
    await journal.append(...unmarked.map(({ room }) => ({ act: "removed", room }) as const));
  }
}
