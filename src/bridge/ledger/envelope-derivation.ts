// A decrypted intake envelope becomes delegations, in one database transaction under its room's lock. They take the place
// that it holds in its room, or the next free one when the room has continued without it.
// Invariants: it is derived once (its state and its fence stand in the WHERE); a delegation without a capacity slot is a
// denied row; without delegations its place becomes void; one that asks nothing by itself waits until a question of the same
// person that it refers to was read, or an earlier answer to the same, and no longer than for its own key.
import type { Pool, PoolClient } from "pg";
import { readKnown, recordIndices, toFacts } from "./admission-facts.ts";
import { type Admission, type Admitted, type LedgerSettings, NOTHING_ADMITTED } from "./admission-types.ts";
import { changeAsked } from "./cancel-or-edit.ts";
import { countOpen, place, refusedOf, STAGE_OF_DENIED } from "./capacity.ts";
import { AWAITS_KEY, type ClaimedIntakeEnvelope, nameOf } from "./envelopes.ts";
import { refusals, writeNotices } from "./notices.ts";
import { columnsOf, inRooms, statement, toTime, type Work } from "./postgres.ts";
import { sealPrompt } from "./prompts.ts";
import { releasePlaces } from "./room-order.ts";

const PLACE_OF = statement<{ room_seq: string | undefined; outdated: boolean }>("place_of_envelope")`
  SELECT room_seq, EXISTS (
    SELECT FROM bridge_encrypted_intake o
    WHERE o.room_id = e.room_id AND o.sender_mxid = e.sender_mxid AND o.edits_event_id = e.edits_event_id
      AND o.state = 'derived'
      AND (o.origin_server_ts, o.matrix_event_id) > (e.origin_server_ts, e.matrix_event_id)) AS outdated
  FROM bridge_encrypted_intake e
  WHERE matrix_event_id = $1 AND fence = $2 AND ${AWAITS_KEY} FOR UPDATE`;

const TAKE_PLACE = statement<{ room_seq: string }>("take_place")`
  WITH place AS (
    UPDATE bridge_rooms SET next_seq = next_seq + 1, gate_seq = COALESCE(gate_seq, next_seq)
    WHERE room_id = $2 RETURNING next_seq - 1 AS seq
  )
  UPDATE bridge_encrypted_intake SET room_seq = place.seq FROM place WHERE matrix_event_id = $1
  RETURNING room_seq`;

// $4: how many delegations take its place.
const DERIVE = statement("derive_envelope")`
  WITH ended AS (
    UPDATE bridge_encrypted_intake SET
      state = 'derived', terminal_reason = 'derived', terminal_at = $3, due_at = NULL, holder = NULL, jobs = $4
    WHERE matrix_event_id = $1 AND fence = $2 AND ${AWAITS_KEY}
    RETURNING *
  ), settled AS MATERIALIZED (
    SELECT e.room_id, int8multirange(int8range(e.room_seq, e.room_seq + 1)) AS places,
      CASE WHEN $4 = 0 THEN int8multirange(int8range(e.room_seq, e.room_seq + 1)) ELSE '{}' END AS void,
      $4 AS opened,
      (SELECT min(o.room_seq) FROM bridge_encrypted_intake o
       WHERE o.room_id = e.room_id AND o.state = 'awaiting_key' AND o.room_seq <> e.room_seq) AS gate
    FROM ended e
  ), capacity AS (
    UPDATE bridge_capacity SET admitted = admitted + $4 WHERE $4 > 0
  ), rooms AS (${releasePlaces("$3", { also: "keys_missing_at = NULL" })}
  ), delegations AS (
    INSERT INTO bridge_delegations
      (matrix_event_id, ghost_mxid, room_id, sender_mxid, origin_server_ts, thread_root, ingress, agent_id,
       target_fingerprint, prompt, agent_turn, a2a_context_id, room_seq, room_ordinal, room_siblings, state,
       terminal_stage, terminal_reason, admitted_at, terminal_at, edited_ts)
    SELECT e.matrix_event_id, ghost, e.room_id, e.sender_mxid, e.origin_server_ts, thread, e.ingress, agent, target,
      prompt, turn, context, CASE WHEN ordinal IS NOT NULL THEN e.room_seq END, ordinal, CASE WHEN ordinal IS NOT NULL THEN $4 END,
      CASE WHEN denied IS NULL THEN 'queued' ELSE 'denied' END,
      ${STAGE_OF_DENIED}, denied, $3,
      CASE WHEN denied IS NOT NULL THEN $3::timestamptz END, edited
    FROM ended e, unnest($5::text[], $6::text[], $7::text[], $8::text[], $9::bytea[], $10::int[], $11::text[], $12::int[], $13::text[], $14::bigint[])
      AS u (ghost, agent, target, thread, prompt, ordinal, denied, turn, context, edited)
    RETURNING *
  ), audited AS (
    INSERT INTO bridge_audit (schema, record, created_at)
    SELECT 'svc.delegation.v1', bridge_delegation_audit(d.*::bridge_delegations), $3
    FROM delegations d WHERE d.state = 'denied'
  )
  SELECT 1 FROM ended`;

