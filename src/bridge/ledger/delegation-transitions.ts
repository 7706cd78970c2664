// The transitions of a claimed delegation. Each is one statement, fenced in its WHERE, and asserts its row.
// Invariants: whatever a transition implies (the room's next turn, freed capacity, cleared content, audit record,
// notice) is written in the same statement; a terminal transition clears prompt and reply, and the names that the agent
// gave to its task and its question, because it could write anything into them.
import type { Pool } from "pg";
import type { EventId, GhostMxid, RoomId } from "../../domain/identifiers.ts";
import { Batches } from "../../runtime/concurrency.ts";
import { HELD, heldBy, type Lease, nameOf } from "./leases.ts";
import { CANCEL_NOTICES, noticeBound } from "./notices.ts";
import { columnsOf, leaseLost, type Queryable, statement, toTime } from "./postgres.ts";
import { advanceRoom } from "./room-order.ts";
import type { CancelReason, NoticeKind, TerminalReason, TerminalStage, TerminalState } from "./states.ts";

/** Whose tokens are used up: the agent's, the sender's, or those of the users of the sender's server. */
export type LimiterRefusal = "rate_limited" | "sender_rate_limited" | "server_rate_limited";

/**
 * A token bucket of an agent, a sender or a server. What is handed over, a question or the answer to one of the agent,
 * spends one token of each before its first call, or none; its retries spend none.
 */
export interface LimiterBucket {
  readonly key: string;
  readonly ratePerMinute: number;
  readonly burst: number;
  readonly refusal?: LimiterRefusal;
}

export interface DelegationOutcome {
  readonly state: TerminalState;
  readonly stage: TerminalStage;
  readonly reason: TerminalReason;
  readonly notice?: NoticeKind;
  /** The last part of the answer, just sent: recorded in the statement that ends the delegation. */
  readonly sent?: { readonly sendId: string; readonly eventId: EventId };
}

// Several at once: a bucket is one row, and who spends from it holds it until it has committed.
const BEGIN_DISPATCHES = statement<{
  outcome: "begun" | "canceled" | "lost" | "refused";
  bucket: string | undefined;
}>("begin_dispatches")`
  SELECT outcome, empty_bucket AS bucket FROM bridge_begin_dispatches($1, $2, $3, $4, $5, $6, $7, $8)`;

interface Dispatch {
  readonly lease: Lease;
  readonly buckets: readonly LimiterBucket[];
  readonly now: number;
}

type DispatchOutcome = "begun" | "canceled" | "lost" | LimiterRefusal;

async function beginDispatches(pool: Pool, dispatches: readonly Dispatch[]): Promise<DispatchOutcome[]> {
  const wanted = dispatches.flatMap(({ buckets }, index) =>
    buckets.map((bucket) => ({ ...bucket, place: index + 1 })),
  );
  const leases = dispatches.map(({ lease }) => lease);
  const found = await BEGIN_DISPATCHES.rows(pool, [
    ...columnsOf(leases, "delegationId", "holder", "fence"),
    ...columnsOf(wanted, "place", "key", "ratePerMinute", "burst"),
    toTime(Math.max(...dispatches.map(({ now }) => now))),
  ]);
  return found.map(({ outcome, bucket }) =>
    outcome === "refused" ? (wanted.find(({ key }) => key === bucket)?.refusal ?? "rate_limited") : outcome,
  );
}

const RECORD_ACCEPTED = statement("record_accepted")`
  WITH moved AS (
    UPDATE bridge_delegations d SET
      state = 'following', accepted_at = $4, waiting_since = $4, due_at = d.lease_until, prompt = NULL,
      a2a_task_id = $5, a2a_context_id = COALESCE($6, d.a2a_context_id), agent_version = $7, attempts = 0
    WHERE ${HELD} AND d.state = 'dispatching'
    RETURNING d.room_id, d.room_seq, d.room_ordinal, d.room_siblings
  ), advanced AS (${advanceRoom("$4", 0)})
  SELECT 1 FROM moved`;

const SOURCE_OF = statement<{ event: EventId; ghost: GhostMxid; room: RoomId; cancelReason?: CancelReason }>(
  "source_of",
)`
  SELECT d.matrix_event_id AS event, d.ghost_mxid AS ghost, d.room_id AS room, d.cancel_reason AS "cancelReason"
  FROM bridge_delegations d WHERE ${HELD}`;

export const sourceOf = (on: Queryable, lease: Lease) => SOURCE_OF.held(on, heldBy(lease), nameOf(lease));

