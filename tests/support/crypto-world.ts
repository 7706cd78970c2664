// A homeserver of keys and to-device messages, in memory, and people's clients on it: what a ghost's machine talks to in
// tests. Invariants: as on a homeserver, a one-time key is handed out once, and to-device messages of a device keep their
// order.

import type { TestContext } from "node:test";
import {
  RoomId as CryptoRoomId,
  UserId as CryptoUserId,
  DeviceLists,
  type StoreHandle,
} from "@matrix-org/matrix-sdk-crypto-wasm";
import { pino } from "pino";
import { type Call, OlmClient } from "../../lab/encrypting-user/olm-client.ts";
import type { EncryptedRoomEvent } from "../../src/bridge/crypto/decrypt-event.ts";
import { type LossReason, Machines, type MachinesDependencies } from "../../src/bridge/crypto/machines.ts";
import { ContentKeys } from "../../src/bridge/ledger/content-keys.ts";
import type { OutgoingRequest } from "../../src/bridge/matrix/device-api.ts";
import { systemClock, systemRandom } from "../../src/domain/clock.ts";
import type { EventId, GhostMxid, RoomId, UserId } from "../../src/domain/identifiers.ts";
import { type TestDatabase, testDatabase } from "./database.ts";

type Json = Record<string, unknown>;
type ByDevice = Record<string, Record<string, Json>>;

const KINDS: Readonly<Record<string, OutgoingRequest["kind"]>> = {
  "/keys/upload": "keys_upload",
  "/keys/query": "keys_query",
  "/keys/claim": "keys_claim",
  "/keys/signatures/upload": "signature_upload",
  "/keys/device_signing/upload": "signing_keys_upload",
};

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

  /** The client-server API as this user's device calls it. */
  callOf(user: string, device: string): Call {
    return async (_method, path, body) => {
      const kind = KINDS[path];
      const [, eventType] = /^\/sendToDevice\/([^/]+)\//.exec(path) ?? [];
      const request =
        kind === undefined
          ? ({ kind: "to_device", eventType: decodeURIComponent(eventType ?? "") } as const)
          : { kind };
      return JSON.parse(this.answer(user, device, { ...request, body: JSON.stringify(body) })) as Json;
    };
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
  readonly #olm: OlmClient;
  readonly #server: KeyServer;

  private constructor(server: KeyServer, user: UserId, device: string, olm: OlmClient) {
    this.#server = server;
    this.user = user;
    this.device = device;
    this.#olm = olm;
  }

  /** Its store is in memory, unless a handle of another is given. */
  static async join(
    server: KeyServer,
    user: string,
    device = "PHONE",
    openStore?: () => Promise<StoreHandle>,
  ): Promise<Person> {
    const olm = await OlmClient.open(user, device, server.callOf(user, device), openStore);
    await olm.makeRequests();
    return new Person(server, user as UserId, device, olm);
  }

  get machine(): OlmClient["machine"] {
    return this.#olm.machine;
  }

  readonly id = (user: string): CryptoUserId => new CryptoUserId(user);
  readonly room = (room: string): CryptoRoomId => new CryptoRoomId(room);

  crossSign(): Promise<string> {
    return this.#olm.crossSign();
  }

  track(...users: string[]): Promise<void> {
    return this.#olm.track(users);
  }

  /** Takes in what waits for this device. */
  async sync(): Promise<void> {
    await this.receive(this.#server.take(this.user, this.device));
    await this.#olm.makeRequests();
  }

  async receive(messages: readonly Json[]): Promise<void> {
    await this.machine.receiveSyncChangesMsc4186(JSON.stringify(messages), new DeviceLists(), new Map());
  }

  /** Shares the room's key with these users' devices. */
  share(room: string, ...users: string[]): Promise<void> {
    return this.#olm.shareKey(room, users);
  }

  /** An encrypted event as a homeserver would give it. */
  async say(room: string, body: string, more: Json = {}): Promise<EncryptedRoomEvent> {
    const content = await this.#olm.encrypt(room, "m.room.message", { msgtype: "m.text", body, ...more });
    return asEvent(room, this.user, { ...content, ...more });
  }

  /** What an event holds; rejects when this device cannot decrypt it. */
  async read(room: string, sender: string, content: unknown): Promise<Json> {
    const { raw } = asEvent(room, sender, content as Json);
    return await this.#olm.decrypt(room, raw as { content: Json });
  }
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
  say(room: string, body: string, ...users: string[]) {
    return this.#seal(room, body, users, false);
  }

  /** As `say`, for all devices of these users, whatever the policy on senders' devices is. */
  notify(room: string, body: string, ...users: string[]) {
    return this.#seal(room, body, users, true);
  }

  async #seal(room: string, body: string, users: readonly string[], forAllDevices: boolean) {
    const settings = { rotationMessages: 100, rotationMs: 604_800_000, forAllDevices };
    await this.track(...users);
    await this.perform(await this.machines.missingSessions(this.ghost, users as UserId[]));
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

// Machines for a test: on a database of its own, closed before it is dropped.

export const storeKey = (byte: number): string => Buffer.alloc(32, byte).toString("base64");

export interface TestMachines {
  readonly machines: Machines;
  readonly lost: { readonly ghost: GhostMxid; readonly why: LossReason }[];
}

export interface MachinesScene {
  readonly database: TestDatabase;
  /** Machines as a process has them; several on one database are several processes. */
  start(options?: Partial<MachinesDependencies> & { readonly keys?: string }): TestMachines;
}

export async function machinesScene(t: Pick<TestContext, "after">): Promise<MachinesScene> {
  const started: Machines[] = [];
  t.after(() => Promise.all(started.map((machines) => machines.close())));
  const database = await testDatabase(t);
  return {
    database,
    start: (options = {}) => {
      const lost: { ghost: GhostMxid; why: LossReason }[] = [];
      const machines = new Machines({
        threads: 1,
        databaseUrl: database.url,
        storeKeys: ContentKeys.parse(options.keys ?? storeKey(1)),
        policy: { senderDevices: "allow_all", verifiedIdentities: [] },
        clock: systemClock,
        random: systemRandom,
        log: pino({ level: "silent" }),
        onLost: (ghost, why) => lost.push({ ghost, why }),
        ...options,
      });
      started.push(machines);
      return { machines, lost };
    },
  };
}
