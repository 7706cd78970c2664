// Questions from agents, and the answers of the people who asked them.
// Invariants: a question is stored with its transaction IDs before it is sent; its answer is recorded, sealed and once, in
// the transaction that handles its event, and cleared when the agent has it or the delegation ends; a wait never ends over
// an answer that was recorded or may have come unread before its end, and whoever answers later is told so.
import type { Pool } from "pg";
import type { EventId, GhostMxid } from "../../domain/identifiers.ts";
import type { NewAnswer, NewNotice, Posted, QuestionOption } from "./admission-types.ts";
import type { ContentKeys } from "./content-keys.ts";
import { type ClaimedDelegation, HELD, heldBy, type Lease, nameOf } from "./leases.ts";
import { columnsOf, type Queryable, statement, toTime } from "./postgres.ts";
import { sealPrompt } from "./prompts.ts";
import { type Said, storing } from "./replies.ts";

export interface AgentQuestion extends Said {
  readonly options: readonly QuestionOption[];
  readonly key: string | undefined;
  readonly taskId: string;
  readonly asked: number;
  readonly until: number;
}

const storeQuestion = storing(
  "record_question",
  "question",
  "d.state IN ('dispatching', 'following') AND d.asked = $8",
  `state = 'awaiting_input', a2a_unsettled = false, a2a_task_id = $11, question_key = $12, options = $13, input_until = $14,
      asked = $8 + cardinality($5::text[]), question_from = $8, streams_opened = 0, faults = 0, retry_reason = NULL`,
);

// An expression matches the predicate of no index: with that, all open questions would be read.
const HELD_ASKING = `${HELD} AND d.state || '' = 'awaiting_input'`;

const RECORD_ASKED = statement("record_asked")`
  WITH sent AS (
    UPDATE bridge_sends SET state = 'sent', event_id = $5, content = NULL WHERE id = $4 AND state = 'pending'
  )
  UPDATE bridge_delegations d SET input_until = $6, waiting_since = $7 WHERE ${HELD_ASKING} RETURNING 1`;

// Whoever holds the delegation sees the answer when it gives the lease back.
const RECORD_ANSWERS = statement<{ id: string }>("record_answers")`
  WITH open AS MATERIALIZED (
    SELECT id FROM bridge_delegations WHERE id = ANY ($1::bigint[]) ORDER BY id FOR UPDATE
  )
  UPDATE bridge_delegations d SET
    prompt = a.prompt, answer_event_id = a.event, options = NULL, tried_at = NULL, limiter_spent = false, attempts = 0,
    waiting_since = $4,
    due_at = CASE WHEN d.lease_holder IS NULL THEN $4::timestamptz ELSE d.due_at END
  FROM open JOIN unnest($1::bigint[], $2::text[], $3::bytea[]) AS a (id, event, prompt) ON a.id = open.id
  WHERE d.id = open.id AND d.state = 'awaiting_input' AND d.prompt IS NULL AND d.cancel_requested_at IS NULL
    AND d.input_until IS NOT NULL
  RETURNING d.id`;

// An encrypted event of the person who asked may be the answer, if it came before the wait was over ($4): its own wait for a
// key ends by itself.
const END_WAIT = statement<{ ended: boolean }>("end_wait")`
  WITH held AS MATERIALIZED (
    SELECT d.id, d.prompt IS NULL AND NOT EXISTS (
        SELECT FROM bridge_encrypted_intake e
        WHERE e.room_id = d.room_id AND e.sender_mxid = d.sender_mxid AND e.state = 'awaiting_key'
          AND e.admitted_at <= $4) AS unanswered
    FROM bridge_delegations d WHERE ${HELD_ASKING} FOR UPDATE
  ), ended AS (
    UPDATE bridge_delegations d SET input_until = NULL FROM held h WHERE d.id = h.id AND h.unanswered
  )
  SELECT unanswered AS ended FROM held`;

