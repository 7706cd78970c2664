// Reads as a ghost what the homeserver holds for it: `/sync` without a loop, and pages of a room's past. Invariants: no
// request here names a device, so none of them deletes a to-device message; events are returned as the homeserver gave them,
// with their room. Protocol: Matrix client-server API, "Syncing" and "Getting events for a room".
import * as z from "zod";
import { sha256 } from "../../domain/digest.ts";
import { type EventId, type GhostMxid, parseRoomId, type RoomId } from "../../domain/identifiers.ts";
import {
  type ApiCall,
  type GhostActor,
  HomeserverHttp,
  type HomeserverOptions,
  RESPONSE_VALUES_MAX,
} from "../matrix/http.ts";
import { mapValue, type Outcome, ok } from "../matrix/request-result.ts";
import type { RawEvent } from "./found-events.ts";

export type Reader = Pick<GhostActor, "ghost" | "signal">;

export const WATCH_MS = 30_000;
const WATCH_GRACE_MS = 15_000;
/** Of a page of a room's past, and of one answer about all rooms; above it a smaller one is requested. */
const ANSWER_BOUNDS = { pageBytesMax: 32 * 1024 * 1024, changesBytesMax: 16 * 1024 * 1024 };
/**
 * Of the smaller answer, which has one event of each room without its content. An invitation may be longer, and a room
 * whose event names a long "membership", or of a homeserver that leaves no content out. Where that leaves invitations
 * unread, it is read again without long ones, so that many of these do not take the place of an ordinary one.
 */
const SMALLER = { what: "rooms", readBytesMax: 512 * 1024 * 1024 } as const;
const LONG_BYTES = 64 * 1024;
const ORDINARY_BYTES = 4 * 1024;
type ReadBounds = Pick<ApiCall<z.ZodType>, "bytesMax" | "valuesMax" | "thin">;
const TIMELINE_LIMIT = 50;
/** Of one answer about all rooms: some 15,000 events of people. */
const CHANGES_VALUES_MAX = 4 * RESPONSE_VALUES_MAX;
const PAGE_LIMIT = 100;
/** Of a page that is too large. Written as ASCII, an event with an edit and an edited thread is below a megabyte. */
const LARGE_PAGE_LIMIT = 10;
/** Of an event alone, whatever its sender fills it with, and what other events say of it. */
const EVENT_VALUES_MAX = 2 * RESPONSE_VALUES_MAX;
const ANSWERS_MAX = 10;

const TYPES = [
  "m.room.message",
  "m.room.encrypted",
  "m.reaction",
  "m.room.redaction",
  "m.room.member",
  "m.room.encryption",
];
const NONE = { types: [] };
const NOTHING = JSON.stringify({ room: { rooms: [] }, presence: NONE, account_data: NONE });
const FIELDS = [
  ...["event_id", "type", "state_key", "unsigned.prev_content.membership"],
  ...["redacts", "content.redacts"],
];
const roomsFilter = (limit: number, fields?: readonly string[]) =>
  JSON.stringify({
    ...(fields !== undefined && { event_fields: fields }),
    room: { timeline: { limit, types: TYPES }, state: NONE, ephemeral: NONE, account_data: NONE },
    presence: NONE,
    account_data: NONE,
  });
const PAGE_FILTER = JSON.stringify({ types: TYPES });

const Event = z.record(z.string(), z.unknown());
const Events = z.array(Event);
/** Of what another server has written into its invitation; nothing of one that is not as the specification has it. */
const InviteState = z
  .object({ invite_state: z.object({ events: z.array(z.unknown()) }) })
  .transform(({ invite_state }) =>
    invite_state.events.map((event) => Event.safeParse(event).data).filter((event) => event !== undefined),
  )
  .catch([]);
const Timeline = z.object({
  timeline: z
    .object({ events: Events, limited: z.boolean().default(false), prev_batch: z.string().optional() })
    .optional(),
});
const Sync = z.object({
  next_batch: z.string().min(1),
  rooms: z
    .object({
      join: z.record(z.string(), Timeline.nullable()).default({}),
      leave: z.record(z.string(), Timeline.nullable()).default({}),
      invite: z.record(z.string(), InviteState.nullable()).default({}),
    })
    .prefault({}),
});
/** Of an event with too many members nothing is read. */
const Page = z.object({ chunk: z.array(Event.nullable()), end: z.string().optional() });

export class SyncApi {
  readonly #http: HomeserverHttp;
  readonly #bounds: typeof ANSWER_BOUNDS;

  constructor(options: HomeserverOptions, bounds: Partial<typeof ANSWER_BOUNDS> = {}) {
    this.#http = new HomeserverHttp(options);
    this.#bounds = { ...ANSWER_BOUNDS, ...bounds };
  }

  async close(): Promise<void> {
    await this.#http.close();
  }

