// What a re-admission has made of the rooms that a removal had not replaced: those that were opened again, and a
// third party's that nobody could close. Invariant: a room counts only where both people are in it now.
import { parseRoomId, type RoomId } from "../../src/domain/identifiers.ts";
import { SOURCES } from "../break-glass/scene.ts";
import type { Lab } from "../lab.ts";
import type { MatrixUser } from "../matrix-user.ts";
import {
  COMPLETE_ORGANISATIONS,
  type CompleteOrganisation,
  type OrganisationName,
  partnerOf,
  WITNESS,
} from "../organisations.ts";
import { personOf, roomOf, type Seed } from "../seed/seed.ts";
import { type Absence, absenceIn, type Meanwhile, meanwhileIn } from "./meanwhile.ts";

export interface SaidMeanwhile extends Meanwhile {
  /** Whose copy was read: "ours" are its people. */
  readonly organisation: CompleteOrganisation;
  readonly room: string;
  readonly createdBy: OrganisationName;
}

const ARRIVED_WITHIN_MS = 60_000;
const POLL_MS = 500;

/**
 * @param keptAt the organisations that have opened their own shared room again
 * @param note told of rooms in which so much was said since that nothing is counted
 */
export async function saidMeanwhile(
  lab: Lab,
  seed: Seed,
  keptAt: readonly CompleteOrganisation[],
  note: (text: string) => void,
): Promise<readonly SaidMeanwhile[]> {
  const found = await Promise.all(
    COMPLETE_ORGANISATIONS.map(async (organisation): Promise<readonly SaidMeanwhile[]> => {
      const room = roomIdOf(seed, organisation);
      if (room === undefined || !keptAt.includes(organisation)) return [];
      const people = [organisation, partnerOf(organisation)].map((name) =>
        personOf(lab, seed, name, SOURCES),
      );
      const [host, guest] = people;
      if (host === undefined || guest === undefined) return [];
      const absence = await absenceIn(room, host, guest);
      if (absence === undefined) return [];
      if (absence === "unread") {
        note(`${room}: the absence lies further back than is read; nothing is counted`);
        return [];
      }
      const own = {
        organisation,
        room,
        createdBy: organisation,
        ...(await meanwhileIn(room, host, guest, absence)),
      };
      return [own, ...(await inThirdRoom(seed, organisation, host, guest, absence))];
    }),
  );
  return found.flat();
}

/** A third party's room: once the guest has said something more there, what it said meanwhile comes in behind it. */
async function inThirdRoom(
  seed: Seed,
  organisation: CompleteOrganisation,
  host: MatrixUser,
  guest: MatrixUser,
  absence: Absence,
): Promise<readonly SaidMeanwhile[]> {
  const room = roomIdOf(seed, WITNESS);
  if (room === undefined || !(await isIn(room, host)) || !(await isIn(room, guest))) return [];
  const event = await guest.send(room, { msgtype: "m.text", body: "We are partners again." });
  const path = `/rooms/${encodeURIComponent(room)}/event/${encodeURIComponent(event)}`;
  for (const deadline = SOURCES.clock.now() + ARRIVED_WITHIN_MS; ; await SOURCES.clock.sleep(POLL_MS)) {
    if ((await host.request("GET", path)).status === 200 || SOURCES.clock.now() > deadline) break;
  }
  const said = await meanwhileIn(room, host, guest, absence);
  return [{ organisation, room, createdBy: WITNESS, ...said }];
}

function roomIdOf(seed: Seed, createdBy: OrganisationName): RoomId | undefined {
  return parseRoomId(roomOf(seed, createdBy)?.roomId);
}

async function isIn(room: RoomId, person: MatrixUser): Promise<boolean> {
  const path = `/rooms/${encodeURIComponent(room)}/state/m.room.member/${encodeURIComponent(person.userId)}`;
  const { status, body } = await person.request("GET", path);
  return status === 200 && body["membership"] === "join";
}
