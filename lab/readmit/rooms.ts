// The rooms that two organisations share again. What a removal has replaced is gone from the lab's list, its
// address leads to what is in its place; that is open to whoever is invited, so the partner's people and ghosts are
// invited. The person comes first: what happens in a room while a server is joining it may not reach that server.
import { parseRoomId, type RoomId } from "../../src/domain/identifiers.ts";
import { SOURCES } from "../break-glass/contain.ts";
import { agentsOf, ghostFor } from "../endpoints.ts";
import { writeJson } from "../files.ts";
import type { Lab } from "../lab.ts";
import type { MatrixUser } from "../matrix-user.ts";
import { COMPLETE_ORGANISATIONS, type OrganisationName, partnerOf } from "../organisations.ts";
import type { Progress } from "../progress.ts";
import { bringGhost, notIn } from "../seed/memberships.ts";
import { sharedAlias } from "../seed/rooms.ts";
import { formOf, personOf, ROOM_FORMS, type RoomForm, type Seed, seed as seedRooms } from "../seed/seed.ts";

const JOINED_WITHIN_MS = 90_000;
const POLL_MS = 500;

/** @throws DrawbridgeError `homeserver_refused`, `program_failed` when people or ghosts do not come */
export async function shareRooms(lab: Lab, before: Seed, progress: Progress): Promise<Seed> {
  const roomAt = async (createdBy: OrganisationName, form: RoomForm) => {
    const creator = personOf(lab, before, createdBy, SOURCES);
    const alias = encodeURIComponent(sharedAlias(lab, createdBy, form));
    const { status, body } = await creator.request("GET", `/directory/room/${alias}`);
    return status === 200 ? parseRoomId(body["room_id"]) : undefined;
  };
  const shared = COMPLETE_ORGANISATIONS.flatMap((name) => ROOM_FORMS.map((form) => [name, form] as const));
  for (const [organisation, form] of shared) {
    const room = await roomAt(organisation, form);
    // Of a replacement that stands for it, who made that one.
    const maker = before.rooms.find(({ roomId }) => roomId === room)?.replacedBy ?? organisation;
    const partner = partnerOf(maker);
    const host = personOf(lab, before, maker, SOURCES);
    const guest = personOf(lab, before, partner, SOURCES);
    // A room that its own organisation has kept may be one that the partner's server has given up for good.
    if (room === undefined || !(await bringGuest(room, host, guest, lab.serverNames[maker]))) continue;
    for (const { publisher } of agentsOf(partner)) {
      await bringGhost(room, { host, guest }, ghostFor(lab, partner, publisher), SOURCES.clock);
    }
  }
  const rooms: Seed["rooms"][number][] = [];
  for (const room of before.rooms) {
    if ((await roomAt(room.createdBy, formOf(room))) === room.roomId) rooms.push(room);
  }
  writeJson(lab.paths.seed, { ...before, rooms } satisfies Seed);
  return seedRooms(lab, SOURCES, progress);
}

/** @returns false when the guest's own homeserver lets nobody into the room any more */
async function bringGuest(room: RoomId, host: MatrixUser, guest: MatrixUser, via: string): Promise<boolean> {
  const { clock } = SOURCES;
  // Refused where that person is in the room already.
  await host.request("POST", pathOf(room, "invite"), { user_id: guest.userId });
  for (const deadline = clock.now() + JOINED_WITHIN_MS; ; await clock.sleep(POLL_MS)) {
    const { status, body } = await guest.join(room, [via]);
    if (status === 200) break;
    if (String(body["error"]).startsWith("This room has been blocked")) return false;
    if (clock.now() > deadline) throw notIn(room, guest.userId, `${status} ${String(body["errcode"])}`);
  }
  // Answered only when the homeserver has the room's whole state.
  await guest.members(room);
  return true;
}

function pathOf(room: RoomId, rest: string): string {
  return `/rooms/${encodeURIComponent(room)}/${rest}`;
}
