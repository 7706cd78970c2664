// The types of an admission: its events, the facts that the ledger knows about them, what is derived from both, the result.
import type {
  AgentId,
  EventId,
  GhostMxid,
  RoomId,
  ServerName,
  TransactionId,
  UserId,
} from "../../domain/identifiers.ts";
import type { BridgeConfig } from "../config.ts";
import type { ContentKeys } from "./content-keys.ts";
import type { DeviceMail } from "./ghosts.ts";
import type { ClaimedDelegation } from "./leases.ts";
import type { Attachment, Prompt } from "./prompts.ts";
import type { RoomOrder } from "./room-order.ts";
import type { NoticeKind, NoticeReason, SendPurpose, TerminalReason } from "./states.ts";

export interface LedgerSettings {
  readonly keys: ContentKeys;
  /** The same notice is not repeated in a room within this time. */
  readonly noticeIntervalMs: number;
  /** How long the head of a room's queue that does not get on may hold its room. */
  readonly roomGateMs: number;
  /** Tells ghosts, and the appservice's own user, from people. */
  readonly isGhost: (user: UserId) => boolean;
  /** Whether ghosts take part in encrypted rooms. Otherwise such a room gets a notice. */
  readonly servesEncryptedRooms?: boolean;
}

export type Ingress = "transaction" | "recovered";

export interface GhostMembershipEvent {
  readonly kind: "ghost";
  readonly room: RoomId;
  readonly ghost: GhostMxid;
  readonly membership: "invite" | "join" | "leave";
  readonly inviter: UserId | undefined;
  readonly direct: boolean;
  /** An invitation of a ghost that no agent has is recorded, and refused, only if the ghost had one before. */
  readonly hasAgent: boolean;
  readonly originServerTs?: number;
  readonly position?: number;
}

/** `member`: of a user that is not a ghost. Encryption is never switched off again. */
export type RoomStateEvent =
  | GhostMembershipEvent
  | Readonly<{ kind: "member"; room: RoomId; user: UserId; joined: boolean; position: number }>
  | { readonly kind: "encryption"; readonly room: RoomId };

/** What every event of a room has (Matrix client-server API, "Room event format"). */
export interface RoomEvent {
  readonly event: EventId;
  readonly room: RoomId;
  readonly sender: UserId;
  readonly originServerTs: number;
  /** Among the events that came with it, from 0, in the homeserver's order: places in a room are given in this order. */
  readonly position: number;
}

export interface NewDelegation extends RoomEvent {
  readonly ghost: GhostMxid;
  readonly agent: AgentId;
  readonly targetFingerprint: string;
  readonly threadRoot: EventId | undefined;
  /** The question's number in an exchange in which nobody paused: 1 for a person's question. */
  readonly agentTurn: number;
  readonly prompt: string;
  readonly attachment?: Attachment | undefined;
  /** When the edit was made that came with it and whose text it has. */
  readonly editedTs?: number | undefined;
  /** Prompt and attachment, if they were sealed before it is known whether the question is admitted. */
  readonly sealed?: Buffer | undefined;
  readonly contextId?: string | undefined;
  /** Why it is refused whatever the capacity is. */
  readonly refused?: TerminalReason | undefined;
  /** Of an encrypted event: digest of room, session and message index. One event alone may have it. */
  readonly indexDigest: Buffer | undefined;
}

/** An encrypted event whose key is missing. It takes a place in its room. */
export interface NewIntakeEnvelope extends RoomEvent {
  /** SHA-256 of the event as the homeserver gave it; the event that is fetched again later must have the same. */
  readonly fingerprint: Buffer;
  /** The question whose text it replaces; undefined when it is no edit. */
  readonly edits: EventId | undefined;
  /** The ghost whose direct room with the sender it was said in, which it asks whatever has become of that room. */
  readonly direct?: GhostMxid | undefined;
  /** What it replies to, else the root of its thread. */
  readonly refersTo?: EventId | undefined;
  /** When it expires, milliseconds since the Unix epoch. */
  readonly deadline: number;
}

export interface NewAnswer extends NewCancel, Prompt, Omit<DelegationEvents, "sender"> {}

/** Somebody's wish to cancel what they asked, by `event`. */
export interface NewCancel extends Partial<Pick<NewDelegation, "indexDigest">> {
  readonly delegation: string;
  readonly event: EventId;
}

