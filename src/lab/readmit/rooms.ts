// The rooms that two organisations share again. What a removal has replaced is gone from the lab's list, its
// address leads to what is in its place; that is open to whoever is invited, so the partner's people and ghosts are invited.
import { parseRoomId } from "../../domain/identifiers.ts";
import { SOURCES } from "../break-glass/scene.ts";
import { agentsOf, ghostFor } from "../endpoints.ts";
import { writeJson } from "../files.ts";
import type { Lab } from "../lab.ts";
import { COMPLETE_ORGANISATIONS, type OrganisationName, partnerOf } from "../organisations.ts";
import type { Progress } from "../progress.ts";
import { sharedAlias } from "../seed/rooms.ts";
import { personOf, type Seed, seed as seedRooms } from "../seed/seed.ts";

/** @throws DrawbridgeError `homeserver_refused`, `program_failed` when people or ghosts do not come */
export async function shareRooms(lab: Lab, before: Seed, progress: Progress): Promise<Seed> {
  const roomAt = async (createdBy: OrganisationName) => {
    const creator = personOf(lab, before, createdBy, SOURCES);
    const alias = encodeURIComponent(sharedAlias(lab, createdBy));
    const { status, body } = await creator.request("GET", `/directory/room/${alias}`);
    return status === 200 ? parseRoomId(body["room_id"]) : undefined;
  };
  for (const organisation of COMPLETE_ORGANISATIONS) {
    const room = await roomAt(organisation);
    if (room === undefined) continue;
    const partner = partnerOf(organisation);
    const inviter = personOf(lab, before, organisation, SOURCES);
    const ghosts = agentsOf(partner).map(({ publisher }) => ghostFor(lab, partner, publisher));
    for (const user of [personOf(lab, before, partner, SOURCES).userId, ...ghosts]) {
      // Refused where that one is in the room already.
      await inviter.request("POST", `/rooms/${encodeURIComponent(room)}/invite`, { user_id: user });
    }
  }
  const rooms: Seed["rooms"][number][] = [];
  for (const room of before.rooms) {
    if ((await roomAt(room.createdBy)) === room.roomId) rooms.push(room);
  }
  writeJson(lab.paths.seed, { ...before, rooms } satisfies Seed);
  return seedRooms(lab, SOURCES, progress);
}
