// A ghost's managed device as the rest of the bridge sees it: what comes in, what is opened, what is sealed.
// Invariants: a device is made once; whatever makes its store or the homeserver's view of it doubtful stops
// that ghost alone, visibly, until an operator resets it; an event for an encrypted room is never handed back
// in plain text; where it is not known whether a room is encrypted, nothing is handed back at all.

import type { GhostMxid, RoomId, UserId } from "../../domain/identifiers.ts";
import type { DeviceStopReason } from "../ledger/states.ts";
import type { DeviceChanges } from "../matrix/device-api.ts";
import type { GhostActor } from "../matrix/http.ts";
import type { Outcome } from "../matrix/outcome.ts";
import type { Decryption, EncryptedRoomEvent } from "./types.ts";

export interface DeviceStatus {
  readonly ghost: GhostMxid;
  readonly deviceId: string;
  /** `starting`: not opened yet, or the homeserver could not be asked yet; it is tried again by itself. */
  readonly state: "starting" | "ready" | "stopped";
  readonly stopped: DeviceStopReason | undefined;
  /** Whether the device's keys are known to be at the homeserver, and signed by the ghost's identity. */
  readonly published: boolean;
  readonly crossSigned: boolean;
  /** The last catchup of to-device messages did not work. */
  readonly catchupFailing: boolean;
}

/** Whether keys come with transactions, as far as it was found out. */
export type KeyDelivery = "unknown" | "works" | "no_to_device" | "no_key_counts";

export interface KeyDeliveryState {
  readonly result: KeyDelivery;
  /** Since when, and when it was last seen to be so; milliseconds of the clock. Undefined while it is unknown. */
  readonly since: number | undefined;
  readonly seenAt: number | undefined;
}

export interface KeyCatchupResult {
  readonly messages: number;
  readonly roomsWithNewKeys: readonly RoomId[];
}

/** What is to be sent, before or after it was sealed. */
export interface RoomContent {
  readonly eventType: string;
  readonly content: Readonly<Record<string, unknown>>;
}

/** To-device messages: user, device (or `*`), content. */
export type ToDeviceMessages = Readonly<
  Record<string, Readonly<Record<string, Readonly<Record<string, unknown>>>>>
>;

export interface GhostDevices {
  /** Opens the devices of all ghosts, by and by, and keeps them stocked until `signal` aborts. */
  start(signal: AbortSignal): void;
  /** Resolves when nothing is under way any more; call after the signal of `start` aborted. */
  drain(): Promise<void>;
  /** Opens one ghost's device now. `retry` while the homeserver cannot be asked; `refused` when it is stopped. */
  ensure(ghost: GhostMxid): Promise<Outcome<GhostActor>>;
  /**
   * Takes in what a transaction, or a catchup, brought; resolves when it is durable. The part of a ghost
   * that is stopped or unknown is dropped.
   * @throws when the database cannot commit: the transaction must not be acknowledged
   */
  receive(changes: ReadonlyMap<GhostMxid, DeviceChanges>): Promise<{
    readonly roomsWithNewKeys: readonly RoomId[];
  }>;
  /** Tries the ghosts one after the other until one can decrypt; else the most telling answer. */
  decrypt(ghosts: readonly GhostMxid[], event: EncryptedRoomEvent, timeoutMs: number): Promise<Decryption>;
  /**
   * Reads to-device messages that the transactions may have lost. Calls for one ghost are coalesced; the
   * position moves only after what was read is durable.
   */
  catchup(ghost: GhostMxid, signal?: AbortSignal): Promise<Outcome<KeyCatchupResult>>;
  /** Sends to-device messages that no machine made, such as key requests, as the ghost's device. */
  sendToDevice(ghost: GhostMxid, eventType: string, messages: ToDeviceMessages): Promise<Outcome<undefined>>;
  /** Follows these users' devices, so that what they send can be judged. Cheap when they are followed already. */
  follow(ghost: GhostMxid, users: readonly UserId[]): Promise<void>;
  /**
   * Makes an event ready for its room as the room is now: unchanged where the room is not encrypted,
   * else `m.room.encrypted`, its session shared with the devices that are in the room now.
   */
  encryptFor(actor: GhostActor, room: RoomId, event: RoomContent): Promise<Outcome<RoomContent>>;
  /** Every ghost's device, for readiness and metrics. */
  statuses(): readonly DeviceStatus[];
  delivery(): KeyDeliveryState;
}

/** What an operator does about a stopped device. */
export const DEVICE_STOP_MENDS: Readonly<Record<DeviceStopReason, string>> = {
  store_lost:
    "Restore the bridge's database as it was, or give the ghost a new device: `drawbridge ghost device reset`.",
  store_foreign:
    "Put back the key file that `encryption.storeKeys` names, or run `drawbridge ghost device reset`.",
  store_behind: "Restore the newest state of the bridge's database, or run `drawbridge ghost device reset`.",
  device_deleted: "Find out who deleted the device, then run `drawbridge ghost device reset`.",
};

/** What is counted of devices; nothing of it is content. */
export interface DeviceObserver {
  /** To-device messages taken in. */
  toDevice(count: number, by: "transaction" | "catchup"): void;
  /** To-device messages that were not read, because they are too large or none. */
  toDeviceSkipped(count: number): void;
  keyCatchupEnded(outcome: Outcome<unknown>["kind"]): void;
  stopped(reason: DeviceStopReason): void;
}
