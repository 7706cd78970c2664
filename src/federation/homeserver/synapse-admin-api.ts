// The homeserver's admin API (Synapse), which answers for every room and user whether or not the administrator takes
// part. Invariants: every answer is checked where it comes in; a room or user that does not exist is a value; an ID that
// the homeserver reports is used as it is, because homeservers accept IDs that the grammar excludes.

import { z } from "zod";
import type { Clock } from "../../domain/clock.ts";
import {
  type EventId,
  parseEventId,
  parseRoomId,
  parseUserId,
  type RoomId,
  type ServerName,
  type UserId,
} from "../../domain/identifiers.ts";
import { expectSuccess, type HomeserverAccess, refused } from "./api.ts";

// Actions in rooms as one local user, with that user's power there.
// Invariants: an answer that is no success is an error with a stable code; a token that was lent for another user is
// given back.

const CLIENT = ["_matrix", "client", "v3"] as const;

export class ActingUser {
  readonly userId: UserId;
  readonly #access: HomeserverAccess;
  readonly #isLent: boolean;

  constructor(access: HomeserverAccess, userId: UserId, isLent: boolean) {
    this.#access = access;
    this.userId = userId;
    this.#isLent = isLent;
  }

  /**
   * Sends a state event. The same content again makes no new event.
   * @throws DrawbridgeError `homeserver_refused`
   */
  async putState(
    room: RoomId,
    type: string,
    stateKey: string,
    content: Readonly<Record<string, unknown>>,
  ): Promise<EventId> {
    const operation = `to set ${type}`;
    const path = [...CLIENT, "rooms", room, "state", type, stateKey];
    const answer = await this.#access.call("PUT", operation, path, { body: content });
    const eventId = parseEventId(expectSuccess(answer, operation)["event_id"]);
    if (eventId === undefined) throw refused(operation, answer);
    return eventId;
  }

  /** Sets somebody's membership: `ban` and `leave`. */
  setMembership(room: RoomId, user: UserId, membership: "ban" | "leave"): Promise<EventId> {
    return this.putState(room, "m.room.member", user, { membership });
  }

  /** Makes a room. It is not repeated when no answer comes; the caller searches for the room first. */
  async createRoom(body: Readonly<Record<string, unknown>>): Promise<RoomId> {
    const operation = "to make a room";
    const answer = await this.#post(operation, [...CLIENT, "createRoom"], body);
    const roomId = parseRoomId(expectSuccess(answer, operation)["room_id"]);
    if (roomId === undefined) throw refused(operation, answer);
    return roomId;
  }

  /** Invites somebody; whether that worked. */
  async invite(room: RoomId, user: UserId): Promise<boolean> {
    const answer = await this.#post("to invite", [...CLIENT, "rooms", room, "invite"], { user_id: user });
    return answer.status === 200;
  }

  /** Joins; whether that worked. */
  async join(room: RoomId): Promise<boolean> {
    const answer = await this.#post("to join", [...CLIENT, "rooms", room, "join"], {});
    return answer.status === 200;
  }

  /** Points an alias of this homeserver's at a room; whether that worked. */
  async putAlias(alias: string, room: RoomId): Promise<boolean> {
    const path = [...CLIENT, "directory", "room", alias];
    const answer = await this.#access.call("PUT", "to move an alias", path, { body: { room_id: room } });
    return answer.status === 200;
  }

  /** Aliases of this homeserver's that lead to a room which the user is in. */
  async localAliases(room: RoomId): Promise<readonly string[]> {
    const path = [...CLIENT, "rooms", room, "aliases"];
    const { aliases } = (await this.#access.call("GET", "to read aliases", path)).body;
    return Array.isArray(aliases) ? aliases.filter((alias) => typeof alias === "string") : [];
  }

  /** Gives a lent token back; the user's own devices are not touched. */
  async logout(): Promise<void> {
    if (this.#isLent) await this.#post("to give a token back", [...CLIENT, "logout"], {});
  }

  #post(operation: string, path: readonly string[], body: unknown) {
    return this.#access.call("POST", operation, path, { body });
  }
}

const StateEvent = z.object({
  type: z.string(),
  state_key: z.string(),
  sender: z.string(),
  event_id: z.string(),
  /** By its sender's server, in milliseconds; a server can write here what it likes. */
  origin_server_ts: z.number().optional(),
  content: z.record(z.string(), z.unknown()),
});
/** A current state event of a room, as the homeserver holds it. */
export type StateEvent = z.output<typeof StateEvent>;

/** Room IDs with spaces and other characters outside the grammar exist, and are rooms as others are. */
const ReportedRoomId = z
  .string()
  .min(1)
  .transform((id) => id as RoomId);

const WhoAmI = z.object({
  user_id: z.custom<UserId>((value) => parseUserId(value) !== undefined),
});
const State = z.object({ state: z.array(StateEvent) });
const RoomPage = z.object({
  rooms: z.array(z.object({ room_id: ReportedRoomId, federatable: z.boolean().nullish() })),
  next_batch: z.number().optional(),
});
const DestinationRooms = z.object({
  rooms: z.array(z.object({ room_id: ReportedRoomId })),
  next_token: z.string().optional(),
});
const Memberships = z.object({ memberships: z.record(ReportedRoomId, z.string()) });

const LocalUser = z.object({
  appservice_id: z.unknown().optional(),
  deactivated: z.unknown().optional(),
});
const Deletions = z.object({
  results: z.array(z.object({ delete_id: z.string().optional(), status: z.string() })),
});
const Block = z.object({ block: z.unknown().optional() });

const ADMIN = ["_synapse", "admin"] as const;
const PAGE = 500;

export class SynapseAdminApi {
  readonly #access: HomeserverAccess;