/** `derive` is of the decrypted event, and of an edit that was opened with it; the `envelopes` that it returns must be empty. */
export type Derivation = Pick<Admission, "about" | "derive" | "capacity">;

async function deriveOn(
  client: PoolClient,
  settings: LedgerSettings,
  envelope: ClaimedIntakeEnvelope,
  { about, derive, capacity }: Derivation,
  now: number,
): Promise<Work<Admitted>> {
  const { keys, noticeIntervalMs } = settings;
  const { event, fence, room, sender, deadline, direct } = envelope;
  const held = [event, fence];
  const own = await PLACE_OF.held(client, held, nameOf(envelope));
  const row = await readKnown(client, about, now);
  // What it asks without a mention is decided by who was in the room when it came.
  const directWith = new Map(direct === undefined ? [] : [[room, { ghost: direct, person: sender }]]);
  // Those that refer to the same event are earlier by their places.
  const waiting = (row.waiting ?? []).filter(
    (one) => about.related.includes(one.event) || Number(one.place) < Number(own.room_seq),
  );
  const known = toFacts({ ...row, waiting: now < deadline ? waiting : [] }, keys, now);
  const { edits = [], ...derived } = derive({ ...known, directWith });
  const isOfEvent = (one: { readonly event: string }) => one.event === event;
  const given = {
    delegations: derived.delegations.filter((job) => isOfEvent(job) && job.room === room),
    answers: derived.answers.filter(isOfEvent),
    cancels: derived.cancels.filter(isOfEvent),
    edits: edits.filter((one) => one.delegation === undefined || (isOfEvent(one) && !own.outdated)),
  };
  const isOfUse = Object.values(given).some(({ length }) => length > 0);
  const waits = known.waiting.some(
    (one) => one.event !== event && one.room === room && one.sender === sender,
  );
  if (waits && !isOfUse) return { result: { ...NOTHING_ADMITTED, isBehind: true } };
  const seq = own.room_seq ?? (await TAKE_PLACE.one(client, [event, room])).room_seq;
  const done = await changeAsked(client, settings, given, [event], now);
  const { delegations, indices } = done;
  const arrived = { delegations, envelopes: [] };
  const open = await countOpen(client, row, arrived, capacity);
  const { jobs } = place(arrived, { rooms: [[room, true, 0, Number(seq)]] }, indices, open, capacity);
  const refused = refusedOf(jobs);
  const admitted = jobs.length - refused.length;
  const values = [
    ...held,
    toTime(now),
    admitted,
    ...columnsOf(jobs, "ghost", "agent", "targetFingerprint", "threadRoot"),
    jobs.map(({ denied, ghost, prompt: text, attachment }) =>
      denied === null ? sealPrompt(keys, event, ghost, { text, attachment }) : null,
    ),
    ...columnsOf(jobs, "ordinal", "denied", "agentTurn", "contextId", "editedTs"),
  ];
  await DERIVE.held(client, values, nameOf(envelope));
  await recordIndices(client, done.uses, indices, now);
  const notices = [...derived.notices, ...done.notices, ...refusals(jobs)];
  await writeNotices(client, notices, now, noticeIntervalMs);
  return {
    result: {
      ...NOTHING_ADMITTED,
      admitted,
      refused,
      answers: done.answers,
      canceled: done.canceled,
      notices: notices.length,
    },
  };
}

export function createEnvelopeDerivation(pool: Pool, settings: LedgerSettings) {
  return {
    /** @throws DrawbridgeError `lease_lost` */
    derive: (envelope: ClaimedIntakeEnvelope, derivation: Derivation, now: number): Promise<Admitted> =>
      inRooms(pool, [envelope.room], (client) => deriveOn(client, settings, envelope, derivation, now)),
  };
}
