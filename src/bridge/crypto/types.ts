// What the bridge asks of its ghosts' cryptographic machines, and what it hands on to the rest.
// Invariants: a machine's state is durable before any method that changed it resolves; a ghost that was
// stopped (its store lost, foreign, behind, its device deleted, its fence taken) answers `unavailable` and
// never gets a new device by itself; no plaintext, ciphertext or key is ever in an error or a log line.
import type { EventId, GhostMxid, RoomId, UserId } from "../../domain/identifiers.ts";
import type { DeviceIdentity } from "../ledger/crypto-stores.ts";
import type { DeviceChanges, OutgoingRequest } from "../matrix/device-api.ts";

/** An `m.room.encrypted` event with a Megolm ciphertext, whole, as the homeserver gave it. */
export interface EncryptedRoomEvent {
  readonly event: EventId;
  readonly room: RoomId;
  readonly sender: UserId;
  readonly raw: Readonly<Record<string, unknown>>;
}

/** Why a decrypted event is not believed. A closed set; it is stored and counted. */
export const DECRYPTION_REFUSALS = [
  /** The sender outside is not the owner of the device that the session came from. */
  "sender_mismatch",
  /** The policy on devices asks for more than this one has. */
  "device_not_trusted",
  /** No Megolm event, or one that no key could ever open. */
  "undecryptable",
] as const;
export type DecryptionRefusal = (typeof DECRYPTION_REFUSALS)[number];

export type Decryption =
  | {
      readonly kind: "decrypted";
      /** The type and content inside; a relation that stood outside is part of the content. */
      readonly type: string;
      readonly content: Readonly<Record<string, unknown>>;
      /** SHA-256 of room, session and message index: the same for a replay of the same ciphertext. */
      readonly indexDigest: Buffer;
      /** The device that it came from is not known, and its owner's devices are asked for with `outgoing`. */
      readonly asked?: true;
    }
  /** Its key is not here (yet). `withheld` is the sender's code when it said why. */
  | { readonly kind: "missing_key"; readonly withheld: string | undefined; readonly asked?: true }
  | { readonly kind: "refused"; readonly reason: DecryptionRefusal }
  /** No machine that could: stopped, or its thread is being replaced. Try again later. */
  | { readonly kind: "unavailable" };

/** How an outgoing event is to be encrypted, from the room's state as it is now. */
export interface RoomEncryption {
  /** `rotation_period_msgs`, 100 when the room says nothing. */
  readonly rotationMessages: number;
  /** `rotation_period_ms`, one week when the room says nothing. */
  readonly rotationMs: number;
  readonly historyVisibility: string;
}

/** The machines of all ghosts, in their threads. Each method names the ghost; calls of one ghost are in order. */
export interface Machines {
  /**
   * Opens a ghost's machine: from its durable store, or, with `create`, a new one (refused when a store is there).
   * Raises the ghost's fence: another process that had it open is shut out of the store by that.
   */
  open(ghost: GhostMxid, deviceId: string, mode: "load" | "create"): Promise<OpenResult>;
  /** Resolves when what was received is durable. Tells which rooms got keys. */
  receive(
    ghost: GhostMxid,
    changes: DeviceChanges,
  ): Promise<{ readonly roomsWithNewKeys: readonly RoomId[] }>;
  decrypt(ghost: GhostMxid, event: EncryptedRoomEvent): Promise<Decryption>;
  /** What the machine wants sent now, in order. */
  outgoing(ghost: GhostMxid): Promise<readonly OutgoingRequest[]>;
  /** The homeserver's answer to an outgoing request. */
  sent(ghost: GhostMxid, request: OutgoingRequest, responseBody: string): Promise<void>;
  /** Requests that make, or make again, the ghost's cross-signing identity known; empty when it is complete. */
  crossSign(ghost: GhostMxid): Promise<readonly OutgoingRequest[]>;
  /** Follows these users' devices; the queries come with `outgoing`. */
  track(ghost: GhostMxid, users: readonly UserId[]): Promise<void>;
  /** The one-time keys to claim before a session can be shared with these users; undefined when none. */
  missingSessions(ghost: GhostMxid, users: readonly UserId[]): Promise<OutgoingRequest | undefined>;
  /** The to-device messages that share the room's outbound session with these users' devices. */
  shareRoomKey(
    ghost: GhostMxid,
    room: RoomId,
    users: readonly UserId[],
    settings: RoomEncryption,
  ): Promise<readonly OutgoingRequest[]>;
  /** The content of the `m.room.encrypted` event. The room's session must have been shared just before. */
  encrypt(
    ghost: GhostMxid,
    room: RoomId,
    eventType: string,
    content: Readonly<Record<string, unknown>>,
  ): Promise<Readonly<Record<string, unknown>>>;
  /** Closes a ghost's machine; its store stays. */
  shut(ghost: GhostMxid): Promise<void>;
  close(): Promise<void>;
}

export type OpenResult =
  | { readonly kind: "opened"; readonly identity: DeviceIdentity; readonly created: boolean }
  /** `load`, and there is no store; or `create`, and there is one. */
  | { readonly kind: "no_store" }
  | { readonly kind: "store_exists" }
  /** The store is another device's, or no key opens it. */
  | { readonly kind: "foreign" };