  async isServing(): Promise<boolean> {
    const outcome = await this.#http.request("versions", "GET", ["versions"], {
      base: "client",
      schema: z.object({ versions: z.array(z.string()) }),
    });
    return outcome.kind === "ok";
  }

  async position(reader: Reader): Promise<Outcome<string>> {
    // A homeserver may repeat an answer of minutes ago to the same request; reading on from it ends at now.
    let since: string | undefined;
    for (let answers = 0; ; answers++) {
      const outcome = await this.#sync("sync_position", reader, since, { filter: NOTHING });
      if (outcome.kind !== "ok") return outcome;
      const next = outcome.value.next_batch;
      if (next === since || answers === ANSWERS_MAX) return ok(next);
      since = next;
    }
  }

  async wait(reader: Reader, since: string): Promise<Outcome<string>> {
    const outcome = await this.#sync("watch", reader, since, { filter: NOTHING, holdMs: WATCH_MS });
    return mapValue(outcome, ({ next_batch }) => next_batch);
  }

  /**
   * What a ghost sees of its rooms since its position. `isWhole`: whether the rooms' events have their contents; `unread`:
   * how many invitations are too large to be read.
   */
  async changes(reader: Reader, since: string) {
    const bytesMax = this.#bounds.changesBytesMax;
    const read = (filter: string, bounds: ReadBounds) =>
      this.#sync("sync_rooms", reader, since, { filter, ...bounds });
    const bounds = { bytesMax, valuesMax: CHANGES_VALUES_MAX };
    const whole = await read(roomsFilter(TIMELINE_LIMIT), bounds);
    const isWhole = whole.kind !== "retry" || whole.cause !== "too_large";
    const changesIn = (outcome: typeof whole) =>
      mapValue(outcome, (sync) => ({ ...toChanges(sync, reader.ghost, since), isWhole }));
    if (isWhole) return changesIn(whole);
    const readSmaller = async (elementBytesMax: number) =>
      changesIn(await read(roomsFilter(1, FIELDS), { thin: { ...SMALLER, elementBytesMax, bytesMax } }));
    const first = await readSmaller(LONG_BYTES);
    if (first.kind !== "ok" || first.value.unread === 0) return first;
    return mapValue(await readSmaller(ORDINARY_BYTES), (changes) => {
      const invitations = new Map([...first.value.invitations, ...changes.invitations]);
      const unread = changes.unread - (invitations.size - changes.invitations.size);
      return { ...changes, invitations, unread };
    });
  }

  #sync(
    operation: string,
    reader: Reader,
    since: string | undefined,
    options: ReadBounds & { readonly filter: string; readonly holdMs?: number },
  ): Promise<Outcome<z.output<typeof Sync>>> {
    const { filter, holdMs = 0, ...bounds } = options;
    return this.#http.request(operation, "GET", ["sync"], {
      query: { since, timeout: String(holdMs), set_presence: "offline", filter },
      as: reader,
      schema: Sync,
      ...bounds,
      ...(holdMs > 0 && { timeoutMs: holdMs + WATCH_GRACE_MS }),
    });
  }

  /** `GET /rooms/{room}/messages` from `from` back to `since`, newest first, without what a transaction's events are read without. */
  async pageBack(reader: Reader, room: RoomId, from: string, since: string | undefined) {
    const { pageBytesMax: bytesMax } = this.#bounds;
    const bounds = { elementBytesMax: bytesMax, bytesMax, readBytesMax: 2 * bytesMax };
    const read = (limit: number) =>
      this.#http.request("messages_back", "GET", ["rooms", room, "messages"], {
        query: { to: since, dir: "b", from, limit: String(limit), filter: PAGE_FILTER },
        as: reader,
        schema: Page,
        thin: { what: "element_members", ...bounds },
        valuesMax: RESPONSE_VALUES_MAX,
      });
    const page = await read(PAGE_LIMIT);
    const isTooLarge = page.kind === "retry" && page.cause === "too_large";
    const outcome = isTooLarge ? await read(LARGE_PAGE_LIMIT) : page;
    return mapValue(outcome, ({ chunk, end }) => ({
      events: chunk.flatMap((event) => (event === null ? [] : [inRoom(event, room)])),
      next: chunk.length === 0 ? undefined : end,
    }));
  }

  async event(reader: Reader, room: RoomId, event: EventId): Promise<Outcome<RawEvent>> {
    const path = ["rooms", room, "event", event];
    const bounds = { schema: Event, bytesMax: this.#bounds.pageBytesMax, valuesMax: EVENT_VALUES_MAX };
    const outcome = await this.#http.request("event_again", "GET", path, { as: reader, ...bounds });
    return mapValue(outcome, (found) => inRoom(found, room));
  }
}

/** The answer is grouped by room, and leaves it out of the events. */
const inRoom = (event: RawEvent, room: RoomId): RawEvent => ({ ...event, room_id: room });

function toChanges(sync: z.output<typeof Sync>, ghost: GhostMxid, since: string) {
  const rooms = new Map<RoomId, { events: readonly RawEvent[]; before: string | undefined }>();
  // Of a room that was too large all is read from its past.
  const unreadTimeline = { events: [], limited: true, prev_batch: sync.next_batch };
  for (const [id, found] of Object.entries({ ...sync.rooms.leave, ...sync.rooms.join })) {
    const room = parseRoomId(id);
    const timeline = found === null ? unreadTimeline : found.timeline;
    if (room === undefined || timeline === undefined) continue;
    rooms.set(room, {
      events: timeline.events.map((event) => inRoom(event, room)),
      // Where earlier events can be read, when these are not all.
      before: timeline.limited ? timeline.prev_batch : undefined,
    });
  }
  const invitations = new Map<RoomId, RawEvent>();
  let unread = 0;
  for (const [id, state] of Object.entries(sync.rooms.invite)) {
    const room = parseRoomId(id);
    if (state === null) {
      unread += 1;
      continue;
    }
    // The homeserver puts the invitation behind the state that the inviting server wrote, which may name another inviter.
    const event = state.findLast(({ type, state_key }) => type === "m.room.member" && state_key === ghost);
    if (room === undefined || event === undefined) continue;
    // An invitation comes without ID and time. The one since the same position is the same invitation.
    const eventId = `$${sha256(`invitation ${room} ${ghost} ${since}`).toString("base64url")}`;
    invitations.set(room, inRoom({ ...event, event_id: eventId, origin_server_ts: 0 }, room));
  }
  return { rooms, invitations, unread, next: sync.next_batch };
}
