// Leases on delegations: claimed, renewed, released.
// Invariants: a claim raises the fence, so that the WHERE of every earlier holder's write matches no row; the indexes it reads
// hold heads of rooms, and what rooms are past, only; a head that ended while it waited is stepped over; one whose next try
// comes after `limits.roomGate`, or that nobody could claim for so long, gives the turn to its room's next delegation, and has
// a due time of its own from then on.
import type { Pool } from "pg";
import type { AgentId, EventId, GhostMxid, RoomId, UserId } from "../../domain/identifiers.ts";
import { allEnded, Batches } from "../../runtime/concurrency.ts";
import { type Share, Shares } from "./claim-shares.ts";
import type { ContentKeys } from "./content-keys.ts";
import {
  type ClaimRequest,
  canServe,
  columnsOf,
  leaseLost,
  notFlushed,
  statement,
  toTime,
} from "./postgres.ts";
import { a2aMessageId, openPrompt, type Prompt } from "./prompts.ts";
import { advanceRoom, lockedRooms } from "./room-order.ts";
import type { OpenState, TerminalReason } from "./states.ts";

/** Part of an agent's share that a process keeps for encrypted rooms of its ghosts, in which no other process can answer. */
const KEPT = 1 / 4;

/** So long after a call that was not answered the agent may still be storing its task. */
export const UNANSWERED_MS = 2_000;

/** What `a2a_storing_until` of delegation `d` becomes when somebody else takes it over from `from` on. */
export const storingFrom = (from: string) =>
  `CASE WHEN d.state = 'dispatching' AND d.a2a_unsettled THEN ${from} + interval '${UNANSWERED_MS} milliseconds'
    ELSE d.a2a_storing_until END`;

/** The right to write a delegation. A delegation that was claimed again has a higher fence. */
export interface Lease {
  readonly delegationId: string;
  readonly holder: string;
  readonly fence: string;
}

/**
 * The condition under which a lease entitles its holder to write delegation `d`; its values are `heldBy(lease)`. A delegation
 * that has ended has no lease. With the predicate of an index besides, a statement that is planned while few delegations are
 * in that index reads all of them from then on.
 */
export const HELD = "d.id = $1 AND d.lease_holder = $2 AND d.fence = $3";

export const heldBy = (lease: Lease) => [lease.delegationId, lease.holder, lease.fence] as const;

export const nameOf = (lease: Lease): string => `delegation ${lease.delegationId}`;

export interface ClaimedDelegation {
  readonly lease: Lease;
  /** The delegation's state before this claim; from `dispatching` on, an earlier holder lost or released its lease. */
  readonly resumedFrom: OpenState;
  readonly roomId: RoomId;
  readonly sourceEventId: EventId;
  readonly sender: UserId;
  readonly ghost: GhostMxid;
  readonly agentId: AgentId;
  /** Digest of the target at intake (card URL and pinned identity); it never changes. */
  readonly targetFingerprint: string;
  readonly threadRoot: EventId | undefined;
  /** The event that is handed over: the question, or the answer to one of the agent. */
  readonly saidIn: EventId;
  /** Undefined once the agent has accepted it. @throws DrawbridgeError `secret_unavailable` when no key decrypts it */
  readonly prompt: Prompt | undefined;
  /** The A2A `messageId` of what is handed over; the same after retries and crashes. */
  readonly a2aMessageId: string;
  readonly asked: number;
  readonly questionKey: string | undefined;
  readonly inputUntil: number | undefined;
  readonly traceparent: string;
  readonly a2aTaskId: string | undefined;
  readonly a2aContextId: string | undefined;
  readonly a2aAttempted: boolean;
  /** A request may have reached the agent, and its outcome is unknown. */
  readonly a2aUnsettled: boolean;
  /** Until then the agent may still be storing the task of that request. */
  readonly storingUntil: number | undefined;
  readonly retryReason: TerminalReason | undefined;
  readonly attempts: number;
  readonly streamsOpened: number;
  /** Polls in a row in which its agent broke the rules of A2A. */
  readonly faults: number;
  readonly admittedAt: number;
  /** When it was first claimed to hand over its prompt. */
  readonly triedAt: number;
  readonly acceptedAt: number | undefined;
  readonly replyAt: number | undefined;
  readonly cancelRequested: boolean;
}

