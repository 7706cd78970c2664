// A person at some homeserver: the partner's, the witness's or the observer's. Invariants: what is sent is of a type
// that no client shows and no bridge answers; an answer's body is read for identifiers and codes alone.
import { parseEventId, type RoomId, serverOf, type UserId } from "../../domain/identifiers.ts";
import { requestJson } from "../../runtime/http.ts";
import { readSecret } from "../../runtime/secrets.ts";
import { type MatrixAnswer, matrixAnswer, resourceUrl } from "../homeserver/api.ts";
import type { Federation } from "../reconcile/context.ts";
import type { ProbeUser } from "./config.ts";

const TIMEOUT_MS = 60_000;
/** The longest answer is the list of a room's members; it may come from the homeserver of whoever is probed. */
const BODY_BYTES_MAX = 8 * 1024 * 1024;
const FETCH_EVENT = "/_synapse/admin/v1/fetch_event";
const CLIENT = "/_matrix/client/v3";
const PROBE_TYPE = "drawbridge.federation.probe";

export type ProbeSources = Pick<Federation, "clock" | "random">;
export type Person = ReturnType<typeof personWith>;

/** Acts as a user of probe.yaml. Any status is an answer. @throws whatever the network throws, from each method */
export function personWith(user: ProbeUser, directory: string, { random }: ProbeSources) {
  const { userId, serverName } = user;
  const token = readSecret(user.accessToken, directory);

  async function call(method: "GET" | "POST" | "PUT", path: string, body?: unknown): Promise<MatrixAnswer> {
    const url = resourceUrl(user.homeserverUrl, path);
    const bounds = { timeoutMs: TIMEOUT_MS, bytesMax: BODY_BYTES_MAX };
    return matrixAnswer(await requestJson(url, { method, token, body, ...bounds }));
  }

  const inRoom = (...steps: string[]) => `${CLIENT}/rooms/${steps.map(encodeURIComponent).join("/")}`;

  async function put(room: RoomId, kind: "send" | "state", contentOf: (id: string) => object) {
    const id = random.bytes(12).toString("hex");
    const answer = await call("PUT", inRoom(room, kind, PROBE_TYPE, id), contentOf(id));
    return { answer, eventId: parseEventId(answer.body["event_id"]) };
  }

  const state = (room: RoomId, type: string, key = "") => call("GET", inRoom(room, "state", type, key));

  const isGiven = async (path: string) => (await call("GET", path)).status === 200;
  const sees = (room: RoomId, eventId: string) => isGiven(inRoom(room, "event", eventId));

  return {
    ...{ userId, serverName, sees },

    /** Sends the probes' event. It has content: a server that may not see an event is given it without any. */
    send: (room: RoomId) => put(room, "send", (probe) => ({ probe })),

    sendState: (room: RoomId) => put(room, "state", () => ({})),

    join(room: string, via: readonly string[]): Promise<MatrixAnswer> {
      const query = via.map(encodeURIComponent).map((server) => `server_name=${server}&via=${server}`);
      return call("POST", `${CLIENT}/join/${encodeURIComponent(room)}?${query.join("&")}`, {});
    },

    leave: (room: RoomId) => call("POST", inRoom(room, "leave"), {}),

    /** Whether this user's homeserver has an event: an administrator is given any of them, others what they may see. */
    holds: async (room: RoomId, eventId: string) =>
      (await isGiven(`${FETCH_EVENT}/${encodeURIComponent(eventId)}`)) || sees(room, eventId),

    /** Whether this user is certainly shown nothing of the room: it is out of it, and may not read it from outside. */
    async isShutOut(room: RoomId): Promise<boolean> {
      const own = await state(room, "m.room.member", userId);
      const isOut = isRefused(own) || (own.status === 200 && own.body["membership"] !== "join");
      if (!isOut) return false;
      const found = await state(room, "m.room.history_visibility");
      const visibility = found.body["history_visibility"];
      return isRefused(found) || (found.status === 200 && visibility !== "world_readable");
    },

    /** Whether the homeserver certainly refuses this user its admin API (Synapse's). */
    async isNoAdministrator(): Promise<boolean> {
      const { status, errcode } = await call("GET", `${FETCH_EVENT}/%24none`);
      return status === 403 || errcode === "M_UNRECOGNIZED";
    },

    /** Users of one server who are joined to the room, as this user's homeserver lists them; undefined when it refuses. */
    async joinedFrom(room: RoomId, server: string): Promise<readonly string[] | undefined> {
      const { status, body } = await call("GET", inRoom(room, "joined_members"));
      if (status !== 200 || typeof body["joined"] !== "object" || body["joined"] === null) return undefined;
      return Object.keys(body["joined"]).filter((user) => serverOf(user as UserId) === server);
    },

    async isJoined(room: RoomId): Promise<boolean> {
      const answer = await state(room, "m.room.member", userId);
      return answer.status === 200 && answer.body["membership"] === "join";
    },

    /** The room that an ID or an alias names; undefined when this user's homeserver does not know it. */
    async resolve(room: string): Promise<RoomId | undefined> {
      if (room.startsWith("!")) return room as RoomId;
      const path = `${CLIENT}/directory/room/${encodeURIComponent(room)}`;
      const { status, body } = await call("GET", path);
      return status === 200 && typeof body["room_id"] === "string" ? (body["room_id"] as RoomId) : undefined;
    },
  };
}

const isRefused = ({ status }: MatrixAnswer): boolean => status === 403 || status === 404;
