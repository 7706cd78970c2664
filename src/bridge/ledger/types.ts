// What the rest of the bridge may ask of the ledger. Each method is one statement or one short
// transaction; none makes a remote call. Invariants:
// - a lease is (delegation, holder, fence); every write of a holder carries it in its WHERE, and a
//   write that touches no row rejects with DrawbridgeError `lease_lost`: the caller drops its work;
// - a terminal transition clears prompt and reply and writes its audit record in the same statement;
// - times are milliseconds since the Unix epoch, always passed in.
import type {
  AgentId,
  EventId,
  GhostMxid,
  RoomId,
  ServerName,
  TransactionId,
  UserId,
} from "../../domain/identifiers.ts";
import type { About, Admitted, Derived, Ingress, KnownFacts } from "./admission.ts";
import type {
  ExpiryReason,
  NoticeKind,
  NoticeReason,
  SendPurpose,
  TargetTrust,
  TerminalReason,
  TerminalStage,
  TerminalState,
} from "./states.ts";

/** Proof of the right to write a delegation. A reclaimed row has a higher fence. */
export interface Lease {
  readonly delegationId: string;
  readonly holder: string;
  readonly fence: string;
}

/** A delegation in a worker's hands. */
export interface ClaimedDelegation {
  readonly lease: Lease;
  /** The state it was found in, before this claim: `dispatching` and later mean a holder was lost or let go. */
  readonly resumedFrom: "queued" | "dispatching" | "following" | "reply_pending";
  readonly roomId: RoomId;
  readonly sourceEventId: EventId;
  readonly sender: UserId;
  readonly ghost: GhostMxid;
  readonly agentId: AgentId;
  /** Digest of the target as it was at intake (card URL and pinned identity); never changes. */
  readonly targetFingerprint: string;
  /** Thread of the question, when it was asked in one. */
  readonly threadRoot: EventId | undefined;
  /**
   * The trimmed message; undefined once the agent has accepted it. Opened when read.
   * @throws DrawbridgeError `secret_unavailable` when no content key opens it
   */
  readonly prompt: string | undefined;
  /** Stable across retries and crashes: the A2A `messageId`. */
  readonly a2aMessageId: string;
  readonly a2aTaskId: string | undefined;
  readonly a2aContextId: string | undefined;
  /** True once a request to the agent was about to be made. */
  readonly a2aAttempted: boolean;
  /** Such a request may have reached the agent, and what became of it is not known. */
  readonly a2aUnsettled: boolean;
  /** Why the last try was put off. */
  readonly retryReason: TerminalReason | undefined;
  readonly attempts: number;
  readonly admittedAt: number;
  readonly acceptedAt: number | undefined;
  /** Set when the source event was redacted after admission. */
  readonly cancelRequested: boolean;
}

/** The token bucket of one target: a token for each question, spent before its first call, kept for its retries. */
export interface LimiterBucket {
  readonly key: string;
  readonly ratePerMinute: number;
  readonly burst: number;
}

/** One event of an answer, in the order it is to be sent. */
export interface ReplyPart {
  readonly eventType: string;
  readonly content: Readonly<Record<string, unknown>>;
}

/** An event that is to be sent, with the transaction ID it will always be sent under. */
export interface PendingSend {
  readonly sendId: string;
  readonly purpose: SendPurpose;
  readonly ordinal: number;
  readonly roomId: RoomId;
  readonly ghost: GhostMxid;
  readonly sourceEventId: EventId;
  readonly transactionId: TransactionId;
  readonly eventType: string;
  readonly content: Readonly<Record<string, unknown>>;
  /** When a request for it was first made; undefined when none was. */
  readonly firstAttemptedAt: number | undefined;
}

export interface Outcome {
  readonly state: TerminalState;
  readonly stage: TerminalStage;
  readonly reason: TerminalReason;
  /** The notice to the person who waits, if there is to be one. */
  readonly notice?: NoticeKind;
  /** The last part of the answer, just sent: recorded in the same statement that ends the delegation. */
  readonly sent?: { readonly sendId: string; readonly eventId: EventId };
}

/** What the next try of a dispatch must know of this one. */
export interface RetryNote {
  readonly reason: TerminalReason;
  /** The agent surely has nothing of it: the next try need not look first. */
  readonly undelivered: boolean;
}