export interface DeferNote {
  readonly reason?: TerminalReason;
  /** The agent received nothing of this try, so the next one need not search for a task first. */
  readonly undelivered?: boolean;
  readonly followed?: {
    readonly hasProgressed: boolean;
    readonly streamsOpened: number;
    readonly faults: number;
  };
}

export type DelegationRow = Omit<ClaimedDelegation, "lease" | "prompt" | "saidIn" | "a2aMessageId"> & {
  readonly id: string;
  readonly fence: string;
  readonly sealedPrompt: Buffer | undefined;
  readonly answerEventId: EventId | undefined;
};

/** Of delegation `d`, as {@link toClaimed} takes them, apart from `resumedFrom`. */
export const CLAIMED_COLUMNS = `d.id, d.fence, d.room_id AS "roomId", d.matrix_event_id AS "sourceEventId", d.sender_mxid AS sender,
  d.ghost_mxid AS ghost, d.agent_id AS "agentId", d.target_fingerprint AS "targetFingerprint",
  d.thread_root AS "threadRoot", d.prompt AS "sealedPrompt", d.answer_event_id AS "answerEventId", d.asked,
  d.question_key AS "questionKey", d.input_until AS "inputUntil", d.a2a_task_id AS "a2aTaskId",
  d.a2a_context_id AS "a2aContextId", d.a2a_attempted AS "a2aAttempted", d.a2a_unsettled AS "a2aUnsettled",
  d.a2a_storing_until AS "storingUntil",
  d.traceparent, d.retry_reason AS "retryReason", d.attempts, d.streams_opened AS "streamsOpened", d.faults,
  d.admitted_at AS "admittedAt", d.tried_at AS "triedAt",
  d.accepted_at AS "acceptedAt", d.reply_at AS "replyAt",
  d.cancel_requested_at IS NOT NULL AS "cancelRequested"`;

// No room is found by an expression, so that rooms are read first, and of each its head: planned while the tables are
// empty, the statement would else read every delegation there is.
// A claim is not flushed: when the server ends, the delegation is claimed again.
const CLAIM_HEADS = statement<HeadRow>("claim_heads")`
  WITH heads AS MATERIALIZED (
    SELECT d.id, d.state, d.room_id, d.room_seq, d.room_ordinal, d.room_siblings
    FROM bridge_rooms r
    JOIN bridge_delegations d
      ON d.room_id = r.room_id || '' AND d.room_seq = r.head_seq AND d.room_ordinal = r.head_ordinal
    WHERE r.head_at <= $3 AND (d.lease_until IS NULL OR d.lease_until <= $3)
      AND (d.terminal_at IS NOT NULL OR ($5::text[] IS NULL OR NOT r.encrypted OR d.ghost_mxid = ANY ($5))
        AND d.agent_id <> ALL (CASE WHEN r.encrypted THEN $6::text[] ELSE $7::text[] END))
    ORDER BY r.head_at
    LIMIT $2
    FOR UPDATE OF r, d SKIP LOCKED
  ), leased AS (
    UPDATE bridge_rooms r SET head_at = $4
    FROM heads h WHERE r.room_id = h.room_id AND h.state IN ('queued', 'dispatching')
  ), moved AS (
    SELECT room_id, room_seq, room_ordinal, room_siblings FROM heads WHERE state NOT IN ('queued', 'dispatching')
  ), stepped_over AS (${advanceRoom("$3", 0)}
    RETURNING 1
  ), claimed AS (
    UPDATE bridge_delegations d SET
      state = 'dispatching', lease_holder = $1, lease_until = $4, fence = d.fence + 1,
      tried_at = COALESCE(d.tried_at, $3)
    FROM heads h WHERE d.id = h.id AND h.state IN ('queued', 'dispatching')
    RETURNING ${CLAIMED_COLUMNS}, h.state AS "resumedFrom"
  )
  SELECT (SELECT count(*)::int FROM stepped_over) AS "steppedOver", c.*
  FROM ${notFlushed()} LEFT JOIN claimed c ON true`;

