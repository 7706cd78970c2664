// What an admission consists of: what came in, what the ledger knows about it, what was derived from it,
// and what became of it.
import type { AgentId, EventId, GhostMxid, RoomId, UserId } from "../../domain/identifiers.ts";
import type { RoomStateEvent } from "./memberships.ts";
import type { NoticeKind } from "./states.ts";

/** How an event came in: by transaction, or recovered by reading back. */
export type Ingress = "transaction" | "recovered";

/** An (event, ghost) pair that is to become a delegation. */
export interface NewDelegation {
  /** Index of its event in the transaction: places in the room are given in this order. */
  readonly position: number;
  readonly event: EventId;
  readonly room: RoomId;
  readonly ghost: GhostMxid;
  readonly agent: AgentId;
  readonly targetFingerprint: string;
  readonly sender: UserId;
  readonly originServerTs: number;
  readonly threadRoot: EventId | undefined;
  readonly prompt: string;
  /** Of an encrypted event: digest of room, session and message index. One event alone may have it. */
  readonly indexDigest: Buffer | undefined;
}

/** An encrypted event whose key is not here: it takes a place in its room, and a slot of its capacity. */
export interface NewIntakeEnvelope {
  /** Index of the event in the transaction. */
  readonly position: number;
  readonly event: EventId;
  readonly room: RoomId;
  readonly sender: UserId;
  readonly originServerTs: number;
  /** SHA-256 of the event as the homeserver gave it; what is fetched again later must have the same. */
  readonly fingerprint: Buffer;
  /** When it expires, milliseconds since the Unix epoch. */
  readonly deadline: number;
}

/** A notice that an event asks for, besides those that a refusal brings. */
export interface NewNotice {
  readonly kind: NoticeKind;
  readonly room: RoomId;
  readonly ghost: GhostMxid;
  readonly source: EventId;
  readonly threadRoot: EventId | undefined;
}

/** An event that cannot be read; of its content only the digest is kept. */
export interface MalformedEvent {
  readonly sha256: Buffer;
  readonly reason: string;
  readonly event: EventId | undefined;
  readonly room: RoomId | undefined;
}

/** What the ledger knows about the rooms and events that a transaction touches. */
export interface KnownFacts {
  readonly encryptedRooms: ReadonlySet<RoomId>;
  /** Ghosts that are, or may be, in a room: all recorded ones that have not left. */
  readonly ghostsIn: ReadonlyMap<RoomId, ReadonlySet<GhostMxid>>;
  /** Ghosts recorded as having left a room. */
  readonly ghostsGone: ReadonlyMap<RoomId, ReadonlySet<GhostMxid>>;
  /** Rooms that are direct chats with exactly this ghost. */
  readonly directWith: ReadonlyMap<RoomId, GhostMxid>;
  /** Events that ghosts sent, by `inRoom`. */
  readonly saidBy: ReadonlyMap<string, ReadonlySet<GhostMxid>>;
  /** Roots of threads that ghosts take part in, by `inRoom`. */
  readonly threadOf: ReadonlyMap<string, ReadonlySet<GhostMxid>>;
}

/** An event in its room: an event ID alone may be named from anywhere. */
export function inRoom(room: RoomId, event: EventId): string {
  return `${room} ${event}`;
}

export interface Derived {
  /** Pairs already known, and pairs of an event that has an intake envelope, are dropped by the ledger. */
  readonly delegations: readonly NewDelegation[];
  /** Those of events already known, as intake envelope or as delegation, are dropped by the ledger. */
  readonly envelopes: readonly NewIntakeEnvelope[];
  readonly notices: readonly NewNotice[];
}

/** What `derive` needs to know about; nothing is read, and `derive` is not called, when there are no rooms. */
export interface About {
  /** Of everything that may become a delegation or an intake envelope. */
  readonly rooms: readonly RoomId[];
  readonly events: readonly EventId[];
  /** Events that those reply to, and roots of their threads. */
  readonly related: readonly EventId[];
}

export interface Admission {
  readonly transactionId: string;
  readonly ingress: Ingress;
  /** The exact body as received. */
  readonly body: Uint8Array;
  readonly receivedAt: number;
  readonly eventCount: number;
  readonly malformed: readonly MalformedEvent[];
  readonly roomState: readonly RoomStateEvent[];
  /** Source events whose redaction the transaction brings. */
  readonly redacted: readonly { readonly room: RoomId; readonly event: EventId }[];
  readonly about: About;
  /** Rooms of which an event was decrypted: there, room keys are not missing any more. */
  readonly decryptedIn?: readonly RoomId[] | undefined;
  readonly derive: (known: KnownFacts) => Derived;
  readonly capacity: { readonly room: number; readonly global: number };
  readonly noticeIntervalMs: number;
}

export interface Admitted {
  /** True when this very body was committed before: nothing was written. */
  readonly replayed: boolean;
  /** Delegations that were admitted. */
  readonly admitted: number;
  /** Delegations that were refused. */
  readonly denied: number;
  /** Intake intake envelopes that await their key now. */
  readonly envelopes: number;
  /** Intake intake envelopes that were refused. */
  readonly envelopesDenied: number;
  readonly malformed: number;
  /** Delegations under way whose question was redacted. */
  readonly canceled: readonly string[];
  /** Whether notices or memberships may be due now. */
  readonly notices: number;
}
