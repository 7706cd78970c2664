// The Matrix client-server API as the bridge uses it. Invariants: identifiers are parsed where they come in; everything that
// a ghost sends names its device, because only then does the homeserver's memory of transaction IDs survive its own restart.
import * as z from "zod";
import {
  type EventId,
  type GhostMxid,
  localpartOf,
  parseEventId,
  parseRoomId,
  parseUserId,
  type RoomId,
  type ServerName,
  type TransactionId,
  type UserId,
} from "../../domain/identifiers.ts";
import type { UnknownObject } from "../../domain/json.ts";
import { DeviceApi } from "./device-api.ts";
import { type GhostActor, HomeserverHttp, type HomeserverOptions, NO_VALUE } from "./http.ts";
import type { PruneBounds } from "./read-pruned-json.ts";
import { mapValue, type Outcome, ok, retry, unlessRefused } from "./request-result.ts";

const parsedBy = <T>(parse: (value: unknown) => T | undefined) =>
  z.unknown().transform((value, context) => {
    const parsed = parse(value);
    if (parsed !== undefined) return parsed;
    context.addIssue({ code: "custom", message: "not a Matrix identifier" });
    return z.NEVER;
  });

/** Members' names alone are read: a profile may be many times as long, and anybody sets his own. */
const MEMBER_BOUNDS: PruneBounds = {
  what: "named_values",
  elementBytesMax: 0,
  bytesMax: 32 * 1024 * 1024,
  readBytesMax: 512 * 1024 * 1024,
};

const markerPath = (user: UserId) => ["user", user, "account_data", "org.drawbridge.database"];
const MarkerCopy = z.object({ database: z.string(), count: z.number() });
/** A draining process does not wait for a homeserver that hangs. */
const MARKER_MS_MAX = 2_000;

const AnyObject = z.record(z.string(), z.unknown());
const TimelineEvent = z.object({
  event_id: parsedBy(parseEventId),
  sender: parsedBy(parseUserId),
  type: z.string(),
  origin_server_ts: z.number(),
  content: AnyObject,
});

type Profiled = Pick<GhostActor, "ghost" | "signal">;

/** An event that is asked about, and who sent it. */
export type SaidIn = { readonly event: EventId; readonly sender: UserId };

export class Homeserver {
  readonly #http: HomeserverHttp;
  readonly devices: DeviceApi;

