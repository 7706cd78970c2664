// Edits of questions that no agent has yet.
// Invariants: a question that an agent has, or may have, keeps its text; only the person who asked edits it, in its room; an
// edit takes the question from a worker that is about to hand the old text over; it neither shortens a wait before the next
// attempt, nor the time that a head holds its room.
import type { NewDelegation, NewEdit } from "./admission-types.ts";
import type { ContentKeys } from "./content-keys.ts";
import { type Queryable, statement, toTime } from "./postgres.ts";
import { sealPrompt } from "./prompts.ts";
import { advanceRoom } from "./room-order.ts";

const EDIT_QUESTIONS = statement("edit_questions")`
  WITH hit AS MATERIALIZED (
    SELECT d.id, e.prompt, d.lease_holder IS NOT NULL AS is_leased
    FROM unnest($2::bigint[], $3::bytea[], $4::text[], $5::text[]) AS e (id, prompt, sender, room)
    JOIN bridge_delegations d ON d.id = e.id AND d.sender_mxid = e.sender AND d.room_id = e.room
    WHERE d.state IN ('queued', 'dispatching') AND d.a2a_task_id IS NULL AND NOT d.a2a_unsettled
      AND d.cancel_requested_at IS NULL
    ORDER BY d.id FOR UPDATE OF d
  ), edited AS (
    UPDATE bridge_delegations d SET
      prompt = h.prompt, state = 'queued', fence = d.fence + 1, lease_holder = NULL, lease_until = NULL,
      due_at = CASE WHEN h.is_leased AND (d.due_at IS NOT NULL OR $1 >= d.tried_at + $6 * interval '1 millisecond')
                    THEN $1::timestamptz ELSE d.due_at END
    FROM hit h WHERE d.id = h.id
    RETURNING d.room_id, d.room_seq, d.room_ordinal, d.room_siblings, d.due_at, h.is_leased
  ), locked AS MATERIALIZED (
    SELECT room_id FROM bridge_rooms WHERE room_id IN (SELECT room_id FROM edited WHERE is_leased) ORDER BY room_id FOR UPDATE
  ), moved AS (
    SELECT e.* FROM edited e JOIN locked l ON l.room_id = e.room_id WHERE e.is_leased AND e.due_at IS NOT NULL
  ), advanced AS (${advanceRoom("$1", 0)}
      AND r.head_seq = m.room_seq AND r.head_ordinal = m.room_ordinal
  )
  UPDATE bridge_rooms r SET head_at = LEAST(r.head_at, $1::timestamptz)
  FROM locked l JOIN edited e ON e.room_id = l.room_id AND e.is_leased AND e.due_at IS NULL
  WHERE r.room_id = l.room_id AND r.head_seq = e.room_seq AND r.head_ordinal = e.room_ordinal
    AND r.head_at IS NOT NULL`;

/** New delegations with the texts of the edits that came with them. */
export function editedAtOnce(
  delegations: readonly NewDelegation[],
  edits: readonly NewEdit[],
): readonly NewDelegation[] {
  return delegations.map((job) => {
    const last = edits.findLast(
      ({ delegation, source, ghost }) =>
        delegation === undefined && source === job.event && ghost === job.ghost,
    );
    return last === undefined ? job : { ...job, prompt: last.prompt, attachment: last.attachment };
  });
}

/** Gives questions their new texts; of several edits of one question the last one counts. */
export async function editQuestions(
  on: Queryable,
  keys: ContentKeys,
  edits: readonly NewEdit[],
  now: number,
  roomGateMs: number,
): Promise<void> {
  const recorded = edits.filter(({ delegation }) => delegation !== undefined);
  if (recorded.length === 0) return;
  const last = [...new Map(recorded.map((edit) => [edit.delegation, edit])).values()];
  await EDIT_QUESTIONS.rows(on, [
    toTime(now),
    last.map(({ delegation }) => delegation),
    last.map(({ source, ghost, prompt: text, attachment }) =>
      sealPrompt(keys, source, ghost, { text, attachment }),
    ),
    last.map(({ sender }) => sender),
    last.map(({ room }) => room),
    roomGateMs,
  ]);
}
