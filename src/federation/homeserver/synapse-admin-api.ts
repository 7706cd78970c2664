// The homeserver's admin API (Synapse). Invariants: every answer is checked where it comes in; a room or user that
// does not exist is a value; IDs that the homeserver reports are used although the grammar excludes some of them.
import * as z from "zod";
import type { Clock } from "../../domain/clock.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import {
  type EventId,
  parseEventId,
  parseRoomId,
  parseUserId,
  type RoomId,
  type ServerName,
  serverOf,
  type UserId,
} from "../../domain/identifiers.ts";
import { mapConcurrent } from "../../runtime/concurrency.ts";
import { expectSuccess, HomeserverAccess, isRefusal, type Query } from "./api.ts";

const client = (...path: string[]) => ["_matrix", "client", "v3", ...path];

const SentEvent = z.object({ event_id: z.custom<EventId>((value) => parseEventId(value) !== undefined) });
const MadeRoom = z.object({ room_id: z.custom<RoomId>((value) => parseRoomId(value) !== undefined) });

function actingUser(access: HomeserverAccess, userId: UserId) {
  const succeeds = async (method: "POST" | "PUT", what: string, path: readonly string[], body: object) =>
    (await access.call(method, what, client(...path), { body })).status === 200;

  /** Sends a state event. The same content again makes no new event. @throws DrawbridgeError `homeserver_refused` */
  async function putState(room: RoomId, type: string, stateKey: string, content: object): Promise<EventId> {
    const path = client("rooms", room, "state", type, stateKey);
    const request = { method: "PUT", body: content } as const;
    return (await access.request(SentEvent, `to set ${type}`, path, request)).event_id;
  }

  return {
    userId,
    putState,

    setMembership: (room: RoomId, user: UserId, membership: "ban" | "leave") =>
      putState(room, "m.room.member", user, { membership }),

    /** Makes a room. It is not repeated when no answer comes; the caller searches for the room first. */
    async createRoom(body: object): Promise<RoomId> {
      const request = { method: "POST", body } as const;
      return (await access.request(MadeRoom, "to make a room", client("createRoom"), request)).room_id;
    },

    /** `limited`: the homeserver limits us for longer than it may be waited for. */
    async invite(room: RoomId, user: UserId, limitedMaxMs?: number) {
      const path = client("rooms", room, "invite");
      const request = { body: { user_id: user }, limitedMaxMs };
      const { status } = await access.call("POST", "to invite", path, request);
      return status === 200 ? "invited" : status === 429 ? "limited" : "refused";
    },

    join: (room: RoomId) => succeeds("POST", "to join", ["rooms", room, "join"], {}),

    putAlias: (alias: string, room: RoomId) =>
      succeeds("PUT", "to move an alias", ["directory", "room", alias], { room_id: room }),

    /** Aliases of this homeserver's that lead to a room which the user is in. */
    async localAliases(room: RoomId): Promise<readonly string[]> {
      const { body } = await access.call("GET", "to read aliases", client("rooms", room, "aliases"));
      const { aliases } = body;
      return Array.isArray(aliases) ? aliases.filter((alias) => typeof alias === "string") : [];
    },

    /** Gives a lent token back; the user's own devices are not touched. */
    logout: () => succeeds("POST", "to give a token back", ["logout"], {}),
  };
}
export type ActingUser = ReturnType<typeof actingUser>;

const StateEvent = z.object({
  type: z.string(),
  state_key: z.string(),
  sender: z.string(),
  event_id: z.string(),
  /** By its sender's server, in milliseconds; a server can write here what it likes. */
  origin_server_ts: z.number().optional(),
  content: z.record(z.string(), z.unknown()),
});
export type StateEvent = z.output<typeof StateEvent>;

/** Room IDs with spaces and other characters outside the grammar exist, and are rooms as others are. */
const Text = z.string();
const ReportedRoomId = Text.min(1).transform((id) => id as RoomId);

const WhoAmI = z.object({ user_id: z.custom<UserId>((value) => parseUserId(value) !== undefined) });
const State = z.object({ state: z.array(StateEvent) });
const RoomPage = z.object({
  rooms: z.array(z.object({ room_id: ReportedRoomId, federatable: z.boolean().nullish() })),
  next_batch: z.number().optional(),
  next_token: z.string().optional(),
});
const Memberships = z.object({ memberships: z.record(ReportedRoomId, z.string()) });

