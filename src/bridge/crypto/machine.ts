// One ghost's OlmMachine over its durable store.
// Invariants: what a call changed is committed before the call resolves, in one statement, so after a crash
// the machine is as it was between two calls; calls run one after the other; a machine whose changes could
// not be committed is ahead of its store and answers nothing more.
import {
  CollectStrategy,
  DeviceId,
  EncryptionSettings,
  HistoryVisibility,
  OlmMachine,
  RoomId as SdkRoomId,
  UserId as SdkUserId,
  StoreHandle,
} from "@matrix-org/matrix-sdk-crypto-wasm";
import { DrawbridgeError } from "../../domain/errors.ts";
import type { GhostMxid, RoomId, UserId } from "../../domain/identifiers.ts";
import type { CryptoRecord, DeviceIdentity, StoreLayout } from "../ledger/crypto-stores.ts";
import type { DeviceChanges, OutgoingRequest } from "../matrix/device-api.ts";
import { decryptEvent } from "./machine-decrypt.ts";
import type { SenderPolicy } from "./machine-policy.ts";
import { receiveToDevice } from "./machine-receive.ts";
import { asOutgoing, bootstrapRequests, claimOf, markSent, outgoingOf } from "./machine-requests.ts";
import { isPanic } from "./panic.ts";
import { SenderDevices } from "./sender-devices.ts";
import {
  allRecords,
  forgetDatabases,
  type Journal,
  layoutOf,
  quickenDatabases,
  rebuildDatabases,
  sameLayout,
  takeJournal,
  watchDatabases,
} from "./store-databases.ts";
import type { Decryption, EncryptedRoomEvent, RoomEncryption } from "./types.ts";

/** Where a machine's changes go; each resolves when it is committed under the ghost's fence. */
export interface MachineStore {
  /** Unique in this thread. */
  readonly name: string;
  readonly layout: StoreLayout;
  /** Of a finished store; undefined for a new one. */
  readonly identity: DeviceIdentity | undefined;
  records(): AsyncIterable<readonly { objectStore: string; key: string; value: Buffer }[]>;
  write(records: readonly CryptoRecord[]): Promise<void>;
  replace(records: readonly CryptoRecord[], layout: StoreLayout, identity: DeviceIdentity): Promise<void>;
}

interface Shared {
  readonly users: readonly UserId[];
  readonly settings: RoomEncryption;
}

const VISIBILITIES: Readonly<Record<string, HistoryVisibility>> = {
  invited: HistoryVisibility.Invited,
  joined: HistoryVisibility.Joined,
  shared: HistoryVisibility.Shared,
  world_readable: HistoryVisibility.WorldReadable,
};

const sdkUsers = (users: readonly UserId[]) => users.map((user) => new SdkUserId(user));

function encryptionSettings(room: RoomEncryption): EncryptionSettings {
  const settings = new EncryptionSettings();
  settings.rotationPeriodMessages = BigInt(Math.max(1, Math.floor(room.rotationMessages)));
  // The library counts microseconds.
  settings.rotationPeriod = BigInt(Math.max(1, Math.floor(room.rotationMs))) * 1_000n;
  settings.historyVisibility = VISIBILITIES[room.historyVisibility] ?? HistoryVisibility.Joined;
  settings.sharingStrategy = CollectStrategy.allDevices();
  return settings;
}

function identityOf(machine: OlmMachine): DeviceIdentity {
  const { curve25519, ed25519 } = machine.identityKeys;
  return { curve25519: curve25519.toBase64(), ed25519: ed25519.toBase64() };
}

/** The store is another device's, or its key does not open it. */
export class ForeignStore extends Error {}

export class GhostMachine {
  readonly identity: DeviceIdentity;
  readonly #machine: OlmMachine;
  readonly #ghost: GhostMxid;
  readonly #deviceId: string;
  readonly #store: MachineStore;
  readonly #journal: Journal;
  readonly #policy: SenderPolicy;
  readonly #senders = new SenderDevices();
  readonly #shared = new Map<RoomId, Shared>();
  /** Rooms whose session was begun by this machine, since it was opened. */
  readonly #begun = new Set<RoomId>();
  #calls: Promise<unknown> = Promise.resolve();
  #ended: DrawbridgeError | undefined;

  private constructor(
    machine: OlmMachine,
    ghost: GhostMxid,
    deviceId: string,
    store: MachineStore,
    journal: Journal,
    policy: SenderPolicy,
  ) {
    this.identity = identityOf(machine);
    this.#machine = machine;
    this.#ghost = ghost;
    this.#deviceId = deviceId;
    this.#store = store;
    this.#journal = journal;
    this.#policy = policy;
  }

  /** @throws ForeignStore; DrawbridgeError */
  static async open(
    ghost: GhostMxid,
    deviceId: string,
    key: Uint8Array,
    store: MachineStore,
    policy: SenderPolicy,
  ): Promise<GhostMachine> {
    const journal: Journal = new Map();
    try {
      await rebuildDatabases(store.name, store.layout, store.records());
      watchDatabases(store.name, journal);
      const machine = await GhostMachine.#start(ghost, deviceId, key, store);
      // A ghost has one device: there is nobody of its own to ask for keys.
      machine.roomKeyRequestsEnabled = false;
      // Whoever has left would be given again what was shared with it.
      machine.roomKeyForwardingEnabled = false;
      const opened = new GhostMachine(machine, ghost, deviceId, store, journal, policy);
      await opened.#settle();
      quickenDatabases(store.name);
      return opened;
    } catch (error) {
      forgetDatabases(store.name);
      throw error;
    }
  }

