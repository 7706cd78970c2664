// A person at a homeserver, as any Matrix client is: the client-server API with an access token.
import { DrawbridgeError } from "../src/domain/errors.ts";
import {
  type EventId,
  parseEventId,
  parseRoomId,
  type RoomId,
  serverOf,
  type UserId,
} from "../src/domain/identifiers.ts";
import { SOURCES, type Sources } from "./lab.ts";

export interface MatrixAnswer {
  readonly status: number;
  readonly body: Readonly<Record<string, unknown>>;
}

export interface RoomEvent {
  readonly event_id: string;
  readonly type: string;
  readonly sender: string;
  readonly origin_server_ts: number;
  readonly content: Readonly<Record<string, unknown>>;
  readonly state_key?: string;
  /** Whether it came encrypted, and was opened. */
  readonly encrypted?: true;
}

const TIMEOUT_MS = 60_000;
const RETRY_MS = 300;
const ATTEMPTS_MAX = 20;

/** One request to a homeserver. Any status is an answer; only silence is an error. */
export async function callHomeserver(
  baseUrl: string,
  method: string,
  path: string,
  options: { readonly token?: string | undefined; readonly body?: unknown; readonly timeoutMs?: number } = {},
): Promise<MatrixAnswer> {
  let response: Response;
  let text: string;
  try {
    response = await fetch(`${baseUrl}${path}`, {
      method,
      headers: {
        ...(options.token === undefined ? {} : { authorization: `Bearer ${options.token}` }),
        ...(options.body === undefined ? {} : { "content-type": "application/json" }),
      },
      signal: AbortSignal.timeout(options.timeoutMs ?? TIMEOUT_MS),
      ...(options.body === undefined ? {} : { body: JSON.stringify(options.body) }),
    });
    text = await response.text();
  } catch (cause) {
    throw new DrawbridgeError("homeserver_unavailable", `the homeserver at ${baseUrl} does not answer`, {
      hint: "Look at ./task fed:status; ./task fed:up repairs a lab.",
      cause,
    });
  }
  return { status: response.status, body: parseObject(text) };
}

