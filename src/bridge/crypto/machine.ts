// One ghost's OlmMachine over its durable store. Invariants: an event for all devices shares no session with an answer; calls
// run one after the other, and what one changed is committed before it resolves; a machine that could not commit is ahead of
// its store, and answers no more.
import { isDeepStrictEqual } from "node:util";
import {
  DeviceId,
  OlmMachine,
  RoomId as SdkRoomId,
  UserId as SdkUserId,
  StoreHandle,
} from "@matrix-org/matrix-sdk-crypto-wasm";
import { DrawbridgeError } from "../../domain/errors.ts";
import type { RoomId, UserId } from "../../domain/identifiers.ts";
import type { UnknownObject } from "../../domain/json.ts";
import { Serial } from "../../runtime/concurrency.ts";
import type { CryptoStoreRow, DeviceIdentity } from "../ledger/crypto-stores.ts";
import type { OutgoingRequest } from "../matrix/device-api.ts";
import type { DeviceChanges } from "../matrix/device-changes.ts";
import {
  type Decryption,
  type DeviceTrustPolicy,
  decryptEvent,
  type EncryptedRoomEvent,
  SenderDevices,
  WithheldCodes,
} from "./decrypt-event.ts";
import { sameFirstPart } from "./idb-keys.ts";
import { type DatabaseLayout, mounted, StoredDatabases } from "./indexeddb.ts";
import {
  isPanic,
  markSent,
  querySession,
  receiveChanges,
  sdkUsers,
  signingKeysUpload,
  toRequests,
} from "./olm-machine-adapter.ts";
import { type RoomEncryption, reachesAllDevices, type Shared, shareRoomKey } from "./room-key-recipients.ts";
import { StoreRecords, type StoreRecordsDependencies } from "./store-records.ts";
import type { StoreHolder } from "./store-writer.ts";

export interface ClaimedStore extends StoreHolder, Omit<CryptoStoreRow, "sealedKey"> {
  readonly key: Uint8Array;
}

const isOfVerification = ({ eventType = "" }: OutgoingRequest) => eventType.startsWith("m.key.verification.");

function identityOf(machine: OlmMachine): DeviceIdentity {
  const { curve25519, ed25519 } = machine.identityKeys;
  return { curve25519: curve25519.toBase64(), ed25519: ed25519.toBase64() };
}

/** The store is another device's, or its key does not open it. */
export class ForeignStore extends Error {}

export class GhostMachine {
  readonly identity: DeviceIdentity;
  readonly #machine: OlmMachine;
  readonly #databases: StoredDatabases;
  readonly #policy: DeviceTrustPolicy;
  readonly #followed: Set<string>;
  readonly #senders: SenderDevices;
  readonly #withheld = new WithheldCodes();
  readonly #shared = new Map<RoomId, Shared>();
  /** Rooms whose session was begun since the machine was opened, and whether all devices got its key. */
  readonly #begun = new Map<RoomId, boolean>();
  readonly #calls = new Serial();
  #ended: DrawbridgeError | undefined;

  private constructor(
    machine: OlmMachine,
    databases: StoredDatabases,
    policy: DeviceTrustPolicy,
    followed: Set<string>,
  ) {
    this.identity = identityOf(machine);
    this.#machine = machine;
    this.#databases = databases;
    this.#policy = policy;
    this.#followed = followed;
    this.#senders = new SenderDevices((user) => followed.add(user));
  }

  /** Opens the machine of a store, and makes what that changed durable, which finishes a new store. */
  static async open(store: ClaimedStore, policy: DeviceTrustPolicy, deps: StoreRecordsDependencies) {
    const records = new StoreRecords(store, deps);
    const databases = new StoredDatabases(records, store.layout as readonly DatabaseLayout[]);
    mounted.set(records.name, databases);
    try {
      const machine = await GhostMachine.#start(store, records);
      // A ghost has one device, so it has no other device of its own to request keys from.
      machine.roomKeyRequestsEnabled = false;
      // Whoever has left a room would be given again what was shared with it.
      machine.roomKeyForwardingEnabled = false;
      // Before the commit, which fails where a read has failed.
      const followed = [...(await machine.trackedUsers())].map(String);
      const layout = databases.layout();
      const isUnchanged = store.identity !== undefined && isDeepStrictEqual(layout, store.layout);
      await (isUnchanged ? records.commit() : records.layOut(layout, identityOf(machine)));
      return new GhostMachine(machine, databases, policy, new Set([store.ghost, ...followed]));
    } catch (error) {
      mounted.delete(records.name);
      throw error;
    }
  }

