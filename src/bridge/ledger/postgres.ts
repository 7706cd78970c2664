// The ledger on PostgreSQL: the interfaces of types.ts over the statements beside this file.
import type { Pool } from "pg";
import type { UserId } from "../../domain/identifiers.ts";
import type { Admission, Admitted } from "./admission.ts";
import { type AuditRow, exportAudit } from "./audit-outbox.ts";
import { claim, releaseLeases, renew } from "./claim.ts";
import { beginDispatch, finish, pendingReply, recordAccepted, recordReply } from "./delegations.ts";
import { deriveEnvelope } from "./derivation.ts";
import { ghostDevice, position, profileSet, setPosition } from "./ghosts.ts";
import { admit } from "./intake.ts";
import { expireEnvelope } from "./intake-envelope-end.ts";
import * as envelopes from "./intake-envelopes.ts";
import * as memberships from "./memberships.ts";
import * as notices from "./notices.ts";
import { prune } from "./prune.ts";
import type { ContentKeys } from "./seal.ts";
import { recordAttempt, recordSent } from "./sends.ts";
import { assertHeld } from "./statement.ts";
import { recordTarget, target, targets } from "./targets.ts";
import type {
  DelegationLedger,
  GhostLedger,
  IntakeEnvelopeLedger,
  MembershipLedger,
  NoticeLedger,
  ReadPositionLedger,
  SendLedger,
  TargetLedger,
} from "./types.ts";

export interface IntakeLedger {
  /** Commits one transaction of the homeserver; see `Admission`. Safe to repeat. */
  admit(admission: Admission): Promise<Admitted>;
}

export interface AuditOutbox {
  /** Hands unexported records to `write`, which makes them durable elsewhere; returns how many. */
  exportAudit(
    limit: number,
    write: (records: readonly AuditRow[]) => Promise<void>,
    now: number,
  ): Promise<number>;
}

export interface Housekeeping {
  /** Forgets transactions and malformed events received before `before`; delegations and audit stay. */
  prune(before: number): Promise<void>;
}

export type Ledger = DelegationLedger &
  Housekeeping &
  SendLedger &
  NoticeLedger &
  MembershipLedger &
  GhostLedger &
  ReadPositionLedger &
  IntakeEnvelopeLedger &
  TargetLedger &
  IntakeLedger &
  AuditOutbox;

export interface LedgerOptions {
  /** The same notice is not repeated in a room within this time. */
  readonly noticeIntervalMs: number;
  /** Whether ghosts take part in encrypted rooms. `refuse` by default. */
  readonly encryptionMode?: memberships.EncryptionMode | undefined;
  /** Tells ghosts, and the appservice's own user, from people. */
  readonly isGhost: (user: UserId) => boolean;
}

export function createLedger(pool: Pool, keys: ContentKeys, options: LedgerOptions): Ledger {
  const encryptionMode = options.encryptionMode ?? "refuse";
  return {
    admit: (admission) => admit(pool, keys, encryptionMode, admission),

    claim: (request) => claim(pool, keys, request),
    renew: (leases, leaseUntil) => renew(pool, leases, leaseUntil),
    beginDispatch: (lease, bucket, now) => beginDispatch(pool, lease, bucket, now),
    recordAccepted: (lease, accepted, now) => recordAccepted(pool, lease, accepted, now),
    recordReply: (lease, reply, now) => recordReply(pool, keys, lease, reply, now),
    pendingReply: (lease) => pendingReply(pool, keys, lease),
    defer: async (lease, wakeAt, note) =>
      assertHeld(await releaseLeases(pool, [lease], wakeAt, 1, note), lease),
    finish: (lease, outcome, now) => finish(pool, lease, outcome, now, options.noticeIntervalMs),
    // Leases lost meanwhile are another's already; there is nothing to give back.
    release: async (leases, now) => {
      await releaseLeases(pool, leases, now, 0);
    },

    recordAttempt: (sendId, now) => recordAttempt(pool, sendId, now),
    recordSent: (sendId, eventId) => recordSent(pool, sendId, eventId),

    claimNotices: (request) => notices.claimNotices(pool, request),
    noticeAttempted: (notice, now) => notices.noticeAttempted(pool, notice, now),
    noticeSent: (notice, eventId) => notices.noticeSent(pool, notice, eventId),
    noticeDeferred: (notice, wakeAt) => notices.noticeDeferred(pool, notice, wakeAt),
    noticeDropped: (notice) => notices.noticeDropped(pool, notice),

    claimEnvelopes: (request) => envelopes.claimEnvelopes(pool, request),
    deriveEnvelope: (envelope, derivation, now) => deriveEnvelope(pool, keys, envelope, derivation, now),
    expireEnvelope: (envelope, reason, now) =>
      expireEnvelope(pool, envelope, reason, now, options.noticeIntervalMs),
    deferEnvelope: (envelope, wakeAt, done) => envelopes.deferEnvelope(pool, envelope, wakeAt, done),
    wakeEnvelopes: (rooms, now) => envelopes.wakeEnvelopes(pool, rooms, now),
    envelopeCounts: () => envelopes.envelopeCounts(pool),
    joinedGhosts: (rooms) => memberships.joinedGhosts(pool, rooms),

    claimMemberships: (request) => memberships.claimMemberships(pool, request),
    membershipJoined: (membership, now) => memberships.membershipJoined(pool, membership, now),
    membershipSettled: (membership, facts, now) =>
      memberships.membershipSettled(pool, membership, facts, options.isGhost, now, encryptionMode),
    membershipLeft: (membership) => memberships.membershipLeft(pool, membership),
    membershipDeferred: (membership, wakeAt) => memberships.membershipDeferred(pool, membership, wakeAt),

    catchupRoomState: (ghost, inRooms, now) => memberships.catchupRoomState(pool, ghost, inRooms, now),
    ghostDevice: (ghost, freshDeviceId, now) => ghostDevice(pool, ghost, freshDeviceId, now),
    profileSet: (ghost, profileDigest) => profileSet(pool, ghost, profileDigest),
    toDevicePosition: (ghost) => position(pool, "toDevice", ghost),
    setToDevicePosition: (ghost, since, from) => setPosition(pool, "toDevice", ghost, since, from),
    roomsPosition: (ghost) => position(pool, "rooms", ghost),
    setRoomsPosition: (ghost, since, from) => setPosition(pool, "rooms", ghost, since, from),

    target: (ghost) => target(pool, ghost),
    targets: () => targets(pool),
    recordTarget: (record) => recordTarget(pool, record),

    prune: (before) => prune(pool, before),
    exportAudit: (limit, write, now) => exportAudit(pool, limit, write, now),
  };
}