function parseObject(text: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

/** Path of a resource of a room; the last part is encoded. */
export function roomPath(room: string, resource: string, last?: string): string {
  const path = `/rooms/${encodeURIComponent(room)}/${resource}`;
  return last === undefined ? path : `${path}/${encodeURIComponent(last)}`;
}

export function aliasPath(alias: string): string {
  return `/directory/room/${encodeURIComponent(alias)}`;
}

export class MatrixUser {
  readonly userId: UserId;
  readonly #baseUrl: string;
  readonly #token: string;
  readonly #sources: Sources;

  constructor(baseUrl: string, userId: UserId, accessToken: string, sources: Sources = SOURCES) {
    this.userId = userId;
    this.#baseUrl = baseUrl;
    this.#token = accessToken;
    this.#sources = sources;
  }

  /** One request below /_matrix/client/v3, whatever the status. */
  request(method: string, path: string, body?: unknown, timeoutMs?: number): Promise<MatrixAnswer> {
    return callHomeserver(this.#baseUrl, method, `/_matrix/client/v3${path}`, {
      token: this.#token,
      body,
      ...(timeoutMs === undefined ? {} : { timeoutMs }),
    });
  }

  /**
   * The same, where only success will do. What can be repeated without harm is, while the homeserver is
   * unwell: after its database was restarted, each of its old connections fails once.
   * @throws DrawbridgeError `homeserver_refused`, `homeserver_unavailable`
   */
  async call(
    method: string,
    path: string,
    body?: unknown,
    timeoutMs?: number,
  ): Promise<MatrixAnswer["body"]> {
    let answer = await this.request(method, path, body, timeoutMs);
    for (let attempt = 1; answer.status >= 500 && method !== "POST" && attempt < ATTEMPTS_MAX; attempt++) {
      await this.#sources.clock.sleep(RETRY_MS);
      answer = await this.request(method, path, body, timeoutMs);
    }
    if (answer.status === 200) return answer.body;
    throw new DrawbridgeError(
      "homeserver_refused",
      `${serverOf(this.userId)} refuses ${method} ${path.split("?")[0]}: ${answer.status} ${String(answer.body["errcode"])}`,
      { hint: "Look at ./task fed:status and the homeserver's log." },
    );
  }

  async createRoom(request: Readonly<Record<string, unknown>>): Promise<RoomId> {
    const roomId = parseRoomId((await this.call("POST", "/createRoom", request))["room_id"]);
    if (roomId === undefined) throw new DrawbridgeError("homeserver_refused", "the homeserver names no room");
    return roomId;
  }

  /** Joins by alias or ID; `via` are servers that are in the room. */
  join(room: string, via: readonly string[]): Promise<MatrixAnswer> {
    const query = via.map(
      (server) => `server_name=${encodeURIComponent(server)}&via=${encodeURIComponent(server)}`,
    );
    return this.request("POST", `/join/${encodeURIComponent(room)}?${query.join("&")}`, {});
  }

  /** Answered only when the homeserver has the room's whole state. */
  async members(roomId: RoomId): Promise<string[]> {
    const body = await this.call("GET", roomPath(roomId, "joined_members"));
    return Object.keys((body["joined"] ?? {}) as object);
  }

  /** A user's membership in a room, as this homeserver has it; the error code where it says none. */
  async membership(room: string, user: string = this.userId): Promise<string> {
    const { body } = await this.request("GET", roomPath(room, "state/m.room.member", user));
    return String(body["membership"] ?? body["errcode"]);
  }

  invite(room: string, user: string): Promise<MatrixAnswer> {
    return this.request("POST", roomPath(room, "invite"), { user_id: user });
  }

  async joinedRooms(): Promise<RoomId[]> {
    const { joined_rooms: joined } = await this.call("GET", "/joined_rooms");
    return (Array.isArray(joined) ? joined : []).map(parseRoomId).filter((room) => room !== undefined);
  }

  /** The room that an alias leads to; undefined when it leads to none. */
  async roomAt(alias: string): Promise<RoomId | undefined> {
    const { status, body } = await this.request("GET", aliasPath(alias));
    return status === 200 ? parseRoomId(body["room_id"]) : undefined;
  }

  /** Whether this user's homeserver shows an event. */
  async sees(room: RoomId, event: string, timeoutMs?: number): Promise<boolean> {
    return (await this.request("GET", roomPath(room, "event", event), undefined, timeoutMs)).status === 200;
  }

  async send(roomId: RoomId, content: Readonly<Record<string, unknown>>): Promise<EventId> {
    const txnId = this.#sources.random.bytes(12).toString("hex");
    const body = await this.call("PUT", roomPath(roomId, "send/m.room.message", txnId), content);
    const eventId = parseEventId(body["event_id"]);
    if (eventId === undefined)
      throw new DrawbridgeError("homeserver_refused", "the homeserver names no event");
    return eventId;
  }

  /** New events of one room since `since`; without it only the position from which to read on. */
  async sync(
    roomId: RoomId,
    since: string | undefined,
    waitMs: number,
  ): Promise<{ next: string; events: RoomEvent[] }> {
    const filter = JSON.stringify({
      room: { rooms: [roomId], timeline: { limit: since === undefined ? 1 : 100 }, state: { types: [] } },
      presence: { types: [] },
      account_data: { types: [] },
    });
    const query = new URLSearchParams({ filter, timeout: String(waitMs), set_presence: "offline" });
    if (since !== undefined) query.set("since", since);
    const body = await this.call("GET", `/sync?${query}`, undefined, waitMs + TIMEOUT_MS);
    const rooms = body["rooms"] as
      | { join?: Record<string, { timeline?: { events?: RoomEvent[] } }> }
      | undefined;
    return {
      next: String(body["next_batch"]),
      events: since === undefined ? [] : (rooms?.join?.[roomId]?.timeline?.events ?? []),
    };
  }
}
