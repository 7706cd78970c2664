// A homeserver in memory for the rooms plane, with the members of its rooms and what it was asked for.
import type { TestContext } from "node:test";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import type { RoomId, ServerName, UserId } from "../../src/domain/identifiers.ts";
import type { StateEvent } from "../../src/federation/homeserver/synapse-admin-api.ts";
import type { RoomsSession } from "../../src/federation/planes/rooms/session.ts";
import { journalIn } from "../../src/federation/planes/rooms/undo-journal.ts";
import { ManualClock } from "./manual-clock.ts";
import { temporaryFolder } from "./temporary.ts";

export const ALICE = "@alice:a.test";
export const BOB = "@bob:b.test";
export const CAROL = "@carol:c.test";

export type Content = Readonly<Record<string, unknown>>;
export type State = [type: string, key: string, content: Content, sender?: string];

export const joined = (...users: readonly string[]): State[] =>
  users.map((user) => ["m.room.member", user, { membership: "join" }, user]);
export const madeBy = (user: string, more: Content = {}): State => [
  ...(["m.room.create", "", { room_version: "12", ...more }, user] as const),
];
export const acl = (content: Content, sender: string): State => ["m.room.server_acl", "", content, sender];

/** A homeserver in memory, which a.test's operator works with; b.test is contained, c.test retained. */
export class FakeHomeserver {
  readonly rooms = new Map<RoomId, Map<string, StateEvent>>();
  readonly made: Content[] = [];
  readonly invited: string[] = [];
  /** Users of a.test who are lent to nobody. */
  readonly locked = new Set<string>();
  readonly #blocked = new Set<RoomId>();
  #events = 0;
  /** Called before a change: what it throws is the answer. */
  onChange: (type: string, key: string, room: RoomId) => void = () => undefined;

  put(room: RoomId, [type, key, content, sender = ALICE]: State): string {
    const event_id = `$${this.#events++}`;
    const state = this.rooms.get(room) ?? new Map<string, StateEvent>();
    this.rooms.set(room, state.set(`${type} ${key}`, { type, state_key: key, content, sender, event_id }));
    return event_id;
  }

  room(room: string, ...states: readonly State[]): RoomId {
    for (const state of states) this.put(room as RoomId, state);
    return room as RoomId;
  }

  content(room: RoomId, type: string, key = ""): Content | undefined {
    return this.rooms.get(room)?.get(`${type} ${key}`)?.content;
  }

  acting(userId: string) {
    const member = (room: RoomId, user: string, membership: string) => {
      this.onChange("m.room.member", user, room);
      return this.put(room, ["m.room.member", user, { membership }, userId]);
    };
    return {
      userId,
      putState: async (room: RoomId, type: string, key: string, content: Content) => {
        this.onChange(type, key, room);
        return this.put(room, [type, key, content, userId]);
      },
      setMembership: async (room: RoomId, user: string, membership: string) => member(room, user, membership),
      createRoom: async (body: Content) => {
        this.onChange("m.room.create", "", "!made" as RoomId);
        this.made.push(body);
        const initial = body["initial_state"] as { type: string; state_key: string; content: Content }[];
        return this.room(
          `!made-${this.made.length}`,
          madeBy(userId, body["creation_content"] as Content),
          ...joined(userId),
          ...initial.map(({ type, state_key, content }): State => [type, state_key, content, userId]),
        );
      },
      invite: async (room: RoomId, user: string) => {
        this.invited.push(`${user} ${room}`);
        member(room, user, "invite");
        return "invited";
      },
      join: async (room: RoomId) => {
        member(room, userId, "join");
        return true;
      },
      localAliases: async () => [],
      putAlias: async () => true,
    };
  }

  session(t: TestContext, partners: readonly string[] = ["b.test"]): RoomsSession {
    const folder = temporaryFolder(t);
    const journals = new Map(partners.map((server) => [server, journalIn(folder, server as ServerName)]));
    t.after(() => Promise.all([...journals.values()].map((journal) => journal.finish())));
    const unusable = new Set<UserId>();
    const session = {
      intent: {
        ...{ version: 1, own: "a.test", allow: ["a.test", "c.test"], retained: ["c.test"], ghosts: [] },
        closing: partners.map((serverName) => ({
          ...{ serverName, name: "b", mode: "contained", after: "keep", unclosable: "replace" },
        })),
      },
      operatorId: "@root:a.test",
      tokens: {
        unusable,
        as: async (user: UserId) => (this.locked.has(user) ? void unusable.add(user) : this.acting(user)),
      },
      journals,
      home: { differing: async () => [], rooms: async () => [] },
      signed: { request: async () => ({ status: 200 }) },
      clock: new ManualClock(0),
      note: () => undefined,
      operator: {
        operatorOf: async () => "@root:a.test",
        rooms: async () => [...this.rooms.keys()],
        destinationRooms: async () => [],
        memberships: async () => new Map(),
        isPerson: async () => true,
        roomState: async (room: RoomId) => {
          const state = this.rooms.get(room);
          return state === undefined ? undefined : [...state.values()];
        },
        isBlocked: async (room: RoomId) => this.#blocked.has(room),
        deleteRoom: async (room: RoomId, purge: boolean) => {
          this.#blocked.add(room);
          if (purge) this.rooms.delete(room);
          for (const { type, state_key } of [...(this.rooms.get(room)?.values() ?? [])]) {
            if (type !== "m.room.member" || !state_key.endsWith(":a.test")) continue;
            this.put(room, [type, state_key, { membership: "leave" }, state_key]);
          }
          return "deletion";
        },
        deletion: async () => "complete",
      },
    };
    return session as unknown as RoomsSession;
  }
}

export const unavailable = () =>
  new DrawbridgeError("homeserver_unavailable", "the homeserver did not answer");
export const refused = () => new DrawbridgeError("homeserver_refused", "the homeserver refused");

/** What a restore makes of the intent: the partner is admitted again. */
export function admit({ intent }: RoomsSession, server = "b.test"): void {
  const at = intent.closing.findIndex(({ serverName }) => serverName === server);
  if (at >= 0) intent.closing.splice(at, 1);
  intent.allow.push(server);
  intent.retained.push(server);
}
