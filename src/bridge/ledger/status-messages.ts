// The status message of a delegation that takes long: which event it is, what it says now, and what the agent said last.
// Invariants: at most one a delegation; its row goes, with what the agent said, sealed, when the message says that the
// delegation has ended; a worker's writes are fenced, but what it has shown and pinned is recorded whoever reports it.
import type { Pool } from "pg";
import type { EventId, GhostMxid, RoomId } from "../../domain/identifiers.ts";
import { Batches } from "../../runtime/concurrency.ts";
import { claimInShares, type Share } from "./claim-shares.ts";
import type { ContentKeys } from "./content-keys.ts";
import { HELD, heldBy, type Lease } from "./leases.ts";
import {
  type ClaimRequest,
  canServe,
  claimValues,
  columnsOf,
  notFlushed,
  statement,
  toTime,
} from "./postgres.ts";
import type { DelegationState, TerminalReason } from "./states.ts";
import { replyTransactionId } from "./transaction-ids.ts";

export const STATUS_AFTER_MS = 5_000;

export interface ClaimedStatus {
  readonly delegationId: string;
  readonly fence: string;
  readonly roomId: RoomId;
  readonly ghost: GhostMxid;
  readonly sourceEventId: EventId;
  readonly threadRoot: EventId | undefined;
  readonly state: DelegationState;
  /** Whether other questions of its room come first. */
  readonly isBehind: boolean;
  /** Why the agent has not taken it yet; undefined when nothing is known. */
  readonly retryReason: TerminalReason | undefined;
  readonly report: string | undefined;
  readonly eventId: EventId | undefined;
  readonly firstAttemptedAt: number | undefined;
  /** Digest of what it says now, or {@link UNKNOWN}. */
  readonly shown: string | undefined;
  readonly pinned: boolean;
  readonly attempts: number;
}

/** In the place of a digest: what the message says is not known. */
export const UNKNOWN = "unknown";

const reportIdentity = (delegationId: string) => `report\n${delegationId}`;

const FIND = statement("find_statuses")`
  WITH found AS MATERIALIZED (
    SELECT id FROM bridge_delegations
    WHERE NOT has_status AND state IN ('queued', 'dispatching', 'following') AND admitted_at <= $2
    ORDER BY admitted_at LIMIT 256 FOR NO KEY UPDATE SKIP LOCKED
  ), marked AS (
    UPDATE bridge_delegations d SET has_status = true FROM found f WHERE d.id = f.id
  )
  INSERT INTO bridge_statuses (delegation_id, due_at) SELECT id, $1 FROM found
  ON CONFLICT DO NOTHING`;

// What is due is read first, and then its delegations: a join is planned from those while the tables are empty.
const CLAIM = statement<Omit<ClaimedStatus, "report"> & { readonly report?: Buffer }>("claim_statuses")`
  WITH due AS MATERIALIZED (
    SELECT delegation_id FROM bridge_statuses
    WHERE due_at <= $2
      AND (SELECT ${canServe("$5", "d.ghost_mxid", "d.room_id")} AND d.room_id <> ALL ($6::text[])
        FROM bridge_delegations d WHERE d.id = delegation_id)
    ORDER BY due_at LIMIT $1 FOR UPDATE SKIP LOCKED
  )
  UPDATE bridge_statuses s SET due_at = $3, holder = $4, fence = s.fence + 1
  FROM due, bridge_delegations d LEFT JOIN bridge_rooms r USING (room_id)
  WHERE s.delegation_id = due.delegation_id AND d.id = s.delegation_id
  RETURNING s.delegation_id AS "delegationId", s.fence, d.room_id AS "roomId", d.ghost_mxid AS ghost,
    d.matrix_event_id AS "sourceEventId", d.thread_root AS "threadRoot", d.state,
    COALESCE(d.state = 'queued' AND r.head_seq < d.room_seq, false) AS "isBehind", d.retry_reason AS "retryReason",
    s.report, s.event_id AS "eventId", s.first_attempted_at AS "firstAttemptedAt", s.shown, s.pinned,
    s.attempts`;

// Neither a report nor a deferral is flushed: the agent reports again, and a status that was claimed is due when its lease ends.
// The agent may report before the message is due.
const REPORT = statement("record_report")`
  INSERT INTO bridge_statuses (delegation_id, report, due_at)
  SELECT d.id, $4, d.admitted_at + $5 * interval '1 millisecond' FROM bridge_delegations d, ${notFlushed()} WHERE ${HELD}
  ON CONFLICT (delegation_id) DO UPDATE SET report = excluded.report`;

const OWN = "WHERE delegation_id = $1 AND fence = $2";

const ATTEMPTED = statement("status_attempted")`
  UPDATE bridge_statuses SET first_attempted_at = COALESCE(first_attempted_at, $3) ${OWN} RETURNING 1`;

