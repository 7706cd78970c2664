// The Matrix client-server API as the bridge uses it: one method an operation, typed answers.
// Invariants: identifiers are parsed where they come in; everything that a ghost sends names its device,
// because only then does the homeserver's memory of transaction IDs survive its own restart.
import { z } from "zod";
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
import { type GhostActor, HomeserverHttp, type HomeserverOptions } from "./http.ts";
import { KeysQuery } from "./keys-query.ts";
import type { PruneBounds } from "./read-pruned-json.ts";
import { mapValue, type Outcome, unlessRefused } from "./request-result.ts";

const parsedBy = <T>(parse: (value: unknown) => T | undefined) =>
  z.unknown().transform((value, context) => {
    const parsed = parse(value);
    if (parsed !== undefined) return parsed;
    context.addIssue({ code: "custom", message: "not a Matrix identifier" });
    return z.NEVER;
  });

/** Of a room's members the names alone are read: their profiles may be many times as long, and anybody sets his own. */
const MEMBER_BOUNDS: PruneBounds = {
  what: "named_values",
  elementBytesMax: 0,
  bytesMax: 32 * 1024 * 1024,
  readBytesMax: 512 * 1024 * 1024,
};

const MARKER_TYPE = "org.drawbridge.database";
const MarkerCopy = z.object({ database: z.string(), count: z.number() });
/** It is also told while a process drains, which does not wait for a homeserver that hangs. */
const MARKER_MS_MAX = 2_000;

const AnyObject = z.record(z.string(), z.unknown());
const Nothing = z.unknown().transform(() => undefined);
const SentEvent = z.object({ event_id: parsedBy(parseEventId) });
const TimelineEvent = z.object({
  event_id: parsedBy(parseEventId),
  sender: parsedBy(parseUserId),
  type: z.string(),
  origin_server_ts: z.number(),
  content: AnyObject,
});
export type TimelineEvent = z.output<typeof TimelineEvent>;

export class Homeserver {
  readonly #http: HomeserverHttp;
  /** What concerns ghosts' devices and their keys. */
  readonly devices: DeviceApi;