/** Of an answer in which an absent member means as much as one of another form. */
const Members = z.record(z.string(), z.unknown());
const Deletion = z.object({ delete_id: z.string().optional(), status: z.string() });
const Deletions = z.object({ results: z.array(Deletion) });
const RUNNING: ReadonlySet<string> = new Set(["active", "scheduled", "purging"]);
const admin = (...path: string[]) => ["_synapse", "admin", ...path];
const blockOf = (room: RoomId) => admin("v1", "rooms", room, "block");
const PAGE = 500;
/** With names as long as an event may be, a page of the usual size would be longer than any answer that is read. */
const PAGE_OF_LONG_NAMES = 16;
const STATE_TIMEOUT_MS = 20_000;

export class SynapseAdminApi extends HomeserverAccess {
  /** The operator's ID. @throws DrawbridgeError `config_invalid` when the token is not one of this server's */
  async operatorOf(own: string): Promise<UserId> {
    const { user_id } = await this.request(WhoAmI, "whoami", client("account", "whoami"));
    const server = serverOf(user_id);
    if (server === own) return user_id;
    const message = `the registry is of ${own}, and the operator's token of ${server}`;
    const hint = "Correct homeserver.url and homeserver.operatorToken, or the registry's serverName.";
    throw new DrawbridgeError("config_invalid", message, { hint });
  }

  /**
   * Every room that the homeserver knows; rooms made within the last seconds may be missing. By creator, which never changes:
   * a room that others can move from one page to another, as by its number of members, could be missing.
   */
  rooms() {
    const path = admin("v1", "rooms");
    const order_by = "creator";
    return everyRoom((page) => this.request(RoomPage, "list rooms", path, { query: { ...page, order_by } }));
  }

  /** Rooms in which the homeserver has sent something to another server. */
  destinationRooms(server: ServerName): Promise<readonly RoomId[]> {
    const path = admin("v1", "federation", "destinations", server, "rooms");
    return everyRoom((query) => this.find(RoomPage, "read a destination's rooms", path, { query }));
  }

  async memberships(user: UserId): Promise<ReadonlyMap<RoomId, string>> {
    const found = await this.find(Memberships, "read memberships", admin("v1", "users", user, "memberships"));
    return new Map(Object.entries(found?.memberships ?? {}) as [RoomId, string][]);
  }

  /** Synapse does not answer as long as it lacks state that another server owes it. @throws DrawbridgeError of this room alone */
  async roomState(room: RoomId, timeoutMs = STATE_TIMEOUT_MS): Promise<readonly StateEvent[] | undefined> {
    const path = admin("v1", "rooms", room, "state");
    return (await this.find(State, "read a room's state", path, { timeoutMs }))?.state;
  }

  /** Whether a local user is a person's that is in use, and no application service's, such as the bridge's ghosts are. */
  async isPerson(user: UserId): Promise<boolean> {
    const found = await this.#localUser(user);
    if (found === undefined) return false;
    return typeof found["appservice_id"] !== "string" && found["deactivated"] !== true;
  }

