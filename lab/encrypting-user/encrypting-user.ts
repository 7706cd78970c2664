// A person who takes part in encrypted rooms: as MatrixUser, but what is sent is encrypted, and what is read is
// decrypted. Invariants: each run of the lab's programs has a device of its own, logged in at its start and logged out at
// its end, so no key has to outlive it; what cannot be decrypted yet is tried again with each sync.
import { DrawbridgeError } from "../../src/domain/errors.ts";
import {
  type EventId,
  parseEventId,
  parseUserId,
  type RoomId,
  type UserId,
} from "../../src/domain/identifiers.ts";
import { homeserverEndpoints } from "../endpoints.ts";
import type { Lab, Sources } from "../lab.ts";
import { callHomeserver, MatrixUser, type RoomEvent } from "../matrix-user.ts";
import type { OrganisationName } from "../organisations.ts";
import type { Seed } from "../seed/seed-file.ts";
import { OlmClient } from "./olm-client.ts";

const TIMEOUT_MS = 60_000;

export class EncryptingUser {
  readonly userId: UserId;
  readonly deviceId: string;
  readonly #user: MatrixUser;
  readonly #olm: OlmClient;
  readonly #sources: Sources;
  #since: string | undefined;
  /** Events that came and cannot be decrypted yet. */
  #undecrypted: RoomEvent[] = [];
  /** Of every message that was sent to this device, its type and who sent it. */
  readonly toDevice: { readonly type: string; readonly sender: string }[] = [];

  private constructor(user: MatrixUser, deviceId: string, olm: OlmClient, sources: Sources) {
    this.userId = user.userId;
    this.deviceId = deviceId;
    this.#user = user;
    this.#olm = olm;
    this.#sources = sources;
  }

  /**
   * Logs an organisation's first user in on a new device, with its keys published.
   * @throws DrawbridgeError `homeserver_refused`, `homeserver_unavailable`
   */
  static async logIn(
    lab: Lab,
    seed: Seed,
    organisation: OrganisationName,
    sources: Sources,
  ): Promise<EncryptingUser> {
    const [seeded] = seed.users[organisation];
    const userId = parseUserId(seeded?.userId);
    if (seeded === undefined || userId === undefined) throw new TypeError(`${organisation} has no user`);
    const { clientUrl } = homeserverEndpoints(lab, organisation);
    const { status, body } = await callHomeserver(clientUrl, "POST", "/_matrix/client/v3/login", {
      body: {
        type: "m.login.password",
        identifier: { type: "m.id.user", user: userId },
        password: seeded.password,
        initial_device_display_name: "Drawbridge lab, encrypting",
      },
    });
    const [token, deviceId] = [body["access_token"], body["device_id"]];
    if (status !== 200 || typeof token !== "string" || typeof deviceId !== "string") {
      throw new DrawbridgeError("homeserver_refused", `cannot log in ${userId}: ${status}`, {
        hint: "Start afresh: ./task fed:down --purge, then ./task fed:up.",
      });
    }
    const user = new MatrixUser(clientUrl, userId, token, sources);
    const call = (method: string, path: string, content?: unknown) => user.call(method, path, content);
    const opened = new EncryptingUser(user, deviceId, await OlmClient.open(userId, deviceId, call), sources);
    await opened.#sync(undefined, 0);
    return opened;
  }

  /** Ends the device: nobody encrypts for it any more. */
  async logOut(): Promise<void> {
    await this.#user.request("POST", "/logout", {});
    this.#olm.close();
  }

  /** Whether this person's machine knows a device of somebody. */
  async knows(user: UserId, deviceId: string): Promise<boolean> {
    await this.#sync(undefined, 0);
    return (await this.#olm.devicesOf(user)).includes(deviceId);
  }

  /** Sends a message, encrypted for everybody in the room. */
  async send(room: RoomId, content: Readonly<Record<string, unknown>>): Promise<EventId> {
    const members = await this.#user.members(room);
    await this.#olm.shareKey(room, members);
    const encrypted = await this.#olm.encrypt(room, "m.room.message", content);
    const path = ["rooms", room, "send", "m.room.encrypted", this.#sources.random.bytes(12).toString("hex")];
    const body = await this.#user.call("PUT", `/${path.map(encodeURIComponent).join("/")}`, encrypted);
    const event = parseEventId(body["event_id"]);
    if (event === undefined) throw new DrawbridgeError("homeserver_refused", "the homeserver names no event");
    return event;
  }

  /**
   * New events of a room, opened; and earlier ones that can be opened now. As `MatrixUser.sync`, but the
   * position is this device's own: the first call gives nothing.
   */
  async sync(
    room: RoomId,
    since: string | undefined,
    waitMs: number,
  ): Promise<{ next: string; events: RoomEvent[] }> {
    const came = await this.#sync(room, waitMs);
    const next = String(this.#since);
    if (since === undefined) return { next, events: [] };
    const events: RoomEvent[] = [];
    const still: RoomEvent[] = [];
    for (const event of [...this.#undecrypted, ...came]) {
      const opened = event.type === "m.room.encrypted" ? await this.#decrypt(room, event) : event;
      if (opened === undefined) still.push(event);
      else events.push(opened);
    }
    this.#undecrypted = still;
    return { next, events };
  }

  /** An event that came by another way, opened; undefined without its key. */
  async open(room: RoomId, event: RoomEvent): Promise<RoomEvent | undefined> {
    await this.#sync(undefined, 0);
    return this.#decrypt(room, event);
  }

  async #decrypt(room: RoomId, event: RoomEvent): Promise<RoomEvent | undefined> {
    const decrypted = await this.#olm.tryDecrypt(room, event);
    return decrypted && { ...decrypted, encrypted: true };
  }

  async #sync(room: RoomId | undefined, waitMs: number): Promise<readonly RoomEvent[]> {
    const filter = JSON.stringify({
      room: { rooms: room === undefined ? [] : [room], timeline: { limit: 100 }, state: { types: [] } },
      presence: { types: [] },
      account_data: { types: [] },
    });
    const query = new URLSearchParams({ filter, timeout: String(waitMs), set_presence: "offline" });
    if (this.#since !== undefined) query.set("since", this.#since);
    const body = await this.#user.call("GET", `/sync?${query}`, undefined, waitMs + TIMEOUT_MS);
    const sent = body["to_device"] as { events?: { type: string; sender: string }[] } | undefined;
    this.toDevice.push(...(sent?.events ?? []).map(({ type, sender }) => ({ type, sender })));
    await this.#olm.receive(body);
    this.#since = String(body["next_batch"]);
    const rooms = body["rooms"] as
      | { join?: Record<string, { timeline?: { events?: RoomEvent[] } }> }
      | undefined;
    return room === undefined ? [] : (rooms?.join?.[room]?.timeline?.events ?? []);
  }
}