const CLAIM_DUE = statement<DelegationRow>("claim_due")`
  WITH due AS MATERIALIZED (
    SELECT id, state, prompt IS NULL AS is_accepted FROM bridge_delegations
    WHERE due_at <= $3 AND ${canServe("$5", "ghost_mxid", "room_id")} AND agent_id <> ALL ($6::text[])
    ORDER BY due_at LIMIT $2 FOR UPDATE SKIP LOCKED
  )
  UPDATE bridge_delegations d SET
    state = CASE WHEN d.state = 'queued' OR d.state = 'awaiting_input' AND NOT due.is_accepted THEN 'dispatching'
                 ELSE d.state END,
    lease_holder = $1, lease_until = $4, due_at = $4, fence = d.fence + 1, tried_at = COALESCE(d.tried_at, $3)
  FROM due, ${notFlushed()} WHERE d.id = due.id
  RETURNING ${CLAIMED_COLUMNS}, CASE WHEN due.state = 'awaiting_input' AND NOT due.is_accepted THEN 'dispatching'
    ELSE due.state END AS "resumedFrom"`;

// Sets the due time of rooms whose heads are among the delegations in the CTE `held` to the end of their leases, or of their
// wait. Their rooms, and those in which `leaves` holds, are locked.
const headsOfHeld = (leaves: string) => `${lockedRooms(`held WHERE due_at IS NULL OR ${leaves}`)}, heads AS (
    UPDATE bridge_rooms r SET head_at = h.until
    FROM locked l JOIN held h ON h.room_id = l.room_id
    WHERE h.due_at IS NULL AND r.room_id = l.room_id
      AND r.head_seq = h.room_seq AND r.head_ordinal = h.room_ordinal
  )`;

const RENEW = statement<{ id: string; canceled: boolean }>("renew")`
  WITH held AS (
    UPDATE bridge_delegations d SET
      lease_until = $4, due_at = CASE WHEN d.due_at IS NULL THEN NULL ELSE $4::timestamptz END
    FROM unnest($1::bigint[], $2::text[], $3::bigint[]) AS l (id, holder, fence)
    WHERE d.id = l.id AND d.lease_holder = l.holder AND d.fence = l.fence
    RETURNING d.id, d.room_id, d.room_seq, d.room_ordinal, d.due_at, d.cancel_requested_at, d.lease_until AS until
  ), ${headsOfHeld("false")}
  SELECT id, cancel_requested_at IS NOT NULL AS canceled FROM held`;

// What came meanwhile makes it due at once where it awaits input: a cancellation or an answer. In another state it is due
// at `until`, canceled or not. A task that has begun is not queued again.
// A head keeps holding its room until then, unless that is later than $11 milliseconds after its first try: then its room
// continues at the end of that time, and the delegation is due at `until`, as every delegation is that its room is past.
// A release is not flushed: when the server ends, the lease runs out. But that the agent surely has nothing is known to this
// process alone, and without it the question could end as one of unknown outcome.
const LEAVES = "state IN ('queued', 'dispatching') AND due_at IS NOT NULL";
const RELEASE = statement<{ id: string; fence: string }>("release")`
  WITH held AS (
    UPDATE bridge_delegations d SET
      lease_holder = NULL, lease_until = NULL,
      attempts = CASE WHEN l.progressed THEN 0 ELSE d.attempts + l.tries END,
      streams_opened = COALESCE(l.streams, d.streams_opened), faults = COALESCE(l.faults, d.faults),
      a2a_storing_until = CASE WHEN l.tries = 0 THEN ${storingFrom("l.until")} ELSE d.a2a_storing_until END,
      a2a_unsettled = d.a2a_unsettled AND NOT l.undelivered, retry_reason = COALESCE(l.reason, d.retry_reason),
      state = CASE WHEN d.state = 'dispatching' AND d.a2a_task_id IS NULL AND NOT (d.a2a_unsettled AND NOT l.undelivered)
                   THEN 'queued' ELSE d.state END,
      due_at = CASE WHEN d.state = 'awaiting_input' AND (d.prompt IS NOT NULL OR d.cancel_requested_at IS NOT NULL)
                    THEN to_timestamp(0)
                    WHEN d.due_at IS NOT NULL OR l.until > d.tried_at + $11 * interval '1 millisecond'
                    THEN l.until END
    FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::timestamptz[], $5::int[], $6::bool[], $7::text[], $8::bool[],
        $9::int[], $10::int[])
      AS l (id, holder, fence, until, tries, undelivered, reason, progressed, streams, faults), ${notFlushed("true = ANY ($6::bool[])")}
    WHERE d.id = l.id AND d.lease_holder = l.holder AND d.fence = l.fence
    RETURNING d.id, d.fence, d.state, d.room_id, d.room_seq, d.room_ordinal, d.room_siblings, d.due_at, l.until,
      d.tried_at + $11 * interval '1 millisecond' AS gate_until
  ), ${headsOfHeld(LEAVES)}, moved AS (
    SELECT h.* FROM held h JOIN locked l ON l.room_id = h.room_id WHERE ${LEAVES}
  ), advanced AS (${advanceRoom("m.gate_until", 0)}
      AND r.head_seq = m.room_seq AND r.head_ordinal = m.room_ordinal
  )
  SELECT id, fence FROM held`;

