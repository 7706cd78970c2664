// What was said in a room between the bans of a partner's people and their lifting: as the organisation that kept
// the room has it now, and as the partner's person reads it back.
// Invariants: messages are counted, and never kept; one that arrived without its content was not read back; where a
// copy was not read to its end, that is told beside every number.
import { z } from "zod";
import { parseRoomId, type RoomId } from "../../src/domain/identifiers.ts";
import { SOURCES } from "../break-glass/contain.ts";
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

const Timeline = z.object({
  chunk: z.array(
    z.object({
      event_id: z.string(),
      type: z.string(),
      sender: z.string(),
      state_key: z.string().optional(),
      origin_server_ts: z.number(),
      content: z.object({ membership: z.string().optional(), body: z.string().optional() }),
    }),
  ),
  end: z.string().optional(),
});
type Event = z.output<typeof Timeline>["chunk"][number];

/** Milliseconds since the Unix epoch. */
export interface Absence {
  readonly from: number;
  readonly until: number;
}

/** Who reads a room: of `MatrixUser`, what counting needs. */
export type Reader = Pick<MatrixUser, "userId" | "call">;

export interface Meanwhile {
  /** Of the partner's people, in our copy of the room. */
  readonly cameIn: number;
  /** By our people. */
  readonly saidByOurs: number;
  /** Of those, what the partner's person can read now. */
  readonly readBack: number;
  /** Of those, what its homeserver has without the content: it pulled them while its border was closed. */
  readonly emptied: number;
  /** Both copies were read to their ends; if not, each number is what there is at least. */
  readonly isWhole: boolean;
}

const PAGES_MAX = 40;

/**
 * How long the guest was banned last, by the host's copy of the room.
 * @returns undefined when it was not; `unread` when that lies further back than is read
 * @throws DrawbridgeError `homeserver_refused`, `homeserver_unavailable`
 */
export async function absenceIn(
  room: string,
  host: Reader,
  guest: Pick<Reader, "userId">,
): Promise<Absence | "unread" | undefined> {
  let until: number | undefined;
  const copy = backwards(room, host);
  for (let next = await copy.next(); ; next = await copy.next()) {
    if (next.done === true) return next.value ? undefined : "unread";
    const { type, state_key, sender, content, origin_server_ts } = next.value;
    if (type !== "m.room.member" || state_key !== guest.userId) continue;
    if (content.membership === "ban")
      return until === undefined ? undefined : { from: origin_server_ts, until };
    if (content.membership === "leave" && sender !== guest.userId) until = origin_server_ts;
  }
}

/** @throws DrawbridgeError `homeserver_refused`, `homeserver_unavailable` */
export async function meanwhileIn(
  room: string,
  host: Reader,
  guest: Reader,
  absence: Absence,
): Promise<Meanwhile> {
  const [ours, theirs] = [await saidIn(room, host, absence), await saidIn(room, guest, absence)];
  const of = (server: string) => (one: Event) => serverOf(one.sender) === server;
  const said = ours.said.filter(of(serverOf(host.userId)));
  const found = new Map(theirs.said.map((one) => [one.event_id, hasContent(one)]));
  return {
    cameIn: ours.said.filter(of(serverOf(guest.userId))).filter(hasContent).length,
    saidByOurs: said.length,
    readBack: said.filter(({ event_id }) => found.get(event_id) === true).length,
    emptied: said.filter(({ event_id }) => found.get(event_id) === false).length,
    isWhole: ours.isWhole && theirs.isWhole,
  };
}

/** By the time that the sender's homeserver wrote on it: what comes in late stands behind what was said since. */
async function saidIn(
  room: string,
  reader: Reader,
  { from, until }: Absence,
): Promise<{ readonly said: readonly Event[]; readonly isWhole: boolean }> {
  const said: Event[] = [];
  const copy = backwards(room, reader);
  for (let next = await copy.next(); ; next = await copy.next()) {
    if (next.done === true) return { said, isWhole: next.value };
    const { type, origin_server_ts } = next.value;
    if (type === "m.room.message" && from < origin_server_ts && origin_server_ts < until)
      said.push(next.value);
  }
}

function hasContent({ content }: Event): boolean {
  return content.body !== undefined;
}

/**
 * From now back to where the reader's homeserver ends, newest first.
 * @returns whether it came to that end
 */
async function* backwards(room: string, reader: Reader): AsyncGenerator<Event, boolean> {
  let from = "";
  for (let page = 0; page < PAGES_MAX; page++) {
    const path = `/rooms/${encodeURIComponent(room)}/messages?dir=b&limit=100${from}`;
    const { chunk, end } = Timeline.parse(await reader.call("GET", path));
    yield* chunk;
    if (end === undefined) return true;
    from = `&from=${encodeURIComponent(end)}`;
  }
  return false;
}

function serverOf(user: string): string {
  return user.slice(user.indexOf(":") + 1);
}

// What a re-admission has made of the rooms that a removal had not replaced: those that were opened again, and a
// third party's that nobody could close. Invariant: a room counts only where both people are in it now.

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
