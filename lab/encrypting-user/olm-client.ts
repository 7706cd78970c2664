// A person's cryptographic client: the official OlmMachine, and the requests to the homeserver that it wants made.
// Invariants: all cryptography is the library's; a request that the machine wants is made, and its answer given to the
// machine, before anything that depends on it.
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
  type StoreHandle,
  TrustRequirement,
} from "@matrix-org/matrix-sdk-crypto-wasm";
import { TRANSACTION_KEY } from "../../src/bridge/ledger/transaction-ids.ts";
import { DrawbridgeError } from "../../src/domain/errors.ts";

export type Json = Readonly<Record<string, unknown>>;

/** A request to the client-server API as this person's device. */
export type Call = (method: string, path: string, body?: unknown) => Promise<Json>;

/** What the library decrypts: an event as the homeserver gave it. */
export interface Encrypted {
  readonly content: Json;
}

interface Outgoing {
  readonly id: string;
  readonly type: RequestType;
  readonly body: string;
  /** Of to-device messages. */
  readonly event_type?: string;
  readonly txn_id?: string;
}

/** The library consumes each ID that it is given, so each call makes new ones. */
const ids = (users: readonly string[] = []) => users.map((user) => new CryptoUserId(user));

export class OlmClient {
  readonly machine: OlmMachine;
  readonly #call: Call;
  /** Room keys that were made and not sent. */
  #withheld: Outgoing[] = [];

  private constructor(machine: OlmMachine, call: Call) {
    this.machine = machine;
    this.#call = call;
  }

  /** Its store is in memory, unless another is given. The device's keys are published with the first request. */
  static async open(
    user: string,
    device: string,
    call: Call,
    openStore?: () => Promise<StoreHandle>,
  ): Promise<OlmClient> {
    await initAsync();
    const names = [new CryptoUserId(user), new DeviceId(device)] as const;
    const machine =
      openStore === undefined
        ? await OlmMachine.initialize(...names)
        : await OlmMachine.initFromStore(...names, await openStore());
    return new OlmClient(machine, call);
  }

  /** Takes in what a `/sync` brought for this device, and makes the requests that follow from it. */
  async receive(sync: Json): Promise<void> {
    const lists = (sync["device_lists"] ?? {}) as { changed?: string[]; left?: string[] };
    const toDevice = (sync["to_device"] ?? {}) as { events?: unknown[] };
    const unused = sync["device_unused_fallback_key_types"] as string[] | undefined;
    await this.machine.receiveSyncChanges(
      JSON.stringify(toDevice.events ?? []),
      new DeviceLists(ids(lists.changed), ids(lists.left)),
      new Map(Object.entries((sync["device_one_time_keys_count"] ?? {}) as Record<string, number>)),
      new Set(unused ?? []),
    );
    await this.makeRequests();
  }

  /** Publishes a cross-signing identity, signs this device with it, and returns the public master key. */
  async crossSign(): Promise<string> {
    const made = await this.machine.bootstrapCrossSigning(true);
    if (made.uploadKeysRequest !== undefined) await this.#perform(made.uploadKeysRequest as Outgoing);
    const identity = JSON.parse(made.uploadSigningKeysRequest.body) as {
      master_key: { keys: Record<string, string> };
    };
    // The machine expects no answer to these two.
    await this.#call("POST", "/keys/device_signing/upload", identity);
    await this.#call("POST", "/keys/signatures/upload", JSON.parse(made.uploadSignaturesRequest.body));
    return Object.values(identity.master_key.keys)[0] ?? "";
  }

  /** Tracks these users' devices, and queries them. */
  async track(users: readonly string[]): Promise<void> {
    await this.machine.updateTrackedUsers(ids(users));
    await this.makeRequests();
  }

  /** The IDs of a user's devices that this machine knows. */
  async devicesOf(user: string): Promise<readonly string[]> {
    await this.track([user]);
    const devices = await this.machine.getUserDevices(new CryptoUserId(user));
    return devices.devices().map((device) => device.deviceId.toString());
  }

  /**
   * Shares the room's key with all devices of these users; with `withhold` the messages that carry it stay here until
   * `release`. With `rotate` it is a new key.
   */
  async shareKey(
    room: string,
    members: readonly string[],
    { withhold = false, rotate = false }: { readonly withhold?: boolean; readonly rotate?: boolean } = {},
  ): Promise<void> {
    await this.track(members);
    const claim = await this.machine.getMissingSessions(ids(members));
    // Null when nothing is missing, whatever the library's types say.
    if (claim) await this.#perform(claim as unknown as Outgoing);
    if (rotate) await this.machine.invalidateGroupSession(new CryptoRoomId(room));
    const settings = new EncryptionSettings();
    settings.sharingStrategy = CollectStrategy.allDevices();
    const requests = await this.machine.shareRoomKey(new CryptoRoomId(room), ids(members), settings);
    for (const request of requests as unknown as Outgoing[]) {
      if (!withhold) await this.#perform(request);
      else {
        this.#withheld.push(request);
        // The machine encrypts nothing until it takes the key for sent.
        await this.machine.markRequestAsSent(request.id, request.type, "{}");
      }
    }
  }

  /** Sends the keys that were withheld. */
  async release(): Promise<void> {
    const withheld = this.#withheld;
    this.#withheld = [];
    for (const request of withheld) await this.#request(request);
  }

  /** The content of an encrypted event, its relation in plain text; the key must have been shared before. */
  async encrypt(room: string, type: string, content: Json): Promise<Json> {
    const relation = content["m.relates_to"];
    const text = await this.machine.encryptRoomEvent(new CryptoRoomId(room), type, JSON.stringify(content));
    return { ...(JSON.parse(text) as Json), ...(relation !== undefined && { "m.relates_to": relation }) };
  }

  /** The event's type and content before it was encrypted. @throws the library's error */
  async decrypt(room: string, event: Encrypted): Promise<{ readonly type: string; readonly content: Json }> {
    const decrypted = await this.machine.decryptRoomEvent(
      JSON.stringify({ ...event, room_id: room }),
      new CryptoRoomId(room),
      new DecryptionSettings(TrustRequirement.Untrusted),
    );
    const { type, content } = JSON.parse(decrypted.event) as { type: string; content: Json };
    const relation = content["m.relates_to"] ?? event.content["m.relates_to"];
    // A bridge writes it outside the ciphertext.
    const transaction = event.content[TRANSACTION_KEY];
    return {
      type,
      content: {
        ...content,
        ...(relation !== undefined && { "m.relates_to": relation }),
        ...(transaction !== undefined && { [TRANSACTION_KEY]: transaction }),
      },
    };
  }

  /** The event decrypted; undefined while its key is not here. */
  async tryDecrypt<Event extends Encrypted>(room: string, event: Event): Promise<Event | undefined> {
    try {
      return { ...event, ...(await this.decrypt(room, event)) };
    } catch {
      return undefined;
    }
  }

  /** Makes the requests that the machine wants made. */
  async makeRequests(): Promise<void> {
    for (const request of (await this.machine.outgoingRequests()) as unknown as Outgoing[]) {
      await this.#perform(request);
    }
  }

  close(): void {
    this.machine.close();
  }

  async #perform(request: Outgoing): Promise<void> {
    const answer = await this.#request(request);
    await this.machine.markRequestAsSent(request.id, request.type, JSON.stringify(answer));
  }

  #request(request: Outgoing): Promise<Json> {
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
