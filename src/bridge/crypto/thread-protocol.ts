// What the bridge and a thread of machines say to each other. Everything here crosses by structured clone, several
// messages in one list.
// Invariant: an error crosses as its kind alone, never with a text of the library's.
import type { GhostMxid } from "../../domain/identifiers.ts";
import type { DeviceIdentity, StoreLayout } from "../ledger/crypto-stores.ts";
import type { GhostMachine } from "./machine.ts";
import type { SenderPolicy } from "./machine-policy.ts";

export interface ThreadData {
  readonly databaseUrl: string;
  readonly policy: SenderPolicy;
}

/** What a thread needs to open a ghost's machine, once its store was claimed. */
export interface OpenTask {
  readonly ghost: GhostMxid;
  readonly deviceId: string;
  readonly key: Uint8Array;
  readonly fence: bigint;
  readonly layout: StoreLayout;
  /** Of a finished store; undefined for a new one. */
  readonly identity: DeviceIdentity | undefined;
}

/** Methods of a machine that are called across threads by name. */
export type MachineCalls = Pick<
  GhostMachine,
  | "receive"
  | "decrypt"
  | "outgoing"
  | "sent"
  | "crossSign"
  | "track"
  | "missingSessions"
  | "shareRoomKey"
  | "encrypt"
>;
export type MachineCall = keyof MachineCalls;

export type ToThread =
  | { readonly id: number; readonly do: "open"; readonly task: OpenTask }
  | { readonly id: number; readonly do: "shut"; readonly ghost: GhostMxid }
  /** Shuts every machine and lets go of the database; then the thread ends by itself. */
  | { readonly id: number; readonly do: "close" }
  | {
      readonly id: number;
      readonly do: "call";
      readonly ghost: GhostMxid;
      readonly call: MachineCall;
      readonly args: readonly unknown[];
    };

export type ThreadErrorKind =
  /** The store is another device's, or its key does not open it. */
  | "foreign"
  /** Another process holds the store now. */
  | "fence_lost"
  | "database_unavailable"
  /** No machine of this ghost here. */
  | "not_open"
  /** The library refused what it was given. */
  | "refused";

export type FromThread =
  | { readonly id: number; readonly result: unknown }
  | { readonly id: number; readonly error: ThreadErrorKind }
  /** The machine is ahead of its store, and was closed. */
  | { readonly lost: GhostMxid; readonly why: ThreadErrorKind };