  #localUser(user: UserId) {
    return this.find(Members, "read a user", admin("v2", "users", user));
  }

  /**
   * Acts as a local user until `validUntil` (Unix milliseconds), by a token that makes no device; undefined when that is
   * denied, or when the user may do nothing: the homeserver only seems to obey one who is shadow-banned.
   */
  async actAs(user: UserId, validUntil: number): Promise<ActingUser | undefined> {
    const { locked, suspended, shadow_banned } = (await this.#localUser(user)) ?? {};
    if ([locked, suspended, shadow_banned].includes(true)) return undefined;
    const path = admin("v1", "users", user, "login");
    const answer = await this.call("POST", "act as a user", path, { body: { valid_until_ms: validUntil } });
    const token = answer.body["access_token"];
    return answer.status === 200 && typeof token === "string" ? actingUser(this.as(token), user) : undefined;
  }

  /** Empties and blocks a room, in the background; the deletion's ID, undefined when another one is under way (400). */
  async deleteRoom(room: RoomId, purge: boolean): Promise<string | undefined> {
    const body = { block: true, purge, force_purge: false };
    const answer = await this.call("DELETE", "delete a room", admin("v2", "rooms", room), { body });
    if (answer.status === 400) return undefined;
    return String(expectSuccess(answer, "delete a room")["delete_id"]);
  }

  /** How one deletion of a room goes, or all; undefined when none is remembered. A new one is listed a moment late. */
  async deletion(room: RoomId, id?: string): Promise<"running" | "complete" | "failed" | undefined> {
    const path = admin("v2", "rooms", room, "delete_status");
    const found = await this.find(Deletions, "read a deletion's status", path);
    const meant = (found?.results ?? []).filter(({ delete_id }) => id === undefined || delete_id === id);
    const states = meant.map(({ status }) => status);
    if (states.length === 0) return undefined;
    if (states.some((state) => RUNNING.has(state))) return "running";
    return states.includes("complete") ? "complete" : "failed";
  }

  async isBlocked(room: RoomId): Promise<boolean> {
    return (await this.request(Members, "read a room's block", blockOf(room)))["block"] === true;
  }

  async unblock(room: RoomId): Promise<void> {
    await this.request(z.unknown(), "unblock a room", blockOf(room), {
      method: "PUT",
      body: { block: false },
    });
  }

  /** Takes away an alias of this homeserver's; not there any more is as good. */
  async deleteAlias(alias: string): Promise<void> {
    const answer = await this.call("DELETE", "take away an alias", client("directory", "room", alias));
    if (answer.status !== 404) expectSuccess(answer, "take away an alias");
  }

  async roomOfAlias(alias: string): Promise<RoomId | undefined> {
    const answer = await this.call("GET", "look up an alias", client("directory", "room", alias));
    return answer.status === 200 ? ReportedRoomId.safeParse(answer.body["room_id"]).data : undefined;
  }
}

/** The rooms of every page that federate. @param read undefined: there are none */
async function everyRoom(read: (page: Query) => Promise<z.output<typeof RoomPage> | undefined>) {
  const found: RoomId[] = [];
  for (let from = "0", limit = PAGE; ; ) {
    const page = await read({ limit: String(limit), from }).catch((error: unknown) => {
      if (limit === PAGE_OF_LONG_NAMES || !isRefusal(error)) throw error;
      limit = PAGE_OF_LONG_NAMES;
      return read({ limit: String(limit), from });
    });
    found.push(...(page?.rooms ?? []).flatMap((room) => (room.federatable === false ? [] : room.room_id)));
    const next = page?.next_batch ?? page?.next_token;
    if (next === undefined) return found;
    from = String(next);
  }
}

const LIFE_MS = 15 * 60_000;
const USED_MS = 10 * 60_000;
const RELEASED_AT_ONCE = 8;

/** Tokens for acting as local users, one a user: given back at the end, and forgotten by the homeserver if we are killed. */
export function lentTokens(operator: SynapseAdminApi, operatorId: UserId, clock: Clock) {
  const lent = new Map<UserId, { since: number; acting: Promise<ActingUser | undefined> }>();
  const unusable = new Set<UserId>();
  return {
    unusable: unusable as ReadonlySet<UserId>,

    async as(user: UserId): Promise<ActingUser | undefined> {
      if (user === operatorId) return actingUser(operator, user);
      const now = clock.now();
      const known = lent.get(user);
      if (known !== undefined && now < known.since + USED_MS) return known.acting;
      const acting = operator.actAs(user, now + LIFE_MS);
      lent.set(user, { since: now, acting });
      try {
        const found = await acting;
        if (found === undefined) unusable.add(user);
        return found;
      } catch (error) {
        // No answer says nothing about the user: the next request asks again.
        lent.delete(user);
        throw error;
      } finally {
        await (await known?.acting)?.logout();
      }
    },

    async release(): Promise<void> {
      const all = [...lent.values()];
      lent.clear();
      await mapConcurrent(all, RELEASED_AT_ONCE, async ({ acting }) => {
        await acting.then((user) => user?.logout()).catch(() => undefined);
      });
    },
  };
}
export type LentTokens = ReturnType<typeof lentTokens>;
