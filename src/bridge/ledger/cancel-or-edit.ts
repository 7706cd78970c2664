// A question is canceled, by a redaction of it or of an answer that its agent does not have yet, by who asked it, or by an
// operator; or it gets a new text. Invariants: a cancellation is a durable intent, and whoever holds the lease ends the
// delegation; a question that an agent has, or may have, keeps its text; an edit, by who asked, takes the question from a
// worker that is about to hand it over, and shortens neither a wait before the next attempt, nor the hold on the room.
import type { EventId } from "../../domain/identifiers.ts";
import { indexOwners } from "./admission-facts.ts";
import type { Admission, Derived, LedgerSettings, NewEdit, NewNotice } from "./admission-types.ts";
import { recordAnswers } from "./agent-questions.ts";
import { isFirstUse } from "./capacity.ts";
import { expireUnheld } from "./envelopes.ts";
import { CANCEL_NOTICES } from "./notices.ts";
import { columnsOf, type Queryable, statement, toTime } from "./postgres.ts";
import { sealPrompt } from "./prompts.ts";
import { advanceRoom, lockedRooms } from "./room-order.ts";
import type { CancelReason } from "./states.ts";

type Canceled = { readonly marked: string[]; readonly ended: Omit<NewNotice, "kind" | "reason">[] };

// A queued delegation ends in this statement; it has no lease, but the version of its row in the statement's snapshot may have
// one, and constraints are checked on that first. One that is leased is marked, and its worker ends it. One that was
// deferred becomes due at once, so that a worker ends it. A room becomes due only if its head was redacted: the lease
// of another head must not be cut short.
const cancel = (name: string, hit: string) => statement<Canceled>(name)`
  WITH hit AS MATERIALIZED (
    SELECT d.id, d.state FROM ${hit} AND d.terminal_at IS NULL ORDER BY d.id FOR UPDATE OF d
  ), marked AS (
    UPDATE bridge_delegations d SET
      cancel_requested_at = COALESCE(d.cancel_requested_at, $2), cancel_reason = COALESCE(d.cancel_reason, $1),
      due_at = CASE WHEN d.lease_holder IS NULL AND d.due_at IS NOT NULL THEN $2::timestamptz ELSE d.due_at END
    FROM hit WHERE d.id = hit.id AND hit.state <> 'queued'
    RETURNING d.id, d.room_id, d.room_seq, d.room_ordinal, d.lease_holder IS NULL AS is_free
  ), ended AS (
    UPDATE bridge_delegations d SET
      state = 'canceled', terminal_stage = 'intake', terminal_reason = $1, terminal_at = $2,
      cancel_requested_at = $2, cancel_reason = $1, prompt = NULL, due_at = NULL, lease_holder = NULL, lease_until = NULL
    FROM hit WHERE d.id = hit.id AND hit.state = 'queued'
    RETURNING d.*
  ), moved AS MATERIALIZED (
    SELECT room_id, room_seq, room_ordinal, 1 AS freed FROM ended
    UNION ALL SELECT room_id, room_seq, room_ordinal, 0 FROM marked WHERE is_free
  ), ${lockedRooms("moved")}, rooms AS (
    UPDATE bridge_rooms r SET
      open_count = r.open_count - (SELECT sum(m.freed)::int FROM moved m WHERE m.room_id = r.room_id),
      head_at = CASE WHEN EXISTS (
          SELECT FROM moved m WHERE m.room_id = r.room_id
            AND m.room_seq = r.head_seq AND m.room_ordinal = r.head_ordinal)
        THEN LEAST(r.head_at, $2::timestamptz) ELSE r.head_at END
    FROM locked l WHERE r.room_id = l.room_id
  ), audited AS (
    INSERT INTO bridge_audit (schema, record, created_at)
    SELECT 'svc.delegation.v1', bridge_delegation_audit(e.*::bridge_delegations), $2 FROM ended e
  )
  SELECT ARRAY(SELECT id::text FROM marked) AS marked,
    (SELECT COALESCE(json_agg(json_build_object(
       'room', room_id, 'ghost', ghost_mxid, 'source', matrix_event_id, 'threadRoot', thread_root)), '[]') FROM ended) AS ended`;

const CANCEL_REDACTED = cancel(
  "cancel_redacted",
  `bridge_delegations d
    JOIN unnest($3::text[], $4::text[]) AS u (event, room) ON d.room_id = u.room
      AND (d.matrix_event_id = u.event OR d.answer_event_id = u.event AND d.prompt IS NOT NULL)
    WHERE true`,
);
const CANCEL_THESE = cancel("cancel_these", "bridge_delegations d WHERE d.id = ANY ($3::bigint[])");

/** Returns the delegations that are marked, for their workers to end, and the notices about those that have ended now. */
export async function cancelDelegations(
  on: Queryable,
  reason: "sender_canceled" | "operator_canceled",
  ids: readonly string[],
  now: number,
): Promise<{ readonly marked: readonly string[]; readonly notices: readonly NewNotice[] }> {
  if (ids.length === 0) return { marked: [], notices: [] };
  const { marked, ended } = await CANCEL_THESE.one(on, [reason, toTime(now), ids]);
  const kind = CANCEL_NOTICES[reason];
  return { marked, notices: ended.map((one) => ({ ...one, kind, reason })) };
}

