// A homeserver of keys and to-device messages, in memory, and people's machines on it: what a ghost's machine
// talks to in tests. Invariants: as on a homeserver, a one-time key is handed out once, and to-device messages
// of a device keep their order.
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
  type RequestType,
  type StoreHandle,
  TrustRequirement,
} from "@matrix-org/matrix-sdk-crypto-wasm";
import type { EncryptedRoomEvent } from "../../src/bridge/crypto/decrypt-event.ts";
import type { Machines } from "../../src/bridge/crypto/machines.ts";
import type { OutgoingRequest } from "../../src/bridge/matrix/device-api.ts";
import type { EventId, GhostMxid, RoomId, UserId } from "../../src/domain/identifiers.ts";

type Json = Record<string, unknown>;
type ByDevice = Record<string, Record<string, Json>>;

const KINDS: readonly OutgoingRequest["kind"][] = [
  "keys_upload",
  "keys_query",
  "keys_claim",
  "to_device",
  "signature_upload",
];

const ids = (users: readonly string[]) => users.map((user) => new CryptoUserId(user));

/** Adds signatures to those that are there. */
function merge(known: Json, signed: Json): void {
  const into = known["signatures"] as Record<string, Json>;
  for (const [signer, signatures] of Object.entries(signed["signatures"] as Record<string, Json>)) {
    into[signer] = { ...into[signer], ...signatures };
  }
}

function child<Value extends object>(of: Record<string, Value>, name: string, made: () => Value): Value {
  of[name] ??= made();
  return of[name];
}

/** What the homeserver knows of keys. */
export class KeyServer {
  readonly devices: ByDevice = {};
  readonly #identities: Record<string, Json> = {};
  readonly #oneTimeKeys: Record<string, Json> = {};
  readonly #inbox: Record<string, Json[]> = {};

