// A person's encrypting client for tests: the official OlmMachine with a small sync loop, in memory.
// Invariants: keys are shared before an event is encrypted with them, but whether the to-device messages that
// carry them leave is the test's choice; what cannot be decrypted yet is tried again after each sync.
import {
  CollectStrategy,
  RoomId as CryptoRoomId,
  UserId as CryptoUserId,
  DecryptionSettings,
  DeviceId,
  DeviceLists,
  EncryptionSettings,
  initAsync,
  OlmMachine,
  RequestType,
  type ToDeviceRequest,
  TrustRequirement,
} from "@matrix-org/matrix-sdk-crypto-wasm";
import { systemClock } from "../../src/domain/clock.ts";
import type { EventId, RoomId, UserId } from "../../src/domain/identifiers.ts";
import type { RoomMessage, TestUser } from "./synapse.ts";

const PATIENCE_MS = 60_000;
const POLL_MS = 50;
const SYNC_FILTER = JSON.stringify({
  room: { timeline: { limit: 100 }, state: { types: [] } },
  presence: { types: [] },
});

interface Outgoing {
  readonly id: string;
  readonly type: RequestType;
  readonly body: string;
}

type Json = Readonly<Record<string, unknown>>;

export class EncryptingClient {
  readonly user: TestUser;
  readonly deviceId: string;
  readonly #machine: OlmMachine;
  #since: string | undefined;
  /** Keys that were made and not sent. */
  #withheld: ToDeviceRequest[] = [];
  #sent = 0;

  private constructor(user: TestUser, deviceId: string, machine: OlmMachine) {
    this.user = user;
    this.deviceId = deviceId;
    this.#machine = machine;
  }

  /** A client of the device that the user's access token belongs to, with keys published and cross-signed. */
  static async start(user: TestUser): Promise<EncryptingClient> {
    await initAsync();
    const deviceId = String((await user.call("GET", "/account/whoami"))["device_id"]);
    const machine = await OlmMachine.initialize(new CryptoUserId(user.userId), new DeviceId(deviceId));
    const client = new EncryptingClient(user, deviceId, machine);
    await client.sync();
    return client;
  }