// Whoever has a slot for a head claims it at once: of these the slots of the agent are in use, or the ghost's owner claims
// nothing. A room in which nobody else is asked keeps its order. What is asked of the delegation depends on its room, so that
// rooms are read first, as above.
const PASS_HEADS = statement("pass_heads")`
  WITH held AS MATERIALIZED (
    SELECT d.id, d.room_id, d.room_seq, d.room_ordinal, d.room_siblings, r.head_at
    FROM bridge_rooms r
    JOIN bridge_delegations d
      ON d.room_id = r.room_id || '' AND d.room_seq = r.head_seq AND d.room_ordinal = r.head_ordinal
    WHERE r.head_at <= $2 AND CASE WHEN COALESCE(d.lease_until, r.head_at) <= $2
      THEN d.state IN ('queued', 'dispatching') AND EXISTS (
        SELECT FROM bridge_delegations o WHERE o.room_id = d.room_id AND o.terminal_at IS NULL
          AND (o.room_seq, o.room_ordinal) > (d.room_seq, d.room_ordinal) AND o.ghost_mxid <> d.ghost_mxid)
      END
    ORDER BY r.head_at LIMIT $1 FOR UPDATE OF r, d SKIP LOCKED
  ), due AS (
    UPDATE bridge_delegations d SET due_at = h.head_at FROM held h WHERE d.id = h.id
  ), moved AS (
    SELECT room_id, room_seq, room_ordinal, room_siblings FROM held
  )${advanceRoom("$3", 0)} RETURNING 1`;
const PASSED_MAX = 256;

export function toClaimed(row: DelegationRow, holder: string, keys: ContentKeys): ClaimedDelegation {
  const { id, fence, sealedPrompt, answerEventId, ...fields } = row;
  const { sourceEventId, ghost } = fields;
  const saidIn = answerEventId ?? sourceEventId;
  return {
    ...fields,
    lease: { delegationId: id, holder, fence },
    // Decrypted on access: a prompt that no key decrypts must not fail the whole claim.
    get prompt() {
      return sealedPrompt && openPrompt(keys, sourceEventId, ghost, sealedPrompt);
    },
    saidIn,
    a2aMessageId: a2aMessageId(saidIn, ghost),
  };
}

/** A claimed head; when no head was claimed, one row still says how many were stepped over. */
type HeadRow = (DelegationRow | { readonly id: undefined }) & { readonly steppedOver: number };

// Rows are locked in ascending order, so that two processes never deadlock.
const inOrder = <Held extends Lease>(leases: readonly Held[]): readonly Held[] =>
  leases.toSorted((a, b) => (BigInt(a.delegationId) < BigInt(b.delegationId) ? -1 : 1));

interface Release extends Lease {
  readonly until: Date;
  readonly tries: 0 | 1;
  readonly note: DeferNote;
}

function releaseValues(releases: readonly Release[], roomGateMs: number): unknown[] {
  const rows = inOrder(releases).map(({ note, ...release }) => {
    const { reason, undelivered = false, followed } = note;
    const { hasProgressed = false, streamsOpened, faults } = followed ?? {};
    return { ...release, undelivered, reason, hasProgressed, streamsOpened, faults };
  });
  const released = columnsOf(rows, "delegationId", "holder", "fence", "until", "tries");
  const noted = columnsOf(rows, "undelivered", "reason", "hasProgressed", "streamsOpened", "faults");
  return [...released, ...noted, roomGateMs];
}