  static async #start(store: ClaimedStore, records: StoreRecords): Promise<OlmMachine> {
    const { ghost, deviceId, key, identity } = store;
    try {
      const handle = await StoreHandle.openWithKey(records.name, key);
      const machine = await OlmMachine.initFromStore(new SdkUserId(ghost), new DeviceId(deviceId), handle);
      if (identity === undefined || isDeepStrictEqual(identity, identityOf(machine))) return machine;
      machine.close();
    } catch (error) {
      if (isPanic(error)) throw error;
      // What could not be read says nothing about whose it is.
      if (records.failure !== undefined) throw records.failure;
      // The library's error is a text that may hold parts of the store.
    }
    throw new ForeignStore();
  }

  /** Runs one call after those before it; resolves when what it changed is durable. */
  async #run<Result>(call: (machine: OlmMachine) => Promise<Result>): Promise<Result> {
    const { answer, durable } = await this.#calls.run(async () => {
      if (this.#ended !== undefined) throw this.#ended;
      const [answer] = await Promise.allSettled([call(this.#machine)]);
      // In the same turn, so that the next call's changes are not among them.
      return { answer, durable: this.#databases.records.commit() };
    });
    await durable.catch((error: DrawbridgeError) => {
      this.#ended ??= error;
      throw error;
    });
    if (answer.status === "rejected") throw answer.reason;
    return answer.value;
  }

  /** What changed of users whom it does not follow, as most ghosts do not, is nothing to the library, and costs no write. */
  async receive(changes: DeviceChanges): Promise<readonly RoomId[]> {
    const toDevice = this.#withheld.takeFrom(changes.toDevice);
    const { oneTimeKeyCounts, unusedFallbackKeys } = changes;
    const isSaidOfUsers = toDevice.length === 0 && (oneTimeKeyCounts ?? unusedFallbackKeys) === undefined;
    const users = [...changes.changedUsers, ...changes.leftUsers];
    if (isSaidOfUsers && !users.some((user) => this.#followed.has(user))) return [];
    return this.#run((machine) => receiveChanges(machine, { ...changes, toDevice }));
  }

  decrypt(event: EncryptedRoomEvent): Promise<Decryption> {
    return this.#run((machine) => decryptEvent(machine, event, this.#policy, this.#senders, this.#withheld));
  }

  outgoing(): Promise<readonly OutgoingRequest[]> {
    return this.#run(async (machine) => {
      const requests = toRequests(await machine.outgoingRequests());
      // A ghost verifies nobody, and anybody may begin verifications without end, each of which the library cancels.
      for (const request of requests) if (isOfVerification(request)) await markSent(machine, request, "{}");
      return requests.filter((request) => !isOfVerification(request));
    });
  }

  sent(request: OutgoingRequest, answer: string): Promise<void> {
    return this.#run(async (machine) => {
      await markSent(machine, request, answer);
      if (request.kind === "keys_query") this.#senders.changed();
    });
  }

  /** Requests that publish the ghost's cross-signing identity, in the order in which they must be sent. */
  crossSign(): Promise<readonly OutgoingRequest[]> {
    return this.#run(async (machine) => {
      const own = await machine.getIdentity(machine.userId);
      const device = await machine.getDevice(machine.userId, machine.deviceId);
      const keys = await machine.crossSigningStatus();
      const complete = keys.hasMaster && keys.hasSelfSigning && keys.hasUserSigning;
      if (complete && own?.isVerified() === true && device?.isCrossSignedByOwner() === true) return [];
      const made = await machine.bootstrapCrossSigning(false);
      return [
        ...toRequests([made.uploadKeysRequest]),
        signingKeysUpload(made.uploadSigningKeysRequest.body),
        ...toRequests([made.uploadSignaturesRequest]),
      ];
    });
  }

  track(users: readonly UserId[]): Promise<void> {
    for (const user of users) this.#followed.add(user);
    return this.#run((machine) => machine.updateTrackedUsers(sdkUsers(users)));
  }

  missingSessions(users: readonly UserId[]): Promise<readonly OutgoingRequest[]> {
    return this.#run(async (machine) => toRequests([await machine.getMissingSessions(sdkUsers(users))]));
  }

  shareRoomKey(room: RoomId, users: readonly UserId[], wanted: RoomEncryption) {
    return this.#run(async (machine) => {
      const forAllDevices = reachesAllDevices(this.#policy, wanted);
      const settings = { ...wanted, forAllDevices };
      // A session that other devices have could be read by them. And a store that was restored from a backup would use
      // indices of its sessions a second time.
      if (this.#begun.get(room) !== forAllDevices) await machine.invalidateGroupSession(new SdkRoomId(room));
      this.#begun.set(room, forAllDevices);
      const requests = await shareRoomKey(machine, this.#policy, room, { users, settings });
      this.#shared.set(room, { users, settings });
      return requests;
    });
  }

  /** The content of the `m.room.encrypted` event. The session must have been shared just before. */
  encrypt(room: RoomId, eventType: string, content: UnknownObject): Promise<UnknownObject> {
    return this.#run(async (machine) => {
      const shared = this.#shared.get(room);
      this.#shared.delete(room);
      // The library panics on a session that expired since it was shared, so it is shared once more.
      if (shared === undefined || (await shareRoomKey(machine, this.#policy, room, shared)).length > 0) {
        throw new DrawbridgeError("internal", "the room's session has to be shared again");
      }
      const sealed = await machine.encryptRoomEvent(new SdkRoomId(room), eventType, JSON.stringify(content));
      return JSON.parse(sealed) as UnknownObject;
    });
  }

  // The library has no call for this: the room's part of the records' keys, a keyed hash, is learned from the keys that
  // the library asks for when it looks for a session of that room.
  forgetRoom(room: RoomId): Promise<void> {
    return this.#run(async (machine) => {
      const { records } = this.#databases;
      const asked = await records.keysAskedBy(() => querySession(machine, room));
      for (const { objectStore, key } of asked) {
        const range = sameFirstPart(key);
        if (range !== undefined) await records.deleteRange(objectStore, range);
      }
    });
  }

  async close(): Promise<void> {
    this.#ended ??= new DrawbridgeError("internal", "the ghost's machine is closed");
    await this.#calls.ended();
    this.#machine.close();
    mounted.delete(this.#databases.records.name);
  }
}
