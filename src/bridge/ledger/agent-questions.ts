// Questions from agents, and the answers of the people who asked them. While a task awaits input its delegation holds
// neither its room nor a worker.
// Invariants: a question is stored with its transaction IDs before it is sent; an answer is recorded in the transaction
// that handles its event, once for each question, and names the message that hands it over; it is sealed, and cleared
// when the agent has it or the delegation ends; a wait never ends over an answer that was recorded or may be unread, and
// whoever answers later is told so.
import type { Pool } from "pg";
import type { EventId, GhostMxid, RoomId, TransactionId } from "../../domain/identifiers.ts";
import type { NewAnswer, NewNotice, Posted, QuestionOption } from "./admission-types.ts";
import type { ContentKeys } from "./content-keys.ts";
import { assertHeld, type ClaimedDelegation, HELD, heldBy, type Lease } from "./leases.ts";
import { oneRow, type Queryable, rows, statement, toTime } from "./postgres.ts";
import { sealPrompt } from "./prompts.ts";
import { insertSends, newSends, type PendingSend, type ReplyPart } from "./replies.ts";
import { advanceRoom } from "./room-order.ts";

/** A question of an agent, with the task that asks it. */
export interface AgentQuestion {
  readonly parts: readonly ReplyPart[];
  readonly options: readonly QuestionOption[];
  /** Names it among the states of its task. */
  readonly key: string | undefined;
  readonly taskId: string;
  readonly contextId: string | undefined;
  readonly agentVersion: string | undefined;
  /** How many events of questions were recorded before. */
  readonly asked: number;
  /** Until when an answer is waited for. */
  readonly until: number;
}

const RECORD_QUESTION = statement("record_question")`
  WITH held AS (
    SELECT d.id, d.cancel_requested_at IS NOT NULL AS canceled
    FROM bridge_delegations d
    WHERE ${HELD} AND d.state IN ('dispatching', 'following') AND d.asked = $10 FOR UPDATE
  ), moved AS (
    UPDATE bridge_delegations d SET
      state = 'awaiting_input', waiting_since = $4, accepted_at = COALESCE(d.accepted_at, $4), due_at = d.lease_until, prompt = NULL,
      a2a_unsettled = false, a2a_task_id = $5, a2a_context_id = COALESCE($6, d.a2a_context_id),
      agent_version = COALESCE($7, d.agent_version), question_key = $8, options = $9, input_until = $11,
      asked = $10 + cardinality($12::text[]), attempts = 0, streams_opened = 0, faults = 0, retry_reason = NULL
    FROM held h WHERE d.id = h.id AND NOT h.canceled
    RETURNING d.id, d.room_id, d.room_seq, d.room_ordinal, d.room_siblings
  ), advanced AS (${advanceRoom("$4", 0)}
  ), ${insertSends("'question'", "$12", "$13", "$14", "$10")}
  SELECT (SELECT count(*)::int FROM held) AS held, COALESCE((SELECT canceled FROM held), false) AS canceled,
    ARRAY(SELECT id::text FROM sends ORDER BY ordinal) AS send_ids`;

const RECORD_ASKED = statement("record_asked")`
  WITH sent AS (
    UPDATE bridge_sends SET state = 'sent', event_id = $5, content = NULL WHERE id = $4 AND state = 'pending'
  )
  UPDATE bridge_delegations d SET input_until = $6, waiting_since = $7 WHERE ${HELD} AND d.state = 'awaiting_input' RETURNING 1`;

