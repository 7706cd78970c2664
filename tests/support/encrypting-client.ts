// A person's encrypting client for tests: an OlmClient with a small sync loop, in memory.
// Invariants: keys are shared before an event is encrypted with them, but the test decides whether the to-device messages
// that carry them are sent; what cannot be decrypted yet is tried again after each sync.
import { type Json, OlmClient } from "../../lab/encrypting-user/olm-client.ts";
import { systemClock } from "../../src/domain/clock.ts";
import type { EventId, RoomId, UserId } from "../../src/domain/identifiers.ts";
import type { RoomMessage, TestUser } from "./synapse.ts";

const PATIENCE_MS = 60_000;
const POLL_MS = 50;
const SYNC_FILTER = JSON.stringify({
  room: { timeline: { limit: 100 }, state: { types: [] } },
  presence: { types: [] },
});

export class EncryptingClient {
  readonly user: TestUser;
  readonly deviceId: string;
  readonly #olm: OlmClient;
  #since: string | undefined;
  #sent = 0;

  private constructor(user: TestUser, deviceId: string, olm: OlmClient) {
    this.user = user;
    this.deviceId = deviceId;
    this.#olm = olm;
  }

  /** A client of the device that the user's access token belongs to, with its keys published. */
  static async start(user: TestUser): Promise<EncryptingClient> {
    const deviceId = String((await user.call("GET", "/account/whoami"))["device_id"]);
    const olm = await OlmClient.open(user.userId, deviceId, (...request) => user.call(...request));
    const client = new EncryptingClient(user, deviceId, olm);
    await client.sync();
    return client;
  }

  /** Publishes a cross-signing identity, and signs this device with it. */
  async crossSign(): Promise<void> {
    await this.#olm.crossSign();
    await this.sync();
  }

  /** The user's public master key, as the bridge's configuration names it. */
  async masterKey(): Promise<string> {
    const answer = await this.user.call("POST", "/keys/query", { device_keys: { [this.user.userId]: [] } });
    const keys = answer["master_keys"] as Record<string, { keys: Record<string, string> }>;
    return Object.values(keys[this.user.userId]?.keys ?? {})[0] ?? "";
  }

  /** One sync, and everything the machine wants sent because of it. */
  async sync(): Promise<void> {
    const query = new URLSearchParams({ timeout: "0", filter: SYNC_FILTER, set_presence: "offline" });
    if (this.#since !== undefined) query.set("since", this.#since);
    const answer = await this.user.call("GET", `/sync?${query}`);
    await this.#olm.receive(answer);
    this.#since = String(answer["next_batch"]);
  }

  /** Shares the room's key with everybody joined, unless `withhold`, and sends the encrypted event. */
  async send(
    room: RoomId,
    content: Json,
    options: { readonly withhold?: boolean; readonly rotate?: boolean; readonly type?: string } = {},
  ): Promise<EventId> {
    await this.share(room, options);
    return await this.sendRaw(room, await this.encrypt(room, options.type ?? "m.room.message", content));
  }

  /** The content of an encrypted event; the key must have been shared before. */
  encrypt(room: RoomId, type: string, content: Json): Promise<Json> {
    return this.#olm.encrypt(room, type, content);
  }

  async sendRaw(room: RoomId, content: Json, type = "m.room.encrypted"): Promise<EventId> {
    const path = ["rooms", room, "send", type, `t${this.#sent++}-${systemClock.now()}`];
    const answer = await this.user.call("PUT", `/${path.map(encodeURIComponent).join("/")}`, content);
    return answer["event_id"] as EventId;
  }

  /** Shares the room's key; with `withhold` the messages that carry it stay here until `release`. */
  async share(
    room: RoomId,
    options: { readonly withhold?: boolean; readonly rotate?: boolean } = {},
  ): Promise<void> {
    await this.sync();
    const joined = await this.user.call("GET", `/rooms/${encodeURIComponent(room)}/joined_members`);
    await this.#olm.shareKey(room, Object.keys(joined["joined"] as Json), options);
  }

  /** Sends the keys that were withheld. */
  release(): Promise<void> {
    return this.#olm.release();
  }

  /** What everybody in the room says, decrypted where this client can; oldest first. */
  async messages(room: RoomId): Promise<readonly RoomMessage[]> {
    await this.sync();
    const events = await timeline(this.user, room);
    const read: RoomMessage[] = [];
    for (const event of events) {
      if (event.type === "m.room.message") read.push(event);
      if (event.type === "m.room.encrypted") read.push(await this.open(room, event));
    }
    return read;
  }

  /** The room's events as everybody sees them; oldest first. */
  rawEvents(room: RoomId): Promise<readonly RoomMessage[]> {
    return timeline(this.user, room);
  }

  /** Waits for a message that `found` accepts. */
  async until(
    what: string,
    room: RoomId,
    found: (message: RoomMessage) => boolean,
    patienceMs = PATIENCE_MS,
  ): Promise<RoomMessage> {
    const deadline = systemClock.now() + patienceMs;
    for (;;) {
      const message = (await this.messages(room)).find(found);
      if (message !== undefined) return message;
      if (systemClock.now() > deadline) throw new Error(`waited in vain: ${what}`);
      await systemClock.sleep(POLL_MS);
    }
  }

  /** The reply to a message, by whomever. */
  reply(room: RoomId, to: EventId, patienceMs?: number): Promise<RoomMessage> {
    return this.until(`a reply to ${to}`, room, (message) => repliesTo(message) === to, patienceMs);
  }

  close(): void {
    this.#olm.close();
  }

  /** The event decrypted; unchanged where its key is not here. */
  async open(room: RoomId, event: RoomMessage): Promise<RoomMessage> {
    return (await this.#olm.tryDecrypt(room, event)) ?? event;
  }
}

/** An encrypted room with these people and ghosts invited. */
export async function encryptedRoom(
  creator: TestUser,
  invite: readonly (UserId | string)[],
  encryption: Json = {},
): Promise<RoomId> {
  return await creator.createRoom({
    invite,
    initial_state: [
      {
        type: "m.room.encryption",
        state_key: "",
        content: { algorithm: "m.megolm.v1.aes-sha2", ...encryption },
      },
    ],
  });
}

export function repliesTo({ content }: RoomMessage): string | undefined {
  const relation = content["m.relates_to"] as { "m.in_reply_to"?: { event_id?: string } } | undefined;
  return relation?.["m.in_reply_to"]?.event_id;
}

async function timeline(user: TestUser, room: RoomId): Promise<readonly RoomMessage[]> {
  const found: RoomMessage[] = [];
  let from: unknown;
  do {
    const page = await user.call(
      "GET",
      `/rooms/${encodeURIComponent(room)}/messages?dir=b&limit=500${typeof from === "string" ? `&from=${from}` : ""}`,
    );
    found.push(...(page["chunk"] as RoomMessage[]));
    from = page["end"];
  } while (from !== undefined);
  return found.reverse();
}
