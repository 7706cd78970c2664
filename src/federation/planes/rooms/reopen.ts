// Lets partners back into the rooms that they were taken out of, from the journals.
// Invariant: in each room the ACL is restored and seen to be enforced, stale entries mended, before a ban is
// lifted; what cannot come back is named.
import type { ServerName } from "../../../domain/identifiers.ts";
import type { OutOfReach } from "../plane.ts";
import { type EnforcementCounts, enforceAtHome, enforceAtRetained } from "./enforcement.ts";
import type { RoomRecord } from "./journal.ts";
import { ROOM_REASONS, type RoomReason } from "./reasons.ts";
import { reopenAcl, reopenMembers } from "./reopen-room.ts";
import type { RoomState } from "./room-state.ts";
import { journalOf, ROOMS_AT_ONCE, type RoomsSession } from "./session.ts";
import { sideBySide } from "./side-by-side.ts";

export interface Reopened {
  readonly changed: boolean;
  readonly outOfReach: readonly OutOfReach[];
}

/** Takes back what the journals of these partners hold. */
export async function reopenRooms(session: RoomsSession, partners: readonly ServerName[]): Promise<Reopened> {
  const outOfReach: OutOfReach[] = [];
  let changed = false;
  for (const partner of partners) {
    const miss = (subject: string, reason: RoomReason) =>
      outOfReach.push({ partner, subject, reason, mend: ROOM_REASONS[reason] });
    const records = journalOf(session, partner).rooms;
    const ended = records.filter(({ gone, replace }) => gone !== undefined || replace !== undefined);
    await forget(session, partner, ended);

    const restorable = records.filter((record) => !ended.includes(record));
    const counts: EnforcementCounts = { checked: 0, stale: 0, mended: 0, resent: 0 };
    const states: RoomState[] = [];
    await sideBySide(restorable, ROOMS_AT_ONCE, async (record) => {
      const room = await reopenAcl(session, partner, record);
      if (room.changed) changed = true;
      for (const { reason } of room.obstacles) miss(record.room, reason);
      if (room.state === undefined) return;
      states.push(room.state);
      const gap = await enforceAtHome(session, room.state, counts);
      if (gap !== undefined) miss(record.room, gap.reason);
    });
    for (const gap of await enforceAtRetained(session, states, counts)) {
      miss(`${gap.room} at ${gap.server}`, gap.reason);
    }
    const blocked = new Set(outOfReach.map(({ subject }) => subject));
    await sideBySide(restorable, ROOMS_AT_ONCE, async (record) => {
      if (blocked.has(record.room)) return;
      const room = await reopenMembers(session, partner, record);
      if (room.changed) changed = true;
      for (const { reason } of room.obstacles) miss(record.room, reason);
    });
    session.note(
      `${partner}: ${restorable.length} rooms reopened, ${counts.stale} stale at home, ${counts.mended} mended`,
    );
  }
  return { changed, outOfReach };
}

/** Rooms that were left or replaced stay so: they are named, and their records end. */
async function forget(
  session: RoomsSession,
  partner: ServerName,
  ended: readonly RoomRecord[],
): Promise<void> {
  for (const { room, replacement } of ended) {
    const instead = replacement === undefined ? "nothing replaces it" : `its users are in ${replacement.to}`;
    session.note(`${room} does not come back for ${partner}: ${instead}`);
    await journalOf(session, partner).append({ act: "lifted", room });
  }
}