export interface DelegationLedger {
  /** Claims up to `limit` delegations that may be worked on now: heads of rooms and due accepted ones. */
  claim(request: {
    holder: string;
    limit: number;
    now: number;
    leaseUntil: number;
  }): Promise<ClaimedDelegation[]>;
  /**
   * Prolongs leases. `held` are the delegation IDs still ours (the others are lost: drop their work);
   * `canceled` are those of them whose source event was redacted meanwhile.
   */
  renew(
    leases: readonly Lease[],
    leaseUntil: number,
  ): Promise<{ held: ReadonlySet<string>; canceled: ReadonlySet<string> }>;
  /**
   * Spends a limiter token and records that the agent may now be called, in one statement. A delegation
   * for which a token was spent before (resumed after a crash) spends no second one.
   */
  beginDispatch(
    lease: Lease,
    bucket: LimiterBucket,
    now: number,
  ): Promise<"begun" | "rate_limited" | "canceled">;
  /** The agent has accepted: remembers its task, lets the room's next delegation go, clears the prompt. */
  recordAccepted(
    lease: Lease,
    accepted: { taskId: string; contextId: string | undefined; agentVersion: string | undefined },
    now: number,
  ): Promise<void>;
  /**
   * The answer is here: persists its parts (sealed) with their transaction IDs; state `reply_pending`.
   * `canceled`: the question was redacted meanwhile; nothing was written, finish it as canceled.
   */
  recordReply(
    lease: Lease,
    reply: { parts: readonly ReplyPart[]; agentVersion: string | undefined },
    now: number,
  ): Promise<PendingSend[] | "canceled">;
  /** The unsent parts of a delegation in `reply_pending`, in order. */
  pendingReply(lease: Lease): Promise<PendingSend[]>;
  /** Lets go until `wakeAt`; the state stays, a head keeps holding its room. `attempts` grows by one. */
  defer(lease: Lease, wakeAt: number, note?: RetryNote): Promise<void>;
  /** Ends a delegation: clears content, frees capacity and room, writes svc.delegation.v1 and the notice. */
  finish(lease: Lease, outcome: Outcome, now: number): Promise<void>;
  /** Gives leases back unharmed, for another process to take at once (drain). */
  release(leases: readonly Lease[], now: number): Promise<void>;
}

export interface SendLedger {
  /**
   * Records that a request for this event is about to be made. Keeps the first time.
   * @throws DrawbridgeError `lease_lost` when it was sent or abandoned meanwhile
   */
  recordAttempt(sendId: string, now: number): Promise<void>;
  /** Records the event ID the homeserver gave, and clears the content. */
  recordSent(sendId: string, eventId: EventId, now: number): Promise<void>;
}

/** A notice in a worker's hands. Its text is made from `kind` and the facts here; none is stored. */
export interface ClaimedNotice {
  readonly noticeId: string;
  readonly fence: string;
  readonly kind: NoticeKind;
  readonly roomId: RoomId;
  /** The ghost that speaks. */
  readonly ghost: GhostMxid;
  readonly sourceEventId: EventId | undefined;
  readonly threadRoot: EventId | undefined;
  readonly reason: NoticeReason | undefined;
  readonly transactionId: TransactionId;
  readonly firstAttemptedAt: number | undefined;
  readonly attempts: number;
}

export interface NoticeLedger {
  claimNotices(request: { limit: number; now: number; leaseUntil: number }): Promise<ClaimedNotice[]>;
  noticeAttempted(notice: ClaimedNotice, now: number): Promise<void>;
  noticeSent(notice: ClaimedNotice, eventId: EventId, now: number): Promise<void>;
  noticeDeferred(notice: ClaimedNotice, wakeAt: number): Promise<void>;
  /** Given up: the room cannot be reached, or it is no longer worth saying. */
  noticeDropped(notice: ClaimedNotice, now: number): Promise<void>;
}

/**
 * An encrypted event that awaits its key, in a worker's hands. It holds its place in the room until it is
 * derived or has expired, whichever order that happens in.
 */
export interface ClaimedIntakeEnvelope {
  readonly event: EventId;
  readonly fence: string;
  readonly room: RoomId;
  readonly sender: UserId;
  readonly originServerTs: number;
  /** SHA-256 of the event as it came in (`NewIntakeEnvelope.fingerprint`). */
  readonly fingerprint: Buffer;
  readonly ingress: Ingress;
  /** Tries so far. */
  readonly attempts: number;
  /** Key requests made so far. */
  readonly keyRequests: number;
  readonly admittedAt: number;
  readonly deadline: number;
}

/** What an intake envelope is derived with: as an admission, once its plaintext is here. */
export interface Derivation {
  readonly about: About;
  /** Of the intake envelope's event alone; its `envelopes` must be empty. */
  readonly derive: (known: KnownFacts) => Derived;
  readonly capacity: { readonly room: number; readonly global: number };
  readonly noticeIntervalMs: number;
}

export interface IntakeEnvelopeCounts {
  readonly awaiting: number;
  /** When the oldest of them came in; undefined when there is none. */
  readonly oldestAdmittedAt: number | undefined;
}

/**
 * Intake intake envelopes after intake. What a holder writes is fenced; when the intake envelope is another's by now, or has ended,
 * it rejects with DrawbridgeError `lease_lost` and nothing was written.
 */
