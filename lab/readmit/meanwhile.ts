// What was said in a room between the bans of a partner's people and their lifting: as the organisation that kept
// the room has it now, and as the partner's person reads it back.
// Invariants: messages are counted, and never kept; one that arrived without its content was not read back; where a
// copy was not read to its end, that is told beside every number.
import { z } from "zod";
import type { MatrixUser } from "../matrix-user.ts";

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