// An edit needs no record of its attempt, and its fence no commit.
const STILL_HELD = statement("status_held")`SELECT 1 FROM bridge_statuses ${OWN}`;

// A late holder's message is edited anew, and unpinned at the end, by whoever has the row next. What a reply or a reaction
// to the message is about is found by the events that a delegation has sent.
const SHOWN = statement("status_shown")`
  WITH own AS (
    UPDATE bridge_statuses SET event_id = $3, shown = $4, pinned = $5, due_at = $6, holder = NULL, attempts = 0
    ${OWN} RETURNING delegation_id
  ), late AS (
    INSERT INTO bridge_statuses AS s (delegation_id, fence, event_id, shown, pinned, due_at)
    SELECT id, $2 + 1, $3, '${UNKNOWN}', $5, $6 FROM bridge_delegations WHERE id = $1 AND NOT EXISTS (SELECT FROM own)
    ON CONFLICT (delegation_id) DO UPDATE SET
      event_id = COALESCE(s.event_id, excluded.event_id), shown = excluded.shown, pinned = s.pinned OR excluded.pinned,
      due_at = excluded.due_at, holder = NULL, fence = s.fence + 1
    RETURNING delegation_id
  )
  INSERT INTO bridge_sends (delegation_id, purpose, ordinal, transaction_id, event_type, state, event_id)
  SELECT delegation_id, 'progress', 0, $7, 'm.room.message', 'sent', $3
  FROM (SELECT delegation_id FROM own UNION ALL SELECT delegation_id FROM late) shown
  ON CONFLICT DO NOTHING`;

const DEFERRED = statement("status_deferred")`
  UPDATE bridge_statuses s SET due_at = f.due_at, holder = NULL, attempts = attempts + f.failed
  FROM unnest($1::bigint[], $2::bigint[], $3::timestamptz[], $4::int[]) AS f (id, fence, due_at, failed), ${notFlushed()}
  WHERE s.delegation_id = f.id AND s.fence = f.fence`;

const ENDED = statement("status_ended")`DELETE FROM bridge_statuses ${OWN}`;

export function createStatuses(pool: Pool, keys: ContentKeys) {
  type Deferral = Pick<ClaimedStatus, "delegationId" | "fence"> & { dueAt: Date; failed: number };
  const deferrals = new Batches(async (batch: readonly Deferral[]) => {
    await DEFERRED.run(pool, columnsOf(batch, "delegationId", "fence", "dueAt", "failed"));
    return batch.map(() => undefined);
  });

  return {
    async claim(request: ClaimRequest & { readonly share?: Share<RoomId> }): Promise<ClaimedStatus[]> {
      await FIND.run(pool, [toTime(request.now), toTime(request.now - STATUS_AFTER_MS)]);
      const claimed = await claimInShares(
        request,
        (limit, full: readonly RoomId[]) => CLAIM.rows(pool, [...claimValues({ ...request, limit }), full]),
        ({ roomId }) => roomId,
      );
      // A report that no key opens is left out: it must not stop the status messages of other questions.
      return claimed.map(({ report, ...row }) => ({
        ...row,
        report: report && keys.openIfKnown(report, reportIdentity(row.delegationId)),
      }));
    },

    /** @throws DrawbridgeError `lease_lost` when another worker has claimed it */
    async recordAttempt({ delegationId, fence, eventId }: ClaimedStatus, now: number): Promise<undefined> {
      const what = `status ${delegationId}`;
      if (eventId === undefined) await ATTEMPTED.held(pool, [delegationId, fence, toTime(now)], what);
      else await STILL_HELD.held(pool, [delegationId, fence], what);
    },

    async recordShown(
      { delegationId, fence, sourceEventId, ghost }: ClaimedStatus,
      { eventId, digest, pinned }: { eventId: EventId; digest: string; pinned: boolean },
      dueAt: number,
    ): Promise<void> {
      const transactionId = replyTransactionId(sourceEventId, ghost, "progress", 0);
      const values = [delegationId, fence, eventId, digest, pinned, toTime(dueAt), transactionId];
      await SHOWN.run(pool, values);
    },

    defer: ({ delegationId, fence }: ClaimedStatus, dueAt: number, failed: boolean): Promise<void> =>
      deferrals.run({ delegationId, fence, dueAt: toTime(dueAt), failed: Number(failed) }),

    end: ({ delegationId, fence }: ClaimedStatus) => ENDED.run(pool, [delegationId, fence]),
  };
}

export function createReports(pool: Pool, keys: ContentKeys) {
  return {
    /** Keeps what the agent says about its work, for the status message; without the lease nothing is kept. */
    async recordReport(lease: Lease, text: string): Promise<void> {
      const sealed = keys.seal(text, reportIdentity(lease.delegationId));
      await REPORT.run(pool, [...heldBy(lease), sealed, STATUS_AFTER_MS]);
    },
  };
}