export interface IntakeEnvelopeLedger {
  claimEnvelopes(request: {
    limit: number;
    now: number;
    leaseUntil: number;
  }): Promise<ClaimedIntakeEnvelope[]>;
  /**
   * Its delegations take its place in the room, the first one its capacity slot; others beyond capacity, and
   * all of a replayed event, are denied rows. Without delegations place and slot are given up.
   */
  deriveEnvelope(envelope: ClaimedIntakeEnvelope, derivation: Derivation, now: number): Promise<Admitted>;
  /**
   * Ends it without delegations: writes svc.encrypted_intake.v1, gives up place and slot. When keys were
   * missing, or its device was not trusted, the room is told, bounded.
   */
  expireEnvelope(envelope: ClaimedIntakeEnvelope, reason: ExpiryReason, now: number): Promise<void>;
  /**
   * Lets go until `wakeAt`, its deadline, or the time it was woken meanwhile, whichever comes first.
   * `prolonged`: its deadline has passed and does not count any more.
   */
  deferEnvelope(
    envelope: ClaimedIntakeEnvelope,
    wakeAt: number,
    done: { readonly requested: boolean; readonly prolonged?: boolean },
  ): Promise<void>;
  /** Keys came for these rooms: their intake envelopes are due now. Returns how many there are. */
  wakeEnvelopes(rooms: readonly RoomId[], now: number): Promise<number>;
  /** Ghosts that are joined; a room of which nothing is known is missing from the map. */
  joinedGhosts(rooms: readonly RoomId[]): Promise<ReadonlyMap<RoomId, readonly GhostMxid[]>>;
  envelopeCounts(): Promise<IntakeEnvelopeCounts>;
}

/** Something a ghost must do about a room it was invited to or sits in. */
export interface ClaimedMembership {
  readonly roomId: RoomId;
  readonly ghost: GhostMxid;
  readonly fence: string;
  /** `answer_invite`: decide by policy; `settle`: joined, room state not read yet; `leave`: nobody to serve. */
  readonly task: "answer_invite" | "settle" | "leave";
  readonly inviter: UserId | undefined;
  readonly attempts: number;
}

/** What a ghost reads of a room after it joined. */
export interface RoomFacts {
  readonly encrypted: boolean;
  /** Joined members, ghosts included. */
  readonly members: readonly UserId[];
}

export interface MembershipLedger {
  claimMemberships(request: { limit: number; now: number; leaseUntil: number }): Promise<ClaimedMembership[]>;
  /** The ghost has joined: next it settles. */
  membershipJoined(membership: ClaimedMembership, now: number): Promise<void>;
  /** Room state was read; the marker of the encrypted-room notice is claimed here if the room is encrypted. */
  membershipSettled(membership: ClaimedMembership, facts: RoomFacts, now: number): Promise<void>;
  /** The ghost has left, or refused the invitation. */
  membershipLeft(membership: ClaimedMembership, now: number): Promise<void>;
  membershipDeferred(membership: ClaimedMembership, wakeAt: number): Promise<void>;
  /** Has a ghost ask again who is in these rooms, or in all of its own, because not all was told. */
  catchupRoomState(ghost: GhostMxid, rooms: readonly RoomId[] | undefined, now: number): Promise<void>;
}

/** A ghost's managed device. The device ID is made once and never changes. */
export interface GhostDevice {
  readonly ghost: GhostMxid;
  readonly deviceId: string;
  /** Digest of the profile last set on the homeserver; undefined when none was. */
  readonly profileDigest: string | undefined;
}

export interface GhostLedger {
  /** Returns the ghost's device, storing `freshDeviceId` as its own if it has none yet. */
  ghostDevice(ghost: GhostMxid, freshDeviceId: string, now: number): Promise<GhostDevice>;
  profileSet(ghost: GhostMxid, profileDigest: string, now: number): Promise<void>;
}

/** How far each ghost, once it has a device, has read back what transactions may have lost. */
export interface ReadPositionLedger {
  /** How far the ghost's to-device messages were read back; undefined: from the beginning. */
  toDevicePosition(ghost: GhostMxid): Promise<string | undefined>;
  /**
   * To be moved only when what lies before it is durable; null forgets it.
   * @param from where it was read
   * @throws DrawbridgeError `lease_lost` when another has moved it since
   */
  setToDevicePosition(ghost: GhostMxid, since: string | null, from: string | undefined): Promise<void>;
  /** How far the ghost's rooms were read back; undefined: not yet at all. */
  roomsPosition(ghost: GhostMxid): Promise<string | undefined>;
  /** As `setToDevicePosition`. */
  setRoomsPosition(ghost: GhostMxid, since: string | null, from: string | undefined): Promise<void>;
}

/** The trust decision on a target's card, as last recorded. */
export interface TargetRecord {
  readonly ghost: GhostMxid;
  readonly trust: TargetTrust;
  /** The pinned target this decision is about (see `targetFingerprint`). */
  readonly targetFingerprint: string;
  readonly cardDigest: string | undefined;
  readonly agentVersion: string | undefined;
  readonly checkedAt: number;
}

export interface TargetLedger {
  target(ghost: GhostMxid): Promise<TargetRecord | undefined>;
  /** All targets that were ever recorded. */
  targets(): Promise<readonly (TargetRecord & { readonly agentId: AgentId })[]>;
  /**
   * Records a decision. Writes one agent-card audit record, in the same statement, when trust or
   * fingerprint or card digest differ from what was recorded; returns whether it did.
   */
  recordTarget(
    record: TargetRecord & {
      readonly agentId: AgentId;
      readonly keyId: string | undefined;
      readonly origin: ServerName | undefined;
    },
  ): Promise<boolean>;
}