/** A new text of a question, by the person who asked it. */
export interface NewEdit
  extends Pick<DelegationEvents, "source" | "ghost" | "room" | "sender">,
    Pick<NewDelegation, "event" | "originServerTs" | "indexDigest" | "prompt" | "attachment"> {
  /** Undefined of a question that is admitted with it. */
  readonly delegation: string | undefined;
}

/** An event that a ghost sent, as it came back from the homeserver. */
export interface Posted extends Pick<NewDelegation, "event" | "room" | "ghost" | "position"> {
  readonly transaction: TransactionId;
}

export interface NewNotice extends Pick<DelegationEvents, "room" | "ghost" | "source" | "threadRoot"> {
  readonly kind: NoticeKind;
  readonly asker?: UserId;
  readonly reason?: NoticeReason;
  /** The event that causes it, where that is not its source. */
  readonly event?: EventId;
}

/** An event that cannot be parsed; only the digest of its content is kept. */
export interface MalformedEvent {
  readonly sha256: Buffer;
  readonly reason: string;
  readonly event: EventId | undefined;
  readonly room: RoomId | undefined;
}

/** What a ghost said a moment ago about a question: an answer, or that it does not answer any more. */
export interface RecentAnswer
  extends Pick<NewDelegation, "room" | "event" | "threadRoot" | "sender" | "agentTurn"> {
  /** The events in which it was said, as far as the homeserver has named them. */
  readonly said: readonly EventId[];
  readonly isPending: boolean;
}

export interface QuestionOption {
  readonly key: string;
  /** What the agent gets when it is chosen. */
  readonly value: string;
}

/** A delegation with its question `source`, and who asked that. */
interface DelegationEvents extends Pick<NewDelegation, "room" | "threadRoot" | "ghost" | "sender"> {
  readonly delegation: string;
  readonly source: EventId;
}

/** A question of an agent that nobody has answered yet; `said` are its events, as far as known, and `earlier` those of the task's others. */
export interface OpenQuestion extends DelegationEvents, Pick<RecentAnswer, "said"> {
  readonly earlier: readonly EventId[];
  readonly options: readonly QuestionOption[];
  /** When it was recorded, or posted, as far as known, and when that was first tried; milliseconds since the Unix epoch. */
  readonly since: number;
  readonly tried: number;
}

/** An event that concerns a delegation: one that was sent for it, its question, or the root of its thread. */
export interface Subject extends DelegationEvents, Pick<NewDelegation, "event" | "targetFingerprint"> {
  /** What it was sent for; undefined for what people said. */
  readonly purpose: SendPurpose | undefined;
  readonly contextId: string | undefined;
  /** Milliseconds since the Unix epoch; undefined while it is open. */
  readonly endedAt: number | undefined;
  /** Also what is about to end it where it awaits an answer that cannot be recorded any more. */
  readonly endedBy: TerminalReason | undefined;
}

export type WaitingQuestion = Pick<NewIntakeEnvelope, "event" | "room" | "sender" | "refersTo"> &
  Partial<Pick<NewIntakeEnvelope, "position">>;

type DirectRoom = { readonly ghost: GhostMxid; readonly person: UserId };

export interface KnownFacts {
  /** Whether an event that was sent before this was handled is not remembered any more. */
  readonly forgottenBefore: number;
  readonly encryptedRooms: ReadonlySet<RoomId>;
  /** Ghosts that are, or may be, in a room: all recorded ones that have not left. A room without any record is missing. */
  readonly ghostsIn: ReadonlyMap<RoomId, ReadonlySet<GhostMxid>>;
  /** The ghost that sends what concerns no particular ghost, in each room with a joined one. */
  readonly speakers: ReadonlyMap<RoomId, GhostMxid>;
  /** Servers of partners that have a ghost of their own in a room. Known only where `About.partnerGhosts` asks for it. */
  readonly partnersIn: ReadonlyMap<RoomId, ReadonlySet<ServerName>>;
  /** The ghost of each direct room, and the only person there; until the members are known, the person who invited the ghost. */
  readonly directWith: ReadonlyMap<RoomId, DirectRoom>;
  /** The same before each event of the transaction by which a member, or a ghost, came or went, in their order. */
  readonly directUntil?: readonly { room: RoomId; position: number; direct: DirectRoom | undefined }[];
  /** Events of the transaction that were handled before, which mean nothing any more. */
  readonly handled?: ReadonlySet<EventId> | undefined;
  /** What the related events concern, in the order of admission. Of a thread: what is open, and one delegation of each ghost. */
  readonly subjects: readonly Subject[];
  /** The related events that wait for their keys in intake envelopes, and others that refer to the same and hold their room. */
  readonly waiting: readonly WaitingQuestion[];
  readonly recentAnswers: readonly RecentAnswer[];
  readonly openQuestions: readonly OpenQuestion[];
}