export function createLeases(pool: Pool, keys: ContentKeys, roomGateMs: number) {
  let isTurnOfDue = false;
  const release = async (releases: readonly Release[]) => {
    const held = await RELEASE.rows(pool, releaseValues(releases, roomGateMs));
    const fences = new Map(held.map(({ id, fence }) => [id, fence]));
    return releases.map(({ delegationId, fence }) => fences.get(delegationId) === fence);
  };
  const deferrals = new Batches(release);
  return {
    async claim(request: ClaimRequest & { readonly holder: string; readonly share?: Share<AgentId> }) {
      const { holder, limit, share, ghosts = [] } = request;
      const kept = share === undefined || ghosts.length === 0 ? 0 : Math.floor(share.most * KEPT);
      const shares = new Shares(share && { ...share, kept });
      const times = [toTime(request.now), toTime(request.leaseUntil), request.ghosts];
      let leftOut: readonly AgentId[] = [];
      let leftOutInPlain: readonly AgentId[] = [];
      const claimed: ClaimedDelegation[] = [];
      let [mayBeDue, mayBeHeads] = [true, true];
      const take = (row: DelegationRow) => {
        shares.take(row.agentId);
        claimed.push(toClaimed(row, holder, keys));
      };
      const claimDue = async (most: number) => {
        const due = await CLAIM_DUE.rows(pool, [holder, most, ...times, leftOutInPlain]);
        due.forEach(take);
        mayBeDue = due.length === most;
      };
      const claimHeads = async (most: number) => {
        const all = await CLAIM_HEADS.rows(pool, [holder, most, ...times, leftOut, leftOutInPlain]);
        const heads = all.filter((row) => row.id !== undefined);
        heads.forEach(take);
        mayBeHeads = (all[0]?.steppedOver ?? 0) > 0 || heads.length === most;
      };
      for (;;) {
        if (!mayBeDue && !mayBeHeads) {
          if (leftOutInPlain.length === 0 || !shares.next()) break;
          [mayBeDue, mayBeHeads] = [true, true];
        }
        const free = Math.min(limit - claimed.length, shares.size);
        if (free === 0) break;
        // Both statements run at once, that of the heads first, because a new question must not wait; a single slot goes
        // to either in turn.
        if (free === 1) isTurnOfDue = !isTurnOfDue;
        const half = free > 1 ? Math.ceil(free / 2) : Number(isTurnOfDue);
        const forDue = !mayBeDue ? 0 : mayBeHeads ? half : free;
        const forHeads = free - forDue;
        leftOut = shares.full;
        leftOutInPlain = shares.fullBeforeKept;
        const claims = [
          ...(forHeads === 0 ? [] : [claimHeads(forHeads)]),
          ...(forDue === 0 ? [] : [claimDue(forDue)]),
        ];
        try {
          await allEnded(claims);
        } catch (error) {
          // What one of them has claimed is not to wait for the end of its lease.
          if (claimed.length === 0) throw error;
          break;
        }
      }
      return claimed;
    },

    /**
     * Has rooms go on in which a head that nobody has claimed for `roomGateMs`, though somebody has looked since `since`, holds up
     * another ghost's question. To be called while slots are free. Returns how many went on, at most 256.
     */
    async passHeads(since: number, now: number): Promise<number> {
      const before = now - roomGateMs;
      if (before < since) return 0;
      return (await PASS_HEADS.rows(pool, [PASSED_MAX, toTime(before), toTime(now)])).length;
    },

    /** Work on delegations that are not in `held` must be dropped; those in `canceled` are to be canceled. */
    async renew(leases: readonly Lease[], leaseUntil: number) {
      const columns = columnsOf(inOrder(leases), "delegationId", "holder", "fence");
      const held = await RENEW.rows(pool, [...columns, toTime(leaseUntil)]);
      return {
        held: new Set(held.map((row) => row.id)),
        canceled: new Set(held.filter((row) => row.canceled).map((row) => row.id)),
      };
    },

    /**
     * A head keeps holding its room unless `wakeAt` is later than `roomGateMs` after its first try.
     * @throws DrawbridgeError `lease_lost`
     */
    async defer(lease: Lease, wakeAt: number, note: DeferNote = {}): Promise<void> {
      const isHeld = await deferrals.run({ ...lease, until: toTime(wakeAt), tries: 1, note });
      if (!isHeld) throw leaseLost(nameOf(lease));
    },

    /** Releases leases for another process to claim from then on (drain). Leases that were lost meanwhile are skipped. */
    async release(leases: readonly Lease[], from: number): Promise<void> {
      await release(leases.map((lease) => ({ ...lease, until: toTime(from), tries: 0, note: {} })));
    },
  };
}