// The bridge gets its own events too, in the order of the room: so the question's event ID is known before its answer.
const RECORD_POSTED = statement("record_posted")`
  WITH posted AS MATERIALIZED (
    SELECT s.id, p.event
    FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS p (transaction, event, room, ghost)
    JOIN bridge_sends s ON s.transaction_id = p.transaction AND s.state = 'pending'
    JOIN bridge_delegations d ON d.id = s.delegation_id AND d.room_id = p.room AND d.ghost_mxid = p.ghost
    WHERE s.first_attempted_at IS NOT NULL ORDER BY d.id FOR UPDATE OF d
  )
  UPDATE bridge_sends s SET state = 'sent', event_id = p.event, content = NULL
  FROM posted p WHERE s.id = p.id AND s.state = 'pending'`;

const optionsIdentity = (event: EventId, ghost: GhostMxid) => `options\n${event}\n${ghost}`;

/** The options of an open question, as they are stored; none if no key opens them, which must not stop the intake. */
export function openOptions(
  keys: ContentKeys,
  { event, ghost }: { readonly event: EventId; readonly ghost: GhostMxid },
  sealed: Buffer,
): readonly QuestionOption[] {
  return JSON.parse(keys.openIfKnown(sealed, optionsIdentity(event, ghost)) ?? "[]") as QuestionOption[];
}

export function answerRefused(
  answered: Pick<NewAnswer, "room" | "source" | "ghost" | "threadRoot">,
  event: EventId,
): NewNotice {
  const { room, source, ghost, threadRoot } = answered;
  return { kind: "answer_refused", room, ghost, source, threadRoot, reason: "already_ended", event };
}

/** Records the answers of a transaction. Returns the notices about those that came too late. */
export async function recordAnswers(
  on: Queryable,
  keys: ContentKeys,
  answers: readonly NewAnswer[],
  now: number,
): Promise<NewNotice[]> {
  if (answers.length === 0) return [];
  const recorded = await RECORD_ANSWERS.rows(on, [
    ...columnsOf(answers, "delegation", "event"),
    answers.map(({ source, ghost, ...prompt }) => sealPrompt(keys, source, ghost, prompt)),
    toTime(now),
  ]);
  const ids = new Set(recorded.map(({ id }) => id));
  return answers.flatMap((one) => (ids.has(one.delegation) ? [] : answerRefused(one, one.event)));
}

export async function recordPosted(on: Queryable, posted: readonly Posted[]): Promise<void> {
  if (posted.length === 0) return;
  await RECORD_POSTED.run(on, columnsOf(posted, "transaction", "event", "room", "ghost"));
}

export function createQuestions(pool: Pool, keys: ContentKeys) {
  return {
    recordQuestion(claimed: ClaimedDelegation, question: AgentQuestion, now: number) {
      const { options, taskId, key = null, until, asked: first } = question;
      const identity = optionsIdentity(claimed.sourceEventId, claimed.ghost);
      const sealed = options.length === 0 ? null : keys.seal(JSON.stringify(options), identity);
      const further = [taskId, key, sealed, toTime(until)];
      return storeQuestion(pool, keys, claimed, question, now, first, further);
    },

    /** Records that an event of a question was sent, and until when an answer is waited for. */
    async recordAsked(
      lease: Lease,
      sendId: string,
      eventId: EventId,
      { now, until }: { readonly now: number; readonly until: number },
    ): Promise<void> {
      const times = [toTime(until), toTime(now)];
      await RECORD_ASKED.held(pool, [...heldBy(lease), sendId, eventId, ...times], nameOf(lease));
    },

    /** Nobody may answer any more; false, and nothing is written, when somebody has, or may have before `end`. */
    endWait: async (lease: Lease, end: number) =>
      (await END_WAIT.held(pool, [...heldBy(lease), toTime(end)], nameOf(lease))).ended,
  };
}