  constructor(options: HomeserverOptions) {
    this.#http = new HomeserverHttp(options);
    this.devices = new DeviceApi(this.#http, new KeysQuery(options.clock, options.onKeysTooLarge));
  }

  async close(): Promise<void> {
    await this.#http.close();
  }

  /** `GET /versions`. */
  versions(): Promise<Outcome<{ versions: string[] }>> {
    return this.#http.request("versions", "GET", ["versions"], {
      base: "client",
      schema: z.object({ versions: z.array(z.string()) }),
    });
  }

  /** `GET /account/whoami`, as the appservice's own user, or as a ghost's device. */
  whoami(actor?: GhostActor): Promise<Outcome<{ user_id: UserId; device_id?: string | undefined }>> {
    return this.#http.request("whoami", "GET", ["account", "whoami"], {
      as: actor,
      schema: z.object({ user_id: parsedBy(parseUserId), device_id: z.string().optional() }),
    });
  }

  /** `GET /user/{user}/account_data/{type}`: how far the bridge's database had come. That there is none is a value. */
  async databaseMarker(user: UserId): Promise<Outcome<z.output<typeof MarkerCopy> | undefined>> {
    const path = ["user", user, "account_data", MARKER_TYPE];
    const outcome = await this.#http.request("get_marker", "GET", path, { schema: MarkerCopy });
    return unlessRefused(outcome, "M_NOT_FOUND");
  }

  /** `PUT /user/{user}/account_data/{type}`. */
  setDatabaseMarker(
    user: UserId,
    marker: { readonly database: string | undefined; readonly count: number },
  ): Promise<Outcome<undefined>> {
    const path = ["user", user, "account_data", MARKER_TYPE];
    return this.#http.request("set_marker", "PUT", path, { body: marker, timeoutMs: MARKER_MS_MAX });
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

  /** `PUT /profile/{user}/displayname`. */
  setDisplayName({ ghost, signal }: GhostActor, displayName: string): Promise<Outcome<undefined>> {
    const call = { body: { displayname: displayName }, as: { ghost, signal } };
    return this.#http.request("set_display_name", "PUT", ["profile", ghost, "displayname"], call);
  }

  /** `POST /join/{room}`. Room IDs of version 12 name no server, so the inviter's is passed along. */
  join(actor: GhostActor, roomId: RoomId, via: readonly ServerName[]): Promise<Outcome<{ room_id: RoomId }>> {
    return this.#http.request("join", "POST", ["join", roomId], {
      // `server_name` is what the parameter was called before version 1.12 of the specification.
      query: { via, server_name: via },
      body: {},
      as: actor,
      schema: z.object({ room_id: parsedBy(parseRoomId) }),
    });
  }

  /** `POST /rooms/{room}/leave`; also refuses an invitation. */
  leave(actor: GhostActor, roomId: RoomId): Promise<Outcome<undefined>> {
    return this.#http.request("leave", "POST", ["rooms", roomId, "leave"], { body: {}, as: actor });
  }

  /** `GET /rooms/{room}/joined_members`. Members whose ID cannot be parsed are left out. */
  async joinedMembers(actor: GhostActor, roomId: RoomId): Promise<Outcome<readonly UserId[]>> {
    const outcome = await this.#http.request("joined_members", "GET", ["rooms", roomId, "joined_members"], {
      as: actor,
      schema: z.object({ joined: z.record(z.string(), z.unknown()) }),
      thin: MEMBER_BOUNDS,
    });
    return mapValue(outcome, ({ joined }) =>
      Object.keys(joined)
        .map(parseUserId)
        .filter((member) => member !== undefined),
    );
  }

  /** `GET /rooms/{room}/state/{type}`, with the empty state key. That there is none is a value: undefined. */
  async stateEvent(
    actor: GhostActor,
    roomId: RoomId,
    type: string,
  ): Promise<Outcome<UnknownObject | undefined>> {
    const path = ["rooms", roomId, "state", type, ""];
    const outcome = await this.#http.request("state", "GET", path, { as: actor, schema: AnyObject });
    return unlessRefused(outcome, "M_NOT_FOUND");
  }

  /** `PUT /rooms/{room}/state/{type}`, with the empty state key. */
  setState(
    actor: GhostActor,
    roomId: RoomId,
    type: string,
    content: UnknownObject,
  ): Promise<Outcome<undefined>> {
    const path = ["rooms", roomId, "state", type, ""];
    return this.#http.request("set_state", "PUT", path, { body: content, as: actor });
  }

  /** `POST /_matrix/media/v3/upload`: the content's `mxc:` address. */
  async upload(actor: GhostActor, content: Uint8Array, mediaType: string): Promise<Outcome<string>> {
    const outcome = await this.#http.request("upload", "POST", ["upload"], {
      base: "media/v3",
      bytes: { mediaType, content },
      as: actor,
      schema: z.object({ content_uri: z.string().startsWith("mxc://") }),
    });
    return mapValue(outcome, (stored) => stored.content_uri);
  }

  /** `GET /media/download/{server}/{media}` of `client/v1`. @returns undefined for a file that is longer than `bytesMax` */
  download(
    actor: GhostActor,
    server: ServerName,
    mediaId: string,
    bytesMax: number,
  ): Promise<Outcome<Uint8Array | undefined>> {
    return this.#http.request("download", "GET", ["media", "download", server, mediaId], {
      base: "client/v1",
      as: actor,
      fileBytesMax: bytesMax,
      schema: z.instanceof(Uint8Array).optional(),
    });
  }

  /** `PUT /rooms/{room}/typing/{user}`. @param timeoutMs how long it counts; 0 ends it */
  typing(actor: GhostActor, roomId: RoomId, timeoutMs: number): Promise<Outcome<undefined>> {
    const body = timeoutMs === 0 ? { typing: false } : { typing: true, timeout: timeoutMs };
    const path = ["rooms", roomId, "typing", actor.ghost];
    return this.#http.request("typing", "PUT", path, { body, as: actor });
  }

  /** `PUT /rooms/{room}/send/{type}/{txnId}`, as the ghost's device. */
  async sendEvent(
    actor: GhostActor,
    roomId: RoomId,
    eventType: string,
    transactionId: TransactionId,
    content: UnknownObject,
  ): Promise<Outcome<EventId>> {
    const path = ["rooms", roomId, "send", eventType, transactionId];
    const call = { body: content, as: actor, schema: SentEvent };
    const outcome = await this.#http.request("send", "PUT", path, call);
    return mapValue(outcome, (sent) => sent.event_id);
  }

  /** `GET /rooms/{room}/event/{event}`: the event as it is now, whole. */
  event(actor: GhostActor, roomId: RoomId, eventId: EventId): Promise<Outcome<UnknownObject>> {
    const path = ["rooms", roomId, "event", eventId];
    return this.#http.request("event", "GET", path, { as: actor, schema: AnyObject });
  }

  /** `GET /rooms/{room}/context/{event}`: the place in the timeline right after an event. */
  async timelineAfter(actor: GhostActor, roomId: RoomId, eventId: EventId): Promise<Outcome<string>> {
    const outcome = await this.#http.request("context", "GET", ["rooms", roomId, "context", eventId], {
      query: { limit: "0" },
      as: actor,
      schema: z.object({ end: z.string() }),
    });
    return mapValue(outcome, ({ end }) => end);
  }

  /** `GET /rooms/{room}/messages`, forwards: a ghost's own events. `next` is undefined at the end of the timeline. */
  async ownEventsFrom(
    actor: GhostActor,
    roomId: RoomId,
    eventTypes: readonly string[],
    from: string,
  ): Promise<Outcome<{ events: readonly TimelineEvent[]; next: string | undefined }>> {
    const outcome = await this.#http.request("messages", "GET", ["rooms", roomId, "messages"], {
      query: {
        dir: "f",
        from,
        limit: "100",
        filter: JSON.stringify({ senders: [actor.ghost], types: eventTypes }),
      },
      as: actor,
      schema: z.object({ chunk: z.array(z.union([TimelineEvent, Nothing])), end: z.string().optional() }),
    });
    return mapValue(outcome, ({ chunk, end }) => ({
      events: chunk.filter((event) => event !== undefined),
      next: end,
    }));
  }
}
