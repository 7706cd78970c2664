// Counts the messages that were sent in a room while a partner's people were banned from it: as the organisation that
// kept the room has them now, and as the partner's person can read them back.
// Invariants: messages are counted and never kept; one that arrived without content does not count as read back; a
// count of a copy that was not read to its end is marked.
import * as z from "zod";
import { type RoomId, serverOf, type UserId } from "../../src/domain/identifiers.ts";
import { type Lab, pollFor } from "../lab.ts";
import { type MatrixUser, roomPath } from "../matrix-user.ts";
import { type CompleteOrganisation, type OrganisationName, partnerOf, WITNESS } from "../organisations.ts";
import { personOf, roomOf, type Seed } from "../seed/seed-file.ts";

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

/** The part of `MatrixUser` that counting needs. */
export type Reader = Pick<MatrixUser, "userId" | "call">;

export interface MessageCounts {
  /** Of the partner's people, in our copy of the room. */
  readonly cameIn: number;
  /** By our people. */
  readonly saidByOurs: number;
  /** Of those, the messages that the partner's person can read now. */
  readonly readable: number;
  /** Of those, the messages that its homeserver has without content: it pulled them while its border was closed. */
  readonly emptied: number;
  /** Both copies were read to their ends; if not, each number is a lower bound. */
  readonly isWhole: boolean;
}

const PAGES_MAX = 40;

/**
 * The last period in which the guest was banned, by the host's copy of the room.
 * @returns undefined when it was not banned; `unread` when that lies further back than is read
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
export async function countMessages(
  room: string,
  host: Reader,
  guest: Reader,
  absence: Absence,
): Promise<MessageCounts> {
  const [ours, theirs] = [await messagesIn(room, host, absence), await messagesIn(room, guest, absence)];
  const of = (server: string) => (one: Event) => serverOf(one.sender as UserId) === server;
  const own = ours.messages.filter(of(serverOf(host.userId)));
  const found = new Map(theirs.messages.map((one) => [one.event_id, hasContent(one)]));
  return {
    cameIn: ours.messages.filter(of(serverOf(guest.userId))).filter(hasContent).length,
    saidByOurs: own.length,
    readable: own.filter(({ event_id }) => found.get(event_id) === true).length,
    emptied: own.filter(({ event_id }) => found.get(event_id) === false).length,
    isWhole: ours.isWhole && theirs.isWhole,
  };
}

/** By the sender's timestamp: a message that arrives late stands behind those that were sent since. */
async function messagesIn(
  room: string,
  reader: Reader,
  { from, until }: Absence,
): Promise<{ readonly messages: readonly Event[]; readonly isWhole: boolean }> {
  const messages: Event[] = [];
  const copy = backwards(room, reader);
  for (let next = await copy.next(); ; next = await copy.next()) {
    if (next.done === true) return { messages, isWhole: next.value };
    const { type, origin_server_ts } = next.value;
    if (type === "m.room.message" && from < origin_server_ts && origin_server_ts < until)
      messages.push(next.value);
  }
}

function hasContent({ content }: Event): boolean {
  return content.body !== undefined;
}

/**
 * The events of a room, newest first.
 * @returns whether they were read to the end of the reader's copy
 */
async function* backwards(room: string, reader: Reader): AsyncGenerator<Event, boolean> {
  let from = "";
  for (let page = 0; page < PAGES_MAX; page++) {
    const path = `${roomPath(room, "messages")}?dir=b&limit=100${from}`;
    const { chunk, end } = Timeline.parse(await reader.call("GET", path));
    yield* chunk;
    if (end === undefined) return true;
    from = `&from=${encodeURIComponent(end)}`;
  }
  return false;
}

export interface RoomMessages extends MessageCounts {
  /** The organisation whose copy was read; "ours" are its people. */
  readonly organisation: CompleteOrganisation;
  readonly room: string;
  readonly createdBy: OrganisationName;
}

const ARRIVED = { timeoutMs: 60_000, everyMs: 500 };

/**
 * Counts in the rooms that a re-admission has opened again, and in a third party's that nobody could close, where
 * both people are in the room now.
 * @param keptAt the organisations that have opened their own shared room again
 * @param note called for rooms with so many messages since that none is counted
 */
export async function messagesWhileRemoved(
  lab: Lab,
  seed: Seed,
  keptAt: readonly CompleteOrganisation[],
  note: (text: string) => void,
): Promise<readonly RoomMessages[]> {
  const found = await Promise.all(
    keptAt.map(async (organisation): Promise<readonly RoomMessages[]> => {
      const room = roomOf(seed, organisation)?.roomId;
      if (room === undefined) return [];
      const host = personOf(lab, seed, organisation);
      const guest = personOf(lab, seed, partnerOf(organisation));
      const absence = await absenceIn(room, host, guest);
      if (absence === undefined) return [];
      if (absence === "unread") {
        note(`${room}: the absence lies further back than is read; nothing is counted`);
        return [];
      }
      const own = await countMessages(room, host, guest, absence);
      const third = await inThirdRoom(seed, organisation, host, guest, absence);
      return [{ organisation, room, createdBy: organisation, ...own }, ...third];
    }),
  );
  return found.flat();
}

/** In a third party's room, events of the guest's absence arrive once it has sent another one there. */
async function inThirdRoom(
  seed: Seed,
  organisation: CompleteOrganisation,
  host: MatrixUser,
  guest: MatrixUser,
  absence: Absence,
): Promise<readonly RoomMessages[]> {
  const room = roomOf(seed, WITNESS)?.roomId as RoomId | undefined;
  if (room === undefined) return [];
  if ((await host.membership(room)) !== "join" || (await guest.membership(room)) !== "join") return [];
  const event = await guest.send(room, { msgtype: "m.text", body: "We are partners again." });
  await pollFor(async () => (await host.sees(room, event)) || undefined, ARRIVED);
  const counts = await countMessages(room, host, guest, absence);
  return [{ organisation, room, createdBy: WITNESS, ...counts }];
}