// Whoever holds the delegation sees the answer when it gives the lease back.
const RECORD_ANSWERS = statement("record_answers")`
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

// An encrypted event of the person who asked may be the answer: its wait for a key ends by itself.
const END_WAIT = statement("end_wait")`
  WITH held AS MATERIALIZED (
    SELECT d.id, d.prompt IS NULL AND NOT EXISTS (
        SELECT FROM bridge_encrypted_intake e
        WHERE e.room_id = d.room_id AND e.sender_mxid = d.sender_mxid AND e.state = 'awaiting_key') AS unanswered
    FROM bridge_delegations d WHERE ${HELD} AND d.state = 'awaiting_input' FOR UPDATE
  ), ended AS (
    UPDATE bridge_delegations d SET input_until = NULL FROM held h WHERE d.id = h.id AND h.unanswered
  )
  SELECT count(*)::int AS held, COALESCE(bool_or(unanswered), false) AS ended FROM held`;

// The homeserver gives every event to the bridge, its own ones too, in the order of the room: so the question's event
// ID is known before an answer to it comes, even if the process died that sent it.
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
  try {
    return JSON.parse(keys.open(sealed, optionsIdentity(event, ghost))) as QuestionOption[];
  } catch {
    return [];
  }
}

/** What is said to the person who answers a question that has ended, once for each question. */
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
  const recorded = await rows<{ id: string }>(on, RECORD_ANSWERS, [
    answers.map(({ delegation }) => delegation),
    answers.map(({ event }) => event),
    answers.map(({ source, ghost, ...prompt }) => sealPrompt(keys, source, ghost, prompt)),
    toTime(now),
  ]);
  const ids = new Set(recorded.map(({ id }) => id));
  return answers.flatMap((one) => (ids.has(one.delegation) ? [] : answerRefused(one, one.event)));
}

/** Records the event IDs of questions that came back from the homeserver. */
export async function recordPosted(on: Queryable, posted: readonly Posted[]): Promise<void> {
  if (posted.length === 0) return;
  const column = <T>(of: (one: Posted) => T) => posted.map(of);
  await rows(on, RECORD_POSTED, [
    column<TransactionId>(({ transaction }) => transaction),
    column<EventId>(({ event }) => event),
    column<RoomId>(({ room }) => room),
    column<GhostMxid>(({ ghost }) => ghost),
  ]);
}

export function createQuestions(pool: Pool, keys: ContentKeys) {
  return {
    /**
     * Stores the question's events (sealed) with their transaction IDs; the state becomes `awaiting_input`, and the
     * room goes on. `canceled`: it is to be canceled and nothing was written; finish it as canceled.
     */
    async recordQuestion(
      claimed: ClaimedDelegation,
      question: AgentQuestion,
      now: number,
    ): Promise<PendingSend[] | "canceled"> {
      const sends = newSends(keys, claimed, "question", question.parts, question.asked);
      const options =
        question.options.length === 0
          ? null
          : keys.seal(
              JSON.stringify(question.options),
              optionsIdentity(claimed.sourceEventId, claimed.ghost),
            );
      const row = await oneRow<{ held: number; canceled: boolean; send_ids: string[] }>(
        pool,
        RECORD_QUESTION,
        [
          ...heldBy(claimed.lease),
          toTime(now),
          question.taskId,
          question.contextId ?? null,
          question.agentVersion ?? null,
          question.key ?? null,
          options,
          question.asked,
          toTime(question.until),
          ...sends.values,
        ],
      );
      assertHeld(row.held, claimed.lease);
      return row.canceled ? "canceled" : sends.pending(row.send_ids);
    },

    /** Records that an event of a question was sent, and until when an answer is waited for. */
    async recordAsked(
      lease: Lease,
      sendId: string,
      eventId: EventId,
      { now, until }: { readonly now: number; readonly until: number },
    ): Promise<void> {
      const times = [toTime(until), toTime(now)];
      const touched = await rows(pool, RECORD_ASKED, [...heldBy(lease), sendId, eventId, ...times]);
      assertHeld(touched.length, lease);
    },

    /** Nobody may answer any more; false, and nothing is written, when somebody has, or may have. */
    async endWait(lease: Lease): Promise<boolean> {
      const { held, ended } = await oneRow<{ held: number; ended: boolean }>(pool, END_WAIT, heldBy(lease));
      assertHeld(held, lease);
      return ended;
    },
  };
}