  static async #start(ghost: GhostMxid, deviceId: string, key: Uint8Array, store: MachineStore) {
    try {
      const handle = await StoreHandle.openWithKey(store.name, key);
      const machine = await OlmMachine.initFromStore(new SdkUserId(ghost), new DeviceId(deviceId), handle);
      const { curve25519, ed25519 } = identityOf(machine);
      const { identity } = store;
      if (identity === undefined) return machine;
      if (identity.curve25519 === curve25519 && identity.ed25519 === ed25519) return machine;
      machine.close();
    } catch (error) {
      if (isPanic(error)) throw error;
      // The library says by text alone what is wrong with a store, and the text may hold parts of it.
    }
    throw new ForeignStore();
  }

  /** Makes what opening changed durable: all of a new store or of one that was upgraded, else the changes. */
  async #settle(): Promise<void> {
    const { name, identity, layout } = this.#store;
    const now = layoutOf(name);
    if (identity !== undefined && sameLayout(layout, now)) {
      await this.#store.write(takeJournal(this.#journal));
      return;
    }
    this.#journal.clear();
    await this.#store.replace(allRecords(name), now, this.identity);
    watchDatabases(name, this.#journal);
  }

  /**
   * Runs one call after those before it; resolves when all that was changed until then is durable. The next
   * call computes meanwhile.
   */
  async #run<Result>(call: (machine: OlmMachine) => Promise<Result>): Promise<Result> {
    const computed = this.#calls.then(async () => {
      if (this.#ended !== undefined) throw this.#ended;
      const answer = await call(this.#machine).then(
        (result) => ({ result }),
        (error: unknown) => ({ error }),
      );
      // In the same turn, so that the next call's changes are not among them.
      return { answer, durable: this.#store.write(takeJournal(this.#journal)) };
    });
    this.#calls = computed.catch(() => undefined);
    const { answer, durable } = await computed;
    await durable.catch((error: DrawbridgeError) => {
      this.end(error);
      throw error;
    });
    if ("error" in answer) throw answer.error;
    return answer.result;
  }

  receive(changes: DeviceChanges): Promise<readonly RoomId[]> {
    return this.#run((machine) => receiveToDevice(machine, changes));
  }

  decrypt(event: EncryptedRoomEvent): Promise<Decryption> {
    return this.#run((machine) => decryptEvent(machine, event, this.#policy, this.#senders));
  }

  outgoing(): Promise<readonly OutgoingRequest[]> {
    return this.#run(outgoingOf);
  }

  sent(request: OutgoingRequest, answer: string): Promise<void> {
    return this.#run(async (machine) => {
      await markSent(machine, request, answer);
      if (request.kind === "keys_query") this.#senders.changed();
    });
  }

  crossSign(): Promise<readonly OutgoingRequest[]> {
    return this.#run(async (machine) => {
      const own = await machine.getIdentity(new SdkUserId(this.#ghost));
      const device = await machine.getDevice(new SdkUserId(this.#ghost), new DeviceId(this.#deviceId));
      const keys = await machine.crossSigningStatus();
      const complete = keys.hasMaster && keys.hasSelfSigning && keys.hasUserSigning;
      if (complete && own?.isVerified() === true && device?.isCrossSignedByOwner() === true) return [];
      const made = await machine.bootstrapCrossSigning(false);
      return bootstrapRequests(
        made.uploadKeysRequest,
        made.uploadSigningKeysRequest,
        made.uploadSignaturesRequest,
      );
    });
  }

  track(users: readonly UserId[]): Promise<void> {
    return this.#run((machine) => machine.updateTrackedUsers(sdkUsers(users)));
  }

  missingSessions(users: readonly UserId[]): Promise<OutgoingRequest | undefined> {
    return this.#run(async (machine) => claimOf(await machine.getMissingSessions(sdkUsers(users))));
  }

  shareRoomKey(
    room: RoomId,
    users: readonly UserId[],
    settings: RoomEncryption,
  ): Promise<readonly OutgoingRequest[]> {
    return this.#run(async (machine) => {
      // A store that was put back from a backup would use places in its sessions a second time.
      if (!this.#begun.has(room)) await machine.invalidateGroupSession(new SdkRoomId(room));
      this.#begun.add(room);
      const requests = await this.#share(machine, room, { users, settings });
      this.#shared.set(room, { users, settings });
      return requests;
    });
  }

  async #share(machine: OlmMachine, room: RoomId, { users, settings }: Shared) {
    const made = await machine.shareRoomKey(
      new SdkRoomId(room),
      sdkUsers(users),
      encryptionSettings(settings),
    );
    return made.map(asOutgoing).filter((request) => request !== undefined);
  }

  encrypt(
    room: RoomId,
    eventType: string,
    content: Readonly<Record<string, unknown>>,
  ): Promise<Readonly<Record<string, unknown>>> {
    return this.#run(async (machine) => {
      const shared = this.#shared.get(room);
      this.#shared.delete(room);
      // The library panics on a session that expired since it was shared, so it is asked once more.
      if (shared === undefined || (await this.#share(machine, room, shared)).length > 0) {
        throw new DrawbridgeError("internal", "the room's session has to be shared again");
      }
      const sealed = await machine.encryptRoomEvent(new SdkRoomId(room), eventType, JSON.stringify(content));
      return JSON.parse(sealed) as Record<string, unknown>;
    });
  }

  /** Ends it without another write; calls that wait are rejected with `reason`. */
  end(reason: DrawbridgeError): void {
    this.#ended ??= reason;
  }

  /** Closes it after the calls made so far; its store stays. */
  async close(): Promise<void> {
    const before = this.#calls;
    this.end(new DrawbridgeError("internal", "the ghost's machine is closed"));
    await before;
    this.#machine.close();
    forgetDatabases(this.#store.name);
  }
}