/** The key of an event in its room: an event of any room may name a bare event ID. */
export const inRoom = (room: RoomId, event: EventId): string => `${room} ${event}`;

export interface Derived {
  readonly delegations: readonly NewDelegation[];
  readonly answers: readonly NewAnswer[];
  readonly cancels: readonly NewCancel[];
  readonly edits?: readonly NewEdit[];
  readonly envelopes: readonly NewIntakeEnvelope[];
  readonly notices: readonly NewNotice[];
}

/** What `derive` needs facts about. Without rooms no facts are read, and `derive` is not called. */
export interface About {
  /** Rooms of every event that may become a delegation or an intake envelope. */
  readonly rooms: readonly RoomId[];
  /** Events that those reply to or replace, and roots of their threads. */
  readonly related: readonly EventId[];
  readonly threads?: readonly { readonly room: RoomId; readonly root: EventId; readonly sender: UserId }[];
  /** How the ghosts of partners are named; absent unless an event asks for what only one bridge is to answer. */
  readonly partnerGhosts?: readonly { readonly server: string; readonly prefix: string }[];
}

type Limits = BridgeConfig["limits"];

/** The most that may be open; a share that is not named is unbounded. See the invariants of capacity.ts for `agentReserve`. */
export type Capacity = Pick<Limits, "roomQueue" | "globalQueue"> &
  Partial<Pick<Limits, "serverQueue" | "agentQueue" | "agentReserve">> &
  Partial<Pick<Limits, "roomEnvelopes" | "senderEnvelopes" | "serverEnvelopes" | "globalEnvelopes">>;

export interface Admission {
  readonly transactionId: string;
  readonly ingress: Ingress;
  readonly receivedAt: number;
  /** Of the transaction's exact body; what a catchup found has none. */
  readonly bodySha256?: Buffer | undefined;
  readonly mail?: readonly DeviceMail[] | undefined;
  /** Of events that a catchup found. */
  readonly order?: RoomOrder | undefined;
  /** All events of the transaction. Those that were handled before become nothing. */
  readonly events: readonly { readonly room: RoomId; readonly event: EventId }[];
  readonly malformed: readonly MalformedEvent[];
  readonly roomState: readonly RoomStateEvent[];
  readonly redacted: readonly { readonly room: RoomId; readonly event: EventId }[];
  readonly posted?: readonly Posted[] | undefined;
  readonly about: About;
  /** Rooms in which an event was decrypted: their room keys are no longer missing. */
  readonly decryptedIn?: readonly RoomId[] | undefined;
  readonly derive: (known: KnownFacts) => Derived;
  readonly capacity: Capacity;
  /** A slot of this process for the question, if one is free and the process can answer in such a room. */
  readonly slotFor?: ((question: NewDelegation, isEncrypted: boolean) => ClaimSlot | undefined) | undefined;
}

/** A worker's slot for a question that is claimed as it is admitted. */
export interface ClaimSlot {
  readonly holder: string;
  readonly leaseUntil: number;
  /** Begins the work on what was claimed; without it, gives the slot up. */
  end(claimed: ClaimedDelegation | undefined): void;
}

export interface Admitted {
  /** True when every event was handled before; then nothing was written. */
  readonly replayed: boolean;
  readonly admitted: number;
  /** Why each of the other questions was denied. */
  readonly refused: readonly TerminalReason[];
  readonly answers: number;
  /** Intake envelopes that now await their keys. */
  readonly envelopes: number;
  readonly envelopesDenied: number;
  /** Delegations in workers' hands that are to be canceled. */
  readonly canceled: readonly string[];
  /** How many notices the transaction caused; some may be suppressed by their interval. */
  readonly notices: number;
  readonly claimed?: ClaimedDelegation | undefined;
  /** Of an intake envelope: nothing was written, because a question that it refers to waits for its key. */
  readonly isBehind?: boolean;
}

export const NOTHING_ADMITTED: Admitted = {
  ...{ replayed: false, admitted: 0, refused: [], answers: 0 },
  ...{ envelopes: 0, envelopesDenied: 0, canceled: [], notices: 0 },
};
