// A person's cryptographic machine: the official OlmMachine, in memory, and the requests it wants made.
// Invariants: all cryptography is the library's; a request that the machine asked for is made, and its answer
// handed back, before anything that depends on it.
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
  TrustRequirement,
} from "@matrix-org/matrix-sdk-crypto-wasm";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import type { RoomId, UserId } from "../../src/domain/identifiers.ts";
import type { RoomEvent } from "../matrix-user.ts";

export type Json = Readonly<Record<string, unknown>>;

/** A request to the client-server API as this person's device. */
export type Call = (method: string, path: string, body?: unknown) => Promise<Json>;

interface Outgoing {
  readonly id: string;
  readonly type: RequestType;
  readonly body: string;
  /** Of to-device messages. */
  readonly event_type?: string;
  readonly txn_id?: string;
}

/** The library takes each ID that it is given for its own, so each call has new ones. */
const ids = (users: readonly string[] = []) => users.map((user) => new CryptoUserId(user));

export class UserMachine {
  readonly #machine: OlmMachine;
  readonly #call: Call;

  private constructor(machine: OlmMachine, call: Call) {
    this.#machine = machine;
    this.#call = call;
  }

  static async open(user: UserId, device: string, call: Call): Promise<UserMachine> {
    await initAsync();
    const machine = await OlmMachine.initialize(new CryptoUserId(user), new DeviceId(device));
    return new UserMachine(machine, call);
  }

  /** What a `/sync` brought for this device. */
  async receive(sync: Json): Promise<void> {
    const lists = (sync["device_lists"] ?? {}) as { changed?: string[]; left?: string[] };
    const toDevice = (sync["to_device"] ?? {}) as { events?: unknown[] };
    await this.#machine.receiveSyncChanges(
      JSON.stringify(toDevice.events ?? []),
      new DeviceLists(ids(lists.changed), ids(lists.left)),
      new Map(Object.entries((sync["device_one_time_keys_count"] ?? {}) as Record<string, number>)),
      new Set((sync["device_unused_fallback_key_types"] ?? []) as string[]),
    );
    await this.#work();
  }

  /** Devices of a user that this machine knows, by their IDs. */
  async devicesOf(user: UserId): Promise<readonly string[]> {
    await this.#machine.updateTrackedUsers(ids([user]));
    await this.#work();
    const devices = await this.#machine.getUserDevices(new CryptoUserId(user));
    return devices.devices().map((device) => device.deviceId.toString());
  }

  /** The encrypted content of a message to everybody in the room, all of whose devices have its key then. */
  async encrypt(room: RoomId, members: readonly string[], content: Json): Promise<Json> {
    await this.#machine.updateTrackedUsers(ids(members));
    await this.#work();
    const claim = await this.#machine.getMissingSessions(ids(members));
    // Null where nothing is missing, whatever the library's types say.
    if (claim) await this.#perform(claim as unknown as Outgoing);
    const settings = new EncryptionSettings();
    settings.sharingStrategy = CollectStrategy.allDevices();
    for (const share of await this.#machine.shareRoomKey(new CryptoRoomId(room), ids(members), settings)) {
      await this.#perform(share as unknown as Outgoing);
    }
    const sealed = await this.#machine.encryptRoomEvent(
      new CryptoRoomId(room),
      "m.room.message",
      JSON.stringify(content),
    );
    return JSON.parse(sealed) as Json;
  }

  /** The event as it was before it was encrypted; undefined while its key is not here. */
  async decrypt(room: RoomId, event: RoomEvent): Promise<RoomEvent | undefined> {
    try {
      const opened = await this.#machine.decryptRoomEvent(
        JSON.stringify({ ...event, room_id: room }),
        new CryptoRoomId(room),
        new DecryptionSettings(TrustRequirement.Untrusted),
      );
      const { type, content } = JSON.parse(opened.event) as Pick<RoomEvent, "type" | "content">;
      const relation = content["m.relates_to"] ?? event.content["m.relates_to"];
      const whole = { ...content, ...(relation !== undefined && { "m.relates_to": relation }) };
      return { ...event, type, content: whole, encrypted: true };
    } catch {
      return undefined;
    }
  }

  close(): void {
    this.#machine.close();
  }

  async #work(): Promise<void> {
    for (const request of (await this.#machine.outgoingRequests()) as unknown as Outgoing[]) {
      await this.#perform(request);
    }
  }

  async #perform(request: Outgoing): Promise<void> {
    const answer = await this.#made(request);
    await this.#machine.markRequestAsSent(request.id, request.type, JSON.stringify(answer));
  }

  #made(request: Outgoing): Promise<Json> {
    const body = JSON.parse(request.body) as Json;
    switch (request.type) {
      case RequestType.KeysUpload:
        return this.#call("POST", "/keys/upload", body);
      case RequestType.KeysQuery:
        return this.#call("POST", "/keys/query", body);
      case RequestType.KeysClaim:
        return this.#call("POST", "/keys/claim", body);
      case RequestType.SignatureUpload:
        return this.#call("POST", "/keys/signatures/upload", body);
      case RequestType.ToDevice: {
        const path = [String(request.event_type), String(request.txn_id)].map(encodeURIComponent).join("/");
        return this.#call("PUT", `/sendToDevice/${path}`, body);
      }
      default:
        throw new DrawbridgeError("program_failed", `a request of type ${request.type} was not expected`);
    }
  }
}
