// Actions in rooms as one local user, with that user's power there.
// Invariants: an answer that is no success is an error with a stable code; a token that was lent for another user is
// given back.
import {
  type EventId,
  parseEventId,
  parseRoomId,
  type RoomId,
  type UserId,
} from "../../domain/identifiers.ts";
import { expectSuccess, type HomeserverAccess, refused } from "./api.ts";

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
