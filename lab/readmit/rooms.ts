// The rooms that two organisations share again after a re-admission. A room that the removal has replaced leaves the
// lab's list, and its address leads to the replacement, which admits invited people alone: so the partner's people and
// ghosts are invited. The person comes first, since an event that is sent while a server joins may not reach it.
import type { RoomId } from "../../src/domain/identifiers.ts";
import { agentsOf, ghostFor } from "../endpoints.ts";
import { writeJson } from "../files.ts";
import { type Lab, pollFor } from "../lab.ts";
import type { MatrixUser } from "../matrix-user.ts";
import { COMPLETE_ORGANISATIONS, type OrganisationName, partnerOf } from "../organisations.ts";
import type { Progress } from "../progress.ts";
import { bringGhost, notIn } from "../seed/memberships.ts";
import { seedRooms, sharedAlias } from "../seed/rooms.ts";
import { formOf, personOf, ROOM_FORMS, type RoomForm, type Seed } from "../seed/seed-file.ts";

const JOINED = { timeoutMs: 90_000, everyMs: 500 };

/** @throws DrawbridgeError `homeserver_refused`, `program_failed` when people or ghosts do not come */
export async function shareRooms(lab: Lab, before: Seed, progress: Progress): Promise<Seed> {
  const roomAt = (createdBy: OrganisationName, form: RoomForm) =>
    personOf(lab, before, createdBy).roomAt(sharedAlias(lab, createdBy, form));
  const shared = COMPLETE_ORGANISATIONS.flatMap((name) => ROOM_FORMS.map((form) => [name, form] as const));
  for (const [organisation, form] of shared) {
    const room = await roomAt(organisation, form);
    // A replacement was made by the organisation that replaced the room.
    const maker = before.rooms.find(({ roomId }) => roomId === room)?.replacedBy ?? organisation;
    const partner = partnerOf(maker);
    const [host, guest] = [personOf(lab, before, maker), personOf(lab, before, partner)];
    // The partner's server may have blocked a room that its own organisation has kept.
    if (room === undefined || !(await bringGuest(room, host, guest, lab.serverNames[maker]))) continue;
    for (const { publisher } of agentsOf(partner)) {
      await bringGhost(room, { host, guest }, ghostFor(lab, partner, publisher));
    }
  }
  const rooms: Seed["rooms"][number][] = [];
  for (const room of before.rooms) {
    if ((await roomAt(room.createdBy, formOf(room))) === room.roomId) rooms.push(room);
  }
  writeJson(lab.paths.seed, { ...before, rooms } satisfies Seed);
  return seedRooms(lab, progress);
}

/** @returns false when the guest's own homeserver has blocked the room */
async function bringGuest(room: RoomId, host: MatrixUser, guest: MatrixUser, via: string): Promise<boolean> {
  // Refused where that person is in the room already.
  await host.invite(room, guest.userId);
  let refusal = "";
  const found = await pollFor(async () => {
    const { status, body } = await guest.join(room, [via]);
    if (status === 200) return "joined";
    refusal = `${status} ${String(body["errcode"])}`;
    return String(body["error"]).startsWith("This room has been blocked") ? "blocked" : undefined;
  }, JOINED);
  if (found === undefined) throw notIn(room, guest.userId, refusal);
  if (found === "joined") await guest.members(room);
  return found === "joined";
}