// That an operator has canceled one question says nothing about an agent whose card is not trusted, though both are told alike.
const FINISH = statement<{ reason: TerminalReason }>("finish")`
  WITH last_send AS (
    SELECT $8::bigint AS id, $9::text AS event_id
  ), moved AS (
    UPDATE bridge_delegations d SET
      state = $5, terminal_stage = $6, terminal_at = $4,
      terminal_reason = CASE WHEN $5 = 'canceled' THEN COALESCE(d.cancel_reason, $7) ELSE $7 END,
      prompt = NULL, options = NULL, question_key = NULL, a2a_task_id = NULL,
      lease_holder = NULL, lease_until = NULL, due_at = NULL,
      reply_event_id = (
        SELECT COALESCE(s.event_id, l.event_id) FROM bridge_sends s LEFT JOIN last_send l ON l.id = s.id
        WHERE s.delegation_id = d.id AND s.purpose = 'reply' AND s.ordinal = 0)
    WHERE ${HELD}
    RETURNING d.*
  ), advanced AS (${advanceRoom("$4", 1)}
  ), cleared AS (
    UPDATE bridge_sends s SET
      content = NULL,
      event_id = CASE WHEN s.id = l.id THEN l.event_id END,
      state = CASE WHEN s.id = l.id THEN 'sent' ELSE 'abandoned' END
    FROM moved m, last_send l
    WHERE s.delegation_id = m.id AND s.state = 'pending'
  ), audited AS (
    INSERT INTO bridge_audit (schema, record, created_at)
    SELECT 'svc.delegation.v1', bridge_delegation_audit(m.*::bridge_delegations), $4 FROM moved m
  ), noticed AS (
    INSERT INTO bridge_notices
      (marker, kind, room_id, ghost_mxid, source_event_id, thread_root, reason, transaction_id, created_at, due_at)
    SELECT $10, $11, m.room_id, m.ghost_mxid, m.matrix_event_id, m.thread_root, m.terminal_reason, $12, $4, $4 FROM moved m
    WHERE $11::text IS NOT NULL AND NOT EXISTS (
      SELECT FROM bridge_notices n
      WHERE $13::timestamptz IS NOT NULL AND n.room_id = m.room_id AND n.kind = $11
        AND n.ghost_mxid = m.ghost_mxid AND n.created_at > $13 AND n.reason IS DISTINCT FROM 'operator_canceled')
    ON CONFLICT DO NOTHING
  )
  SELECT terminal_reason AS reason FROM moved`;

export function createTransitions(pool: Pool, noticeIntervalMs: number) {
  const dispatches = new Batches((batch: readonly Dispatch[]) => beginDispatches(pool, batch));
  const intents = new Map<string, Promise<DispatchOutcome>>();
  return {
    /** The outcome of an intent to call that is being recorded under this lease. */
    intentOf: (lease: Lease) => intents.get(lease.delegationId),

    /** Spends limiter tokens, unless it has before, and records that the agent may now be called, in one statement. */
    async beginDispatch(
      lease: Lease,
      bucket: LimiterBucket,
      now: number,
      further: readonly LimiterBucket[] = [],
    ): Promise<Exclude<DispatchOutcome, "lost">> {
      const intent = dispatches.run({ lease, buckets: [bucket, ...further], now });
      intents.set(lease.delegationId, intent);
      const outcome = await intent.finally(() => intents.delete(lease.delegationId));
      if (outcome === "lost") throw leaseLost(nameOf(lease));
      return outcome;
    },

    async recordAccepted(
      lease: Lease,
      accepted: { taskId: string; contextId: string | undefined; agentVersion: string | undefined },
      now: number,
    ): Promise<void> {
      const { taskId, contextId, agentVersion } = accepted;
      const values = [...heldBy(lease), toTime(now), taskId, contextId, agentVersion];
      await RECORD_ACCEPTED.held(pool, values, nameOf(lease));
    },

    /** @returns the recorded reason: of a canceled delegation, that of its cancellation */
    async finish(lease: Lease, outcome: DelegationOutcome, now: number): Promise<TerminalReason> {
      let notice: readonly (string | Date | null)[] = [null, null, null, null];
      if (outcome.notice !== undefined || outcome.state === "canceled") {
        const source = await sourceOf(pool, lease);
        const { cancelReason = "source_redacted" } = source;
        const kind = outcome.state === "canceled" ? CANCEL_NOTICES[cancelReason] : outcome.notice;
        if (kind !== undefined) {
          const facts = { kind, ...source, source: source.event };
          const bound = noticeBound(facts, outcome.stage, now, noticeIntervalMs);
          notice = [bound.marker, kind, bound.transactionId, bound.since];
        }
      }
      const { state, stage, reason, sent } = outcome;
      const ended = [toTime(now), state, stage, reason, sent?.sendId, sent?.eventId];
      const values = [...heldBy(lease), ...ended, ...notice];
      return (await FINISH.held(pool, values, nameOf(lease))).reason;
    },
  };
}
