// What was said in a room that was kept while the partner was out of it: as the organisation that kept it has it
// now, and as the partner's person reads it back. Invariant: messages are counted, and never kept.
import { z } from "zod";
import type { MatrixUser } from "../matrix-user.ts";

const Timeline = z.object({
  chunk: z.array(
    z.object({
      event_id: z.string(),
      type: z.string(),
      sender: z.string(),
      state_key: z.string().optional(),
      content: z.object({ membership: z.string().optional() }),
    }),
  ),
  end: z.string().optional(),
});
type Event = z.output<typeof Timeline>["chunk"][number];

export interface Meanwhile {
  /** Of the partner's people, in our copy of the room. */
  readonly cameIn: number;
  /** By our people. */
  readonly saidByOurs: number;
  /** Of those, what the partner's person finds in the room now. */
  readonly readBack: number;
}

const PAGES_MAX = 20;

/** Since the guest was last banned. @throws DrawbridgeError `homeserver_refused`, `homeserver_unavailable` */
export async function meanwhileIn(room: string, host: MatrixUser, guest: MatrixUser): Promise<Meanwhile> {
  const isTheBan = ({ type, state_key, content }: Event) =>
    type === "m.room.member" && state_key === guest.userId && content.membership === "ban";
  const ours = (await backTo(room, host, isTheBan)).filter(({ type }) => type.startsWith("m.room.message"));
  const isOf = (server: string) => (one: Event) => serverOf(one.sender) === server;
  const said = ours.filter(isOf(serverOf(host.userId)));
  const wanted = new Set(said.map(({ event_id }) => event_id));
  const seen = await backTo(room, guest, ({ event_id }) => wanted.delete(event_id) && wanted.size === 0);
  return {
    cameIn: ours.filter(isOf(serverOf(guest.userId))).length,
    saidByOurs: said.length,
    readBack: said.length === 0 || seen.length === 0 ? 0 : said.length - wanted.size,
  };
}

/** From now back to where it ends, newest first. */
async function backTo(
  room: string,
  reader: MatrixUser,
  isEnd: (event: Event) => boolean,
): Promise<readonly Event[]> {
  const events: Event[] = [];
  let from = "";
  for (let page = 0; page < PAGES_MAX; page++) {
    const path = `/rooms/${encodeURIComponent(room)}/messages?dir=b&limit=100${from}`;
    const { chunk, end } = Timeline.parse(await reader.call("GET", path));
    for (const event of chunk) {
      events.push(event);
      if (isEnd(event)) return events;
    }
    if (end === undefined) return events;
    from = `&from=${encodeURIComponent(end)}`;
  }
  return events;
}

function serverOf(user: string): string {
  return user.slice(user.indexOf(":") + 1);
}