  constructor(options: HomeserverOptions) {
    this.#http = new HomeserverHttp(options);
    this.devices = new DeviceApi(this.#http, options);
  }

  close(): Promise<void> {
    return this.#http.close();
  }

  versions() {
    return this.#http.request("versions", "GET", ["versions"], {
      base: "client",
      schema: z.object({ versions: z.array(z.string()) }),
    });
  }

  whoami(actor?: GhostActor) {
    return this.#http.request("whoami", "GET", ["account", "whoami"], {
      as: actor,
      schema: z.object({ user_id: parsedBy(parseUserId), device_id: z.string().optional() }),
    });
  }

  /** How far the bridge's database had come; undefined where nothing was recorded. */
  async databaseMarker(user: UserId) {
    const outcome = await this.#http.request("get_marker", "GET", markerPath(user), { schema: MarkerCopy });
    return unlessRefused(outcome, "M_NOT_FOUND");
  }

  setDatabaseMarker(user: UserId, marker: { readonly database: string | undefined; readonly count: number }) {
    const call = { body: marker, timeoutMs: MARKER_MS_MAX };
    return this.#http.request("set_marker", "PUT", markerPath(user), call);
  }

  /** `POST /appservice/{id}/ping`: has the homeserver call the bridge back. */
  pingAppservice(appserviceId: string): Promise<Outcome<undefined>> {
    const path = ["appservice", appserviceId, "ping"];
    return this.#http.request("ping", "POST", path, { base: "client/v1", body: {} });
  }

  /** `POST /register` for a ghost. That it exists already is success. */
  async registerGhost(ghost: GhostMxid): Promise<Outcome<undefined>> {
    const body = { type: "m.login.application_service", username: localpartOf(ghost), inhibit_login: true };
    const outcome = await this.#http.request("register", "POST", ["register"], { body });
    return unlessRefused(outcome, "M_USER_IN_USE");
  }

  /** `PUT /devices/{id}`: makes the ghost's device, or leaves the one there is (MSC4190). */
  putDevice(actor: GhostActor, displayName: string): Promise<Outcome<undefined>> {
    const as = { ghost: actor.ghost, signal: actor.signal };
    const call = { body: { display_name: displayName }, as };
    return this.#http.request("put_device", "PUT", ["devices", actor.deviceId], call);
  }

  setDisplayName({ ghost, signal }: Profiled, displayName: string): Promise<Outcome<undefined>> {
    const call = { body: { displayname: displayName }, as: { ghost, signal } };
    return this.#http.request("set_display_name", "PUT", ["profile", ghost, "displayname"], call);
  }

  /** @param url an `mxc:` address; empty for none */
  setAvatar({ ghost, signal }: Profiled, url: string): Promise<Outcome<undefined>> {
    const call = { body: { avatar_url: url }, as: { ghost, signal } };
    return this.#http.request("set_avatar", "PUT", ["profile", ghost, "avatar_url"], call);
  }

  /** Room IDs of version 12 name no server, so the inviter's is passed along. */
  join(actor: GhostActor, roomId: RoomId, via: readonly ServerName[]): Promise<Outcome<{ room_id: RoomId }>> {
    return this.#http.request("join", "POST", ["join", roomId], {
      // `server_name` is what the parameter was called before version 1.12 of the specification.
      query: { via, server_name: via },
      body: {},
      as: actor,
      schema: z.object({ room_id: parsedBy(parseRoomId) }),
    });
  }

  leave(actor: GhostActor, roomId: RoomId): Promise<Outcome<undefined>> {
    return this.#http.request("leave", "POST", ["rooms", roomId, "leave"], { body: {}, as: actor });
  }

  /** Without members whose ID cannot be parsed. */
  async joinedMembers(
    actor: GhostActor,
    roomId: RoomId,
    parse: (id: string) => UserId | undefined = parseUserId,
  ): Promise<Outcome<readonly UserId[]>> {
    const outcome = await this.#http.request("joined_members", "GET", ["rooms", roomId, "joined_members"], {
      as: actor,
      schema: z.object({ joined: z.record(z.string(), z.unknown()) }),
      thin: MEMBER_BOUNDS,
    });
    return mapValue(outcome, ({ joined }) => Object.keys(joined).flatMap((member) => parse(member) ?? []));
  }

  /**
   * The state with the empty state key; undefined where there is none. Synapse takes a member that another server invites to
   * its own room for an invited user, who may neither read nor write, and lists it among the joined members as before.
   */
  async stateEvent(actor: GhostActor, roomId: RoomId, type: string) {
    const path = ["rooms", roomId, "state", type, ""];
    const outcome = await this.#http.request("state", "GET", path, { as: actor, schema: AnyObject });
    if (outcome.kind !== "refused" || outcome.errcode !== "M_FORBIDDEN")
      return unlessRefused(outcome, "M_NOT_FOUND");
    const members = await this.joinedMembers(actor, roomId);
    if (members.kind === "retry") return members;
    return members.kind === "ok" && members.value.includes(actor.ghost) ? retry("room_hidden") : outcome;
  }

  setState(actor: GhostActor, roomId: RoomId, type: string, content: UnknownObject) {
    const path = ["rooms", roomId, "state", type, ""];
    return this.#http.request("set_state", "PUT", path, { body: content, as: actor });
  }

  async upload(actor: GhostActor, content: Uint8Array, mediaType: string): Promise<Outcome<string>> {
    const outcome = await this.#http.request("upload", "POST", ["upload"], {
      base: "media/v3",
      bytes: { mediaType, content },
      as: actor,
      schema: z.object({ content_uri: z.string().startsWith("mxc://") }),
    });
    return mapValue(outcome, (stored) => stored.content_uri);
  }

  /** Undefined for a file that is longer than `bytesMax`. */
  download(actor: GhostActor, server: ServerName, mediaId: string, bytesMax: number) {
    return this.#http.request("download", "GET", ["media", "download", server, mediaId], {
      base: "client/v1",
      as: actor,
      fileBytesMax: bytesMax,
      schema: z.instanceof(Uint8Array).optional(),
    });
  }

  /** @param timeoutMs how long it counts; 0 ends it */
  typing(actor: GhostActor, roomId: RoomId, timeoutMs: number): Promise<Outcome<undefined>> {
    const body = timeoutMs === 0 ? { typing: false } : { typing: true, timeout: timeoutMs };
    const path = ["rooms", roomId, "typing", actor.ghost];
    return this.#http.request("typing", "PUT", path, { body, as: actor });
  }

  async sendEvent(
    actor: GhostActor,
    roomId: RoomId,
    eventType: string,
    transactionId: TransactionId,
    content: UnknownObject,
  ): Promise<Outcome<EventId>> {
    const path = ["rooms", roomId, "send", eventType, transactionId];
    const call = { body: content, as: actor, schema: z.object({ event_id: parsedBy(parseEventId) }) };
    const outcome = await this.#http.request("send", "PUT", path, call);
    return mapValue(outcome, (sent) => sent.event_id);
  }

  event(actor: GhostActor, roomId: RoomId, eventId: EventId): Promise<Outcome<UnknownObject>> {
    const path = ["rooms", roomId, "event", eventId];
    return this.#http.request("event", "GET", path, { as: actor, schema: AnyObject });
  }

  /**
   * Whether an event is part of its room. Synapse also passes on what other servers send and the room's present state forbids,
   * such as what a banned member says (soft failure, server-server API), and shows it to no client. In a room that hides its
   * past it does not show either what was said before the ghost joined: there it counts that the sender is a member.
   */
  async isAccepted(actor: GhostActor, roomId: RoomId, { event, sender }: SaidIn): Promise<Outcome<boolean>> {
    const found = await this.event(actor, roomId, event);
    if (found.kind !== "refused" || found.errcode !== "M_NOT_FOUND") return mapValue(found, () => true);
    // Nor does it show anything of a room that the ghost is not in, or not yet.
    const read = await this.stateEvent(actor, roomId, "m.room.history_visibility");
    if (read.kind !== "ok") return read;
    const isPastHidden = ["joined", "invited"].includes(String(read.value?.["history_visibility"]));
    if (!isPastHidden) return ok(false);
    return mapValue(await this.joinedMembers(actor, roomId), (members) => members.includes(sender));
  }

  async timelineAfter(actor: GhostActor, roomId: RoomId, eventId: EventId): Promise<Outcome<string>> {
    const outcome = await this.#http.request("context", "GET", ["rooms", roomId, "context", eventId], {
      // Else the answer has all members of the room.
      query: { limit: "0", filter: '{"lazy_load_members":true}' },
      as: actor,
      schema: z.object({ end: z.string() }),
    });
    return mapValue(outcome, ({ end }) => end);
  }

  /** A ghost's own events, forwards. `next` is undefined at the end of the timeline. */
  async ownEventsFrom(actor: GhostActor, roomId: RoomId, eventTypes: readonly string[], from: string) {
    const filter = JSON.stringify({ senders: [actor.ghost], types: eventTypes });
    const outcome = await this.#http.request("messages", "GET", ["rooms", roomId, "messages"], {
      query: { dir: "f", from, limit: "100", filter },
      as: actor,
      schema: z.object({ chunk: z.array(z.union([TimelineEvent, NO_VALUE])), end: z.string().optional() }),
    });
    return mapValue(outcome, ({ chunk, end }) => ({
      events: chunk.filter((event) => event !== undefined),
      next: end,
    }));
  }
}