  /** Publishes a cross-signing identity, and signs this device with it. */
  async crossSign(): Promise<void> {
    const requests = await this.#machine.bootstrapCrossSigning(true);
    const { uploadKeysRequest, uploadSigningKeysRequest, uploadSignaturesRequest } = requests;
    if (uploadKeysRequest !== undefined) await this.#perform(uploadKeysRequest as Outgoing);
    const identity = JSON.parse(uploadSigningKeysRequest.body) as Json;
    await this.user.call("POST", "/keys/device_signing/upload", identity);
    // This one belongs to none of the machine's own requests, so there is nothing to tell it.
    const signatures = JSON.parse(uploadSignaturesRequest.body) as Json;
    await this.user.call("POST", "/keys/signatures/upload", signatures);
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
    const lists = (answer["device_lists"] ?? {}) as { changed?: string[]; left?: string[] };
    const users = (names: readonly string[] = []) => names.map((name) => new CryptoUserId(name));
    await this.#machine.receiveSyncChanges(
      JSON.stringify((answer["to_device"] as { events?: unknown[] } | undefined)?.events ?? []),
      new DeviceLists(users(lists.changed), users(lists.left)),
      new Map(Object.entries((answer["device_one_time_keys_count"] ?? {}) as Record<string, number>)),
      new Set((answer["device_unused_fallback_key_types"] ?? []) as string[]),
    );
    this.#since = String(answer["next_batch"]);
    await this.#work();
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
  async encrypt(room: RoomId, type: string, content: Json): Promise<Json> {
    const relation = content["m.relates_to"];
    const sealed = await this.#machine.encryptRoomEvent(
      new CryptoRoomId(room),
      type,
      JSON.stringify(content),
    );
    return { ...JSON.parse(sealed), ...(relation !== undefined && { "m.relates_to": relation }) } as Json;
  }

  async sendRaw(room: RoomId, content: Json, type = "m.room.encrypted"): Promise<EventId> {
    const path = ["rooms", room, "send", type, `t${this.#sent++}-${systemClock.now()}`];
    const answer = await this.user.call("PUT", `/${path.map(encodeURIComponent).join("/")}`, content);
    return answer["event_id"] as EventId;
  }

  /** Shares the room's key; with `withhold` the messages that carry it stay here until `release`. */
  async share(
    room: RoomId,
    { withhold = false, rotate = false }: { readonly withhold?: boolean; readonly rotate?: boolean } = {},
  ): Promise<void> {
    await this.sync();
    const joined = await this.user.call("GET", `/rooms/${encodeURIComponent(room)}/joined_members`);
    const members = Object.keys(joined["joined"] as Json);
    const ids = () => members.map((name) => new CryptoUserId(name));
    await this.#machine.updateTrackedUsers(ids());
    await this.#work();
    const claim = await this.#machine.getMissingSessions(ids());
    if (claim) await this.#perform(claim as unknown as Outgoing);
    if (rotate) await this.#machine.invalidateGroupSession(new CryptoRoomId(room));
    const settings = new EncryptionSettings();
    settings.sharingStrategy = CollectStrategy.allDevices();
    const requests = await this.#machine.shareRoomKey(new CryptoRoomId(room), ids(), settings);
    for (const request of requests) {
      if (withhold) {
        this.#withheld.push(request);
        // For the machine they are sent: it would not let an event be encrypted otherwise.
        await this.#machine.markRequestAsSent(request.id, request.type, "{}");
      } else {
        await this.#perform(request as unknown as Outgoing);
      }
    }
  }

  /** Sends the keys that were withheld. */
  async release(): Promise<void> {
    const withheld = this.#withheld;
    this.#withheld = [];
    for (const request of withheld) await this.#toDevice(request);
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
    this.#machine.close();
  }

  /** The event as it was before it was encrypted; unchanged where its key is not here. */
  async open(room: RoomId, event: RoomMessage): Promise<RoomMessage> {
    try {
      const opened = await this.#machine.decryptRoomEvent(
        JSON.stringify({ ...event, room_id: room }),
        new CryptoRoomId(room),
        new DecryptionSettings(TrustRequirement.Untrusted),
      );
      const inside = JSON.parse(opened.event) as { type: string; content: Json };
      return { ...event, type: inside.type, content: inside.content };
    } catch {
      return event;
    }
  }

  async #work(): Promise<void> {
    for (const request of (await this.#machine.outgoingRequests()) as unknown as Outgoing[]) {
      await this.#perform(request);
    }
  }

  async #perform(request: Outgoing): Promise<void> {
    const answer = await this.#request(request);
    await this.#machine.markRequestAsSent(request.id, request.type, JSON.stringify(answer));
  }

  #request(request: Outgoing): Promise<Json> {
    const body = JSON.parse(request.body) as Json;
    switch (request.type) {
      case RequestType.KeysUpload:
        return this.user.call("POST", "/keys/upload", body);
      case RequestType.KeysQuery:
        return this.user.call("POST", "/keys/query", body);
      case RequestType.KeysClaim:
        return this.user.call("POST", "/keys/claim", body);
      case RequestType.SignatureUpload:
        return this.user.call("POST", "/keys/signatures/upload", body);
      case RequestType.ToDevice:
        return this.#toDevice(request as unknown as ToDeviceRequest);
      default:
        throw new Error(`a request of type ${request.type}`);
    }
  }

  #toDevice(request: ToDeviceRequest): Promise<Json> {
    const path = ["sendToDevice", request.event_type, request.txn_id].map(encodeURIComponent).join("/");
    return this.user.call("PUT", `/${path}`, JSON.parse(request.body));
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