  /** Answers a request as the homeserver would. */
  answer(user: string, device: string, request: Omit<OutgoingRequest, "id">): string {
    const body = JSON.parse(request.body) as Json;
    switch (request.kind) {
      case "keys_upload":
        return JSON.stringify(this.#upload(user, device, body));
      case "keys_query":
        return JSON.stringify(this.#query(Object.keys(body["device_keys"] as Json)));
      case "keys_claim":
        return JSON.stringify(this.#claim(body["one_time_keys"] as ByDevice));
      case "to_device":
        this.send(user, request.eventType ?? "", body["messages"] as ByDevice);
        return "{}";
      case "signing_keys_upload":
        this.#identities[user] = body;
        return "{}";
      case "signature_upload":
        for (const [owner, signed] of Object.entries(body as ByDevice)) {
          for (const [id, keys] of Object.entries(signed)) {
            const known = this.devices[owner]?.[id];
            if (known !== undefined) merge(known, keys);
          }
        }
        return JSON.stringify({ failures: {} });
    }
  }

  #upload(user: string, device: string, body: Json) {
    if (body["device_keys"] !== undefined) {
      child(this.devices, user, (): Record<string, Json> => ({}))[device] = body["device_keys"] as Json;
    }
    const keys = child(this.#oneTimeKeys, `${user} ${device}`, (): Json => ({}));
    Object.assign(keys, body["one_time_keys"]);
    return { one_time_key_counts: { signed_curve25519: Object.keys(keys).length } };
  }

  #query(users: readonly string[]) {
    const of = (key: string) =>
      Object.fromEntries(
        users.flatMap((user) => (this.#identities[user]?.[key] ? [[user, this.#identities[user][key]]] : [])),
      );
    return {
      device_keys: Object.fromEntries(users.map((user) => [user, this.devices[user] ?? {}])),
      failures: {},
      master_keys: of("master_key"),
      self_signing_keys: of("self_signing_key"),
      user_signing_keys: of("user_signing_key"),
    };
  }

  #claim(wanted: ByDevice) {
    const one_time_keys: Record<string, Json> = {};
    for (const [user, devices] of Object.entries(wanted)) {
      for (const device of Object.keys(devices)) {
        const keys = this.#oneTimeKeys[`${user} ${device}`] ?? {};
        const [name] = Object.keys(keys);
        if (name === undefined) continue;
        child(one_time_keys, user, (): Json => ({}))[device] = { [name]: keys[name] };
        delete keys[name];
      }
    }
    return { one_time_keys, failures: {} };
  }

  send(sender: string, type: string, messages: ByDevice): void {
    for (const [user, devices] of Object.entries(messages)) {
      for (const [device, content] of Object.entries(devices)) {
        child(this.#inbox, `${user} ${device}`, () => []).push({ sender, type, content });
      }
    }
  }

  /** The to-device messages that wait for a device; they are gone then. */
  take(user: string, device: string): Json[] {
    const waiting = this.#inbox[`${user} ${device}`] ?? [];
    this.#inbox[`${user} ${device}`] = [];
    return waiting;
  }
}

let events = 0;

/** A person's device. */
export class Person {
  readonly user: UserId;
  readonly device: string;
  readonly machine: OlmMachine;
  readonly #server: KeyServer;

  private constructor(server: KeyServer, user: UserId, device: string, machine: OlmMachine) {
    this.#server = server;
    this.user = user;
    this.device = device;
    this.machine = machine;
  }

  /** Its store is in memory, unless a handle of another is given. */
  static async join(
    server: KeyServer,
    user: string,
    device = "PHONE",
    openStore?: () => Promise<StoreHandle>,
  ): Promise<Person> {
    await initAsync();
    const names = [new CryptoUserId(user), new DeviceId(device)] as const;
    const machine =
      openStore === undefined
        ? await OlmMachine.initialize(...names)
        : await OlmMachine.initFromStore(...names, await openStore());
    const person = new Person(server, user as UserId, device, machine);
    await person.work();
    return person;
  }

  readonly id = (user: string): CryptoUserId => new CryptoUserId(user);
  readonly room = (room: string): CryptoRoomId => new CryptoRoomId(room);

  /** Makes the requests that the machine wants made. */
  async work(): Promise<void> {
    for (const request of (await this.machine.outgoingRequests()) as Request[]) await this.#perform(request);
  }

  async #perform(request: Request): Promise<void> {
    const answer = this.#server.answer(this.user, this.device, asOutgoing(request));
    await this.machine.markRequestAsSent(request.id, request.type, answer);
  }

  async crossSign(): Promise<string> {
    const made = await this.machine.bootstrapCrossSigning(true);
    const signing = { kind: "signing_keys_upload", body: made.uploadSigningKeysRequest.body } as const;
    this.#server.answer(this.user, this.device, signing);
    const signatures = { kind: "signature_upload", body: made.uploadSignaturesRequest.body } as const;
    this.#server.answer(this.user, this.device, signatures);
    const { master_key } = JSON.parse(signing.body) as { master_key: { keys: Record<string, string> } };
    return Object.values(master_key.keys)[0] ?? "";
  }

  async track(...users: string[]): Promise<void> {
    await this.machine.updateTrackedUsers(ids(users));
    await this.work();
  }

  /** Takes in what waits for this device. */
  async sync(): Promise<void> {
    await this.receive(this.#server.take(this.user, this.device));
    await this.work();
  }

  async receive(messages: readonly Json[]): Promise<void> {
    await this.machine.receiveSyncChangesMsc4186(JSON.stringify(messages), new DeviceLists(), new Map());
  }

  /** Shares the room's key with these users' devices. */
  async share(room: string, ...users: string[]): Promise<void> {
    await this.track(...users);
    const claim = await this.machine.getMissingSessions(ids(users));
    if (claim) await this.#perform(claim as unknown as Request);
    const settings = new EncryptionSettings();
    settings.sharingStrategy = CollectStrategy.allDevices();
    const shared = await this.machine.shareRoomKey(new CryptoRoomId(room), ids(users), settings);
    for (const request of shared) await this.#perform(request as unknown as Request);
  }

  /** An encrypted event as a homeserver would give it. */
  async say(room: string, body: string, more: Json = {}): Promise<EncryptedRoomEvent> {
    const content = JSON.stringify({ msgtype: "m.text", body, ...more });
    const sealed = await this.machine.encryptRoomEvent(new CryptoRoomId(room), "m.room.message", content);
    return asEvent(room, this.user, { ...(JSON.parse(sealed) as Json), ...more });
  }

  /** What an event holds; rejects when this device cannot open it. */
  async read(room: string, sender: string, content: unknown): Promise<Json> {
    const { raw } = asEvent(room, sender, content as Json);
    const opened = await this.machine.decryptRoomEvent(
      JSON.stringify(raw),
      new CryptoRoomId(room),
      new DecryptionSettings(TrustRequirement.Untrusted),
    );
    return JSON.parse(opened.event) as Json;
  }
}

interface Request {
  readonly id: string;
  readonly type: RequestType;
  readonly body: string;
  readonly event_type?: string;
}

function asOutgoing(request: Request): Omit<OutgoingRequest, "id"> {
  const kind = KINDS[request.type];
  if (kind === undefined) throw new Error(`a request of type ${request.type}`);
  return { kind, body: request.body, ...(request.event_type && { eventType: request.event_type }) };
}

/** An event of a room, whoever is said to have sent it. */
export function asEvent(room: string, sender: string, content: Json): EncryptedRoomEvent {
  const event = `$event${events++}`;
  return {
    event: event as EventId,
    room: room as RoomId,
    sender: sender as UserId,
    raw: { type: "m.room.encrypted", event_id: event, room_id: room, sender, origin_server_ts: 1, content },
  };
}

/** A ghost's device on the same server, over the machines under test. */
export class GhostSide {
  readonly ghost: GhostMxid;
  readonly device: string;
  readonly machines: Machines;
  readonly #server: KeyServer;

  constructor(server: KeyServer, machines: Machines, ghost: string, device = "GHOST") {
    this.#server = server;
    this.machines = machines;
    this.ghost = ghost as GhostMxid;
    this.device = device;
  }

  async perform(requests: readonly OutgoingRequest[]): Promise<void> {
    for (const request of requests) {
      const answer = this.#server.answer(this.ghost, this.device, request);
      await this.machines.sent(this.ghost, request, answer);
    }
  }

  /** Makes the machine's requests until it has none. */
  async work(): Promise<void> {
    for (let round = 0; round < 8; round++) {
      const requests = await this.machines.outgoing(this.ghost);
      if (requests.length === 0) return;
      await this.perform(requests);
    }
    throw new Error("the machine never runs out of requests");
  }

  /** Creates its machine and publishes its keys. */
  async create(): Promise<void> {
    const opened = await this.machines.open(this.ghost, this.device, "create");
    if (opened.kind !== "opened") throw new Error(opened.kind);
    await this.work();
  }

  async track(...users: string[]): Promise<void> {
    await this.machines.track(this.ghost, users as UserId[]);
    await this.work();
  }

  /** Takes in what waits for it. */
  receive(messages: readonly Json[] = this.#server.take(this.ghost, this.device)) {
    return this.machines.receive(this.ghost, {
      toDevice: messages,
      changedUsers: [],
      leftUsers: [],
      oneTimeKeyCounts: undefined,
      unusedFallbackKeys: undefined,
    });
  }

  /** Shares the room's session with these users, and seals a message. */
  async say(room: string, body: string, ...users: string[]) {
    const settings = { rotationMessages: 100, rotationMs: 604_800_000, historyVisibility: "shared" };
    await this.track(...users);
    const claim = await this.machines.missingSessions(this.ghost, users as UserId[]);
    if (claim) await this.perform([claim]);
    const requests = await this.machines.shareRoomKey(
      this.ghost,
      room as RoomId,
      users as UserId[],
      settings,
    );
    await this.perform(requests);
    return await this.machines.encrypt(this.ghost, room as RoomId, "m.room.message", {
      msgtype: "m.text",
      body,
    });
  }
}