/** Returns the delegations that are marked as canceled, for their workers to end. Only under the rooms' locks. */
export async function cancelRedacted(on: Queryable, redacted: Admission["redacted"], now: number) {
  const events = redacted.map(({ event }) => event);
  const rooms = redacted.map(({ room }) => room);
  const reason: CancelReason = "source_redacted";
  const values = [reason, toTime(now), events, rooms];
  const { marked } = await CANCEL_REDACTED.one(on, values);
  await expireUnheld(on, events, rooms, reason, now);
  return marked;
}

const EDIT_QUESTIONS = statement("edit_questions")`
  WITH hit AS MATERIALIZED (
    SELECT d.id, e.prompt, e.ts, d.lease_holder IS NOT NULL AS is_leased
    FROM unnest($2::bigint[], $3::bytea[], $4::text[], $5::text[], $6::bigint[]) AS e (id, prompt, sender, room, ts)
    JOIN bridge_delegations d ON d.id = e.id AND d.sender_mxid = e.sender AND d.room_id = e.room
    WHERE d.state IN ('queued', 'dispatching') AND d.a2a_task_id IS NULL AND NOT d.a2a_unsettled
      AND d.cancel_requested_at IS NULL AND (d.edited_ts > e.ts) IS NOT TRUE
    ORDER BY d.id FOR UPDATE OF d
  ), edited AS (
    UPDATE bridge_delegations d SET
      prompt = h.prompt, edited_ts = h.ts, state = 'queued', fence = d.fence + 1, lease_holder = NULL, lease_until = NULL,
      due_at = CASE WHEN h.is_leased AND (d.due_at IS NOT NULL OR $1 >= d.tried_at + $7 * interval '1 millisecond')
                    THEN $1::timestamptz ELSE d.due_at END
    FROM hit h WHERE d.id = h.id
    RETURNING d.room_id, d.room_seq, d.room_ordinal, d.room_siblings, d.due_at, h.is_leased
  ), ${lockedRooms("edited WHERE is_leased")}, moved AS (
    SELECT e.* FROM edited e JOIN locked l ON l.room_id = e.room_id WHERE e.is_leased AND e.due_at IS NOT NULL
  ), advanced AS (${advanceRoom("$1", 0)}
      AND r.head_seq = m.room_seq AND r.head_ordinal = m.room_ordinal
  )
  UPDATE bridge_rooms r SET head_at = LEAST(r.head_at, $1::timestamptz)
  FROM locked l JOIN edited e ON e.room_id = l.room_id AND e.is_leased AND e.due_at IS NULL
  WHERE r.room_id = l.room_id AND r.head_seq = e.room_seq AND r.head_ordinal = e.room_ordinal
    AND r.head_at IS NOT NULL`;

/** New delegations with the texts of the edits that came with them. */
function editedAtOnce(delegations: Derived["delegations"], edits: readonly NewEdit[]) {
  return delegations.map((job) => {
    const last = edits.findLast(
      ({ delegation, source, ghost }) =>
        delegation === undefined && source === job.event && ghost === job.ghost,
    );
    if (last === undefined) return job;
    const { prompt, attachment, originServerTs: editedTs } = last;
    return { ...job, prompt, attachment, editedTs, sealed: undefined };
  });
}

/** Gives questions their new texts; of several edits of one question the last one counts. */
async function editQuestions(
  on: Queryable,
  { keys, roomGateMs }: LedgerSettings,
  edits: readonly NewEdit[],
  now: number,
): Promise<void> {
  const recorded = edits.filter(({ delegation }) => delegation !== undefined);
  if (recorded.length === 0) return;
  const last = [...new Map(recorded.map((edit) => [edit.delegation, edit])).values()];
  await EDIT_QUESTIONS.rows(on, [
    toTime(now),
    ...columnsOf(last, "delegation"),
    last.map(({ source, ghost, prompt: text, attachment }) =>
      sealPrompt(keys, source, ghost, { text, attachment }),
    ),
    ...columnsOf(last, "sender", "room", "originServerTs"),
    roomGateMs,
  ]);
}

/**
 * Records what was derived for earlier questions: answers, cancellations and edits. Who repeats a ciphertext can neither ask,
 * answer, edit nor cancel by it. @returns the new delegations, edited, and what has come of the rest
 */
export async function changeAsked(
  on: Queryable,
  settings: LedgerSettings,
  { delegations, answers, cancels, edits = [] }: Omit<Derived, "envelopes" | "notices">,
  order: readonly EventId[],
  now: number,
) {
  const uses = [...delegations, ...answers, ...cancels, ...edits];
  const indices = await indexOwners(on, uses, order);
  const isOwn = (one: (typeof uses)[number]) => isFirstUse(indices, one);
  const own = answers.filter(isOwn);
  const tooLate = await recordAnswers(on, settings.keys, own, now);
  const canceled = cancels.filter(isOwn).map(({ delegation }) => delegation);
  const { marked, notices } = await cancelDelegations(on, "sender_canceled", canceled, now);
  const ownEdits = edits.filter(isOwn);
  await editQuestions(on, settings, ownEdits, now);
  return {
    delegations: editedAtOnce(delegations, ownEdits),
    ...{ uses, indices, canceled: marked, notices: [...tooLate, ...notices] },
    answers: own.length - tooLate.length,
  };
}