  constructor(access: HomeserverAccess) {
    this.#access = access;
  }

  /** Who the operator is. @throws DrawbridgeError when the token is not accepted */
  async whoami(): Promise<UserId> {
    return (await this.#access.read(WhoAmI, "whoami", ["_matrix", "client", "v3", "account", "whoami"]))
      .user_id;
  }

  /** Acts as the operator's own user. */
  self(userId: UserId): ActingUser {
    return new ActingUser(this.#access, userId, false);
  }

  /** Every room that the homeserver knows; rooms made within the last seconds may be missing. */
  async rooms(): Promise<readonly RoomId[]> {
    const found: RoomId[] = [];
    for (let from = 0; ; ) {
      const query = { limit: String(PAGE), from: String(from), order_by: "size" };
      const page = await this.#access.read(RoomPage, "list rooms", [...ADMIN, "v1", "rooms"], query);
      found.push(...page.rooms.flatMap((room) => (room.federatable === false ? [] : room.room_id)));
      if (page.next_batch === undefined) return found;
      from = page.next_batch;
    }
  }

  /** Rooms in which the homeserver has sent something to another server. */
  async destinationRooms(server: ServerName): Promise<readonly RoomId[]> {
    const found: RoomId[] = [];
    const path = [...ADMIN, "v1", "federation", "destinations", server, "rooms"];
    for (let from = "0"; ; ) {
      const query = { limit: String(PAGE), from };
      const page = await this.#access.find(DestinationRooms, "read a destination's rooms", path, query);
      if (page === undefined) return found;
      found.push(...page.rooms.map(({ room_id }) => room_id));
      if (page.next_token === undefined) return found;
      from = page.next_token;
    }
  }

  /** Rooms of any user, remote ones too, with the membership there. */
  async memberships(user: UserId): Promise<ReadonlyMap<RoomId, string>> {
    const path = [...ADMIN, "v1", "users", user, "memberships"];
    const found = await this.#access.find(Memberships, "read memberships", path);
    return new Map(Object.entries(found?.memberships ?? {}) as [RoomId, string][]);
  }

  /** The whole current state of a room; undefined when the homeserver does not know the room. */
  async roomState(room: RoomId): Promise<readonly StateEvent[] | undefined> {
    const path = [...ADMIN, "v1", "rooms", room, "state"];
    return (await this.#access.find(State, "read a room's state", path))?.state;
  }

  /** Whether a local user is a person's that is in use, and no application service's, such as the bridge's ghosts are. */
  async isPerson(user: UserId): Promise<boolean> {
    const found = await this.#access.find(LocalUser, "read a user", [...ADMIN, "v2", "users", user]);
    return found !== undefined && typeof found.appservice_id !== "string" && found.deactivated !== true;
  }

  /**
   * Acts as a local user, by a token of the operator's that names it (`/users/ID/login`): no device is made
   * and nothing is shown to the user. End it by `logout()`.
   * @param validUntil milliseconds since the epoch, when the homeserver forgets the token at the latest
   * @returns undefined when the homeserver does not allow it
   */
  async actAs(user: UserId, validUntil: number): Promise<ActingUser | undefined> {
    const path = [...ADMIN, "v1", "users", user, "login"];
    const body = { valid_until_ms: validUntil };
    const answer = await this.#access.call("POST", "act as a user", path, { body });
    const token = answer.body["access_token"];
    return answer.status === 200 && typeof token === "string"
      ? new ActingUser(this.#access.as(token), user, true)
      : undefined;
  }

  /**
   * Takes every local user out of a room and blocks it here (`DELETE /v2/rooms/ID`); with `purge` its events
   * go from the database as well. It goes on in the background.
   * @returns the ID of the deletion; undefined when another one of this room is under way
   */
  async deleteRoom(room: RoomId, purge: boolean): Promise<string | undefined> {
    const body = { block: true, purge, force_purge: false };
    const path = [...ADMIN, "v2", "rooms", room];
    const answer = await this.#access.call("DELETE", "delete a room", path, { body });
    // 400 means that a deletion of this room is under way already.
    if (answer.status === 400) return undefined;
    return String(expectSuccess(answer, "delete a room")["delete_id"]);
  }

  /**
   * How the deletion of a room goes; undefined when the homeserver remembers none. It remembers earlier ones of the same
   * room, and lists a new one a moment late.
   * @param id one deletion; all of the room's when absent
   */
  async deletion(room: RoomId, id?: string): Promise<"running" | "complete" | "failed" | undefined> {
    const path = [...ADMIN, "v2", "rooms", room, "delete_status"];
    const found = await this.#access.find(Deletions, "read a deletion's status", path);
    const states = (found?.results ?? [])
      .filter(({ delete_id }) => id === undefined || delete_id === id)
      .map(({ status }) => status);
    if (states.length === 0) return undefined;
    if (states.some((state) => state === "active" || state === "scheduled" || state === "purging"))
      return "running";
    return states.includes("complete") ? "complete" : "failed";
  }

  /** Whether nobody here can join or be invited to a room any more. */
  async isBlocked(room: RoomId): Promise<boolean> {
    const path = [...ADMIN, "v1", "rooms", room, "block"];
    return (await this.#access.read(Block, "read a room's block", path)).block === true;
  }

  /** Lets local users join a room again, and be invited to it. */
  async unblock(room: RoomId): Promise<void> {
    const path = [...ADMIN, "v1", "rooms", room, "block"];
    const answer = await this.#access.call("PUT", "unblock a room", path, { body: { block: false } });
    expectSuccess(answer, "unblock a room");
  }

  /** Takes away an alias of this homeserver's; not there any more is as good. */
  async deleteAlias(alias: string): Promise<void> {
    const path = ["_matrix", "client", "v3", "directory", "room", alias];
    const answer = await this.#access.call("DELETE", "take away an alias", path);
    if (answer.status !== 404) expectSuccess(answer, "take away an alias");
  }

  /** The room that an alias leads to; undefined when there is none. */
  async roomOfAlias(alias: string): Promise<RoomId | undefined> {
    const path = ["_matrix", "client", "v3", "directory", "room", alias];
    const answer = await this.#access.call("GET", "look up an alias", path);
    return answer.status === 200 ? ReportedRoomId.safeParse(answer.body["room_id"]).data : undefined;
  }
}

// Tokens lent by the homeserver for acting as local users, one a user. Invariants: at most one token a user is in
// use; every token is given back at the end, and the homeserver forgets it by itself soon after should this process
// be killed first.

const LIFE_MS = 15 * 60_000;
const USED_MS = 10 * 60_000;

export class LentTokens {
  readonly #operator: SynapseAdminApi;
  readonly #operatorId: UserId;
  readonly #clock: Clock;
  readonly #lent = new Map<
    UserId,
    { readonly since: number; readonly acting: Promise<ActingUser | undefined> }
  >();
  /** Users for whom the homeserver lends none. */
  readonly unusable = new Set<UserId>();

  constructor(operator: SynapseAdminApi, operatorId: UserId, clock: Clock) {
    this.#operator = operator;
    this.#operatorId = operatorId;
    this.#clock = clock;
  }

  /** Acts as a user; undefined when the homeserver does not allow it. */
  async as(user: UserId): Promise<ActingUser | undefined> {
    if (user === this.#operatorId) return this.#operator.self(user);
    const now = this.#clock.now();
    const known = this.#lent.get(user);
    if (known !== undefined && now < known.since + USED_MS) return known.acting;
    const acting = this.#operator.actAs(user, now + LIFE_MS);
    this.#lent.set(user, { since: now, acting });
    const found = await acting;
    if (found === undefined) this.unusable.add(user);
    await (await known?.acting)?.logout();
    return found;
  }

  /** Acts as a user once, and gives the token back. */
  async once<T>(user: UserId, act: (acting: ActingUser) => Promise<T>): Promise<T | undefined> {
    if (user === this.#operatorId || this.#lent.has(user)) {
      const acting = await this.as(user);
      return acting === undefined ? undefined : act(acting);
    }
    const acting = await this.#operator.actAs(user, this.#clock.now() + LIFE_MS);
    if (acting === undefined) return undefined;
    try {
      return await act(acting);
    } finally {
      await acting.logout();
    }
  }

  /** Gives all tokens back. */
  async release(): Promise<void> {
    const lent = [...this.#lent.values()];
    this.#lent.clear();
    await Promise.allSettled(lent.map(async ({ acting }) => (await acting)?.logout()));
  }
}
