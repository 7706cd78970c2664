// Admission: one homeserver transaction becomes rows, in one database transaction under the locks of its rooms.
// Invariants: an event is handled once, whichever process it comes to and however often, because the transaction that
// handles it inserts its row; a room's places have no gaps; no remote call is made meanwhile; everything of a transaction
// is committed, or nothing; `derive`, which decides what its events mean, is a pure function of them and of the facts.
import { setImmediate } from "node:timers/promises";
import type { Pool, PoolClient } from "pg";
import type { EventId } from "../../domain/identifiers.ts";
import { type KnownRow, readKnown, recordIndices, toFacts } from "./admission-facts.ts";
import {
  type Admission,
  type Admitted,
  type ClaimSlot,
  type Derived,
  type KnownFacts,
  type LedgerSettings,
  type NewDelegation,
  NOTHING_ADMITTED,
} from "./admission-types.ts";
import { recordPosted } from "./agent-questions.ts";
import { cancelRedacted, changeAsked } from "./cancel-or-edit.ts";
import {
  countOpen,
  type Placed,
  type PlacedIntakeEnvelope,
  type PlacedJob,
  place,
  refusedOf,
  roomTotals,
  STAGE_OF_DENIED,
} from "./capacity.ts";
import { type ClaimOfUnknownCommit, createClaimsOfUnknownCommits } from "./claims-of-unknown-commits.ts";
import type { ContentKeys } from "./content-keys.ts";
import { keysFound } from "./envelopes.ts";
import { writeDeviceInbox } from "./ghosts.ts";
import {
  CLAIMED_COLUMNS,
  type ClaimedDelegation,
  type DelegationRow,
  type Lease,
  toClaimed,
} from "./leases.ts";
import { applyRoomState } from "./memberships.ts";
import { refusals, writeNotices } from "./notices.ts";
import {
  columnsOf,
  inOneValue,
  inRooms,
  notFlushed,
  type Queryable,
  statement,
  toTime,
  type Work,
} from "./postgres.ts";
import { isPassing } from "./postgres-servers.ts";
import { sealPrompt } from "./prompts.ts";
import { firstLaterPlaces, reorder } from "./room-order.ts";
import { readForgotten } from "./too-old-events.ts";

// A delegation or an intake envelope may be kept for longer than the row of its event, and its key is unique.
// One value for all of them is read in a fraction of the time that a row for each takes.
const HANDLE = statement<{ events: readonly EventId[] | undefined }>("handle_events")`
  WITH handled AS (
    INSERT INTO bridge_handled_events (matrix_event_id, handled_at, body_sha256)
    SELECT event, $2, $3 FROM unnest($1::text[]) AS u (event)
    WHERE NOT EXISTS (SELECT FROM bridge_delegations d WHERE d.matrix_event_id = event)
      AND NOT EXISTS (SELECT FROM bridge_encrypted_intake e WHERE e.matrix_event_id = event)
    ORDER BY event
    ON CONFLICT DO NOTHING RETURNING matrix_event_id)
  SELECT json_agg(matrix_event_id) AS events FROM handled`;

// Waits for the disk, and with it for all that was committed before. No row: the server ended before it had the events on disk.
const MAKE_DURABLE = statement("make_durable")`
  SELECT pg_logical_emit_message(true, 'drawbridge', '') FROM bridge_handled_events WHERE matrix_event_id = ANY ($1) LIMIT 1`;

const HANDLED = statement<{ event: EventId }>("handled_events")`
  SELECT matrix_event_id AS event FROM bridge_handled_events WHERE matrix_event_id = ANY ($1)`;

const ADMIT = `
  WITH capacity AS (
    UPDATE bridge_capacity SET admitted = admitted + $2 WHERE $2 > 0
  ), rooms AS (
    INSERT INTO bridge_rooms AS r (room_id, next_seq, head_at, open_count, gate_seq)
    SELECT room_id, 1 + places, CASE WHEN places > 0 AND gate IS DISTINCT FROM 1 THEN $1::timestamptz END, slots, gate
    FROM unnest($3::text[], $4::int[], $5::int[], $6::bigint[]) AS u (room_id, places, slots, gate) ORDER BY room_id
    ON CONFLICT (room_id) DO UPDATE SET
      next_seq = r.next_seq + excluded.next_seq - 1,
      open_count = r.open_count + excluded.open_count,
      gate_seq = COALESCE(r.gate_seq, r.next_seq + excluded.gate_seq - 1),
      head_at = CASE WHEN r.head_seq < r.next_seq THEN r.head_at ELSE excluded.head_at END
  ), delegations AS (
    INSERT INTO bridge_delegations
      (matrix_event_id, ghost_mxid, room_id, sender_mxid, origin_server_ts, thread_root, ingress, agent_id,
       target_fingerprint, prompt, agent_turn, a2a_context_id, room_seq, room_ordinal, room_siblings, state,
       terminal_stage, terminal_reason, admitted_at, terminal_at, edited_ts)
    SELECT event, ($7::text[])[target], ($3::text[])[room], sender, ts, thread, $10, ($8::text[])[target],
      ($9::text[])[target], substring($13::bytea, prompt_at, prompt_length), turn, context, seq, ordinal, siblings,
      CASE WHEN denied IS NULL THEN 'queued' ELSE 'denied' END,
      ${STAGE_OF_DENIED}, denied, $1,
      CASE WHEN denied IS NULL THEN NULL ELSE $1::timestamptz END, edited
    FROM unnest($11::int[], $12::int[], $14::int[], $15::int[], $16::text[], $17::text[], $18::bigint[], $19::text[],
      $20::bigint[], $21::int[], $22::int[], $23::text[], $24::int[], $25::text[], $26::bigint[])
      AS u (target, room, prompt_at, prompt_length, event, sender, ts, thread, seq, ordinal, siblings, denied, turn, context, edited)`;

const WRITE = statement("admit")`${ADMIT}) SELECT`;

// Refusals are terminal rows from the start, with their audit records.
const WRITE_WITH_REFUSALS = statement("admit_with_refusals")`
  ${ADMIT} RETURNING *)
  INSERT INTO bridge_audit (schema, record, created_at)
  SELECT 'svc.delegation.v1', bridge_delegation_audit(d.*::bridge_delegations), $1
  FROM delegations d WHERE d.state = 'denied'`;

const WRITE_ENVELOPES = statement("admit_envelopes")`
  INSERT INTO bridge_encrypted_intake
    (matrix_event_id, room_id, sender_mxid, origin_server_ts, transaction_id, ingress, intake_fingerprint, deadline,
     edits_event_id, direct_ghost, refers_to, room_seq, state, due_at, admitted_at, terminal_at, terminal_reason)
  SELECT event, room, sender, ts, $1, $2, fingerprint, deadline, edits, direct, refers, seq,
    CASE WHEN denied IS NULL THEN 'awaiting_key' ELSE 'denied' END, CASE WHEN denied IS NULL THEN $3::timestamptz END,
    $3, CASE WHEN denied IS NOT NULL THEN $3::timestamptz END, denied
  FROM unnest($4::timestamptz[], $5::text[], $6::text[], $7::text[], $8::bigint[], $9::bytea[], $10::bigint[],
    $11::text[], $12::text[], $13::text[], $14::text[])
    AS u (deadline, event, room, sender, ts, fingerprint, seq, denied, edits, direct, refers)`;

const WRITE_MALFORMED = statement("admit_malformed")`
  INSERT INTO bridge_malformed_events (event_sha256, transaction_id, reason, matrix_event_id, room_id, received_at)
  SELECT digest, $1, reason, event, room, $2
  FROM unnest($3::bytea[], $4::text[], $5::text[], $6::text[]) AS u (digest, reason, event, room)
  ON CONFLICT DO NOTHING`;

// A single question that comes to the head of its room is claimed as it is admitted, which saves the round trip and the
// commit of a claim before its agent is called. One that stands behind another is admitted as any other is. The commit does
// not wait for the disk: what is written before the call makes it durable too, and the acknowledgement waits for that.
const ADMIT_AND_CLAIM = statement<DelegationRow>("admit_and_claim")`
  WITH capacity AS (
    UPDATE bridge_capacity SET admitted = admitted + 1
  ), room AS (
    INSERT INTO bridge_rooms AS r (room_id, next_seq, head_at, open_count) VALUES ($1, 2, $4, 1)
    ON CONFLICT (room_id) DO UPDATE SET
      next_seq = r.next_seq + 1,
      open_count = r.open_count + 1,
      head_at = CASE WHEN r.head_seq < r.next_seq THEN r.head_at ELSE excluded.head_at END
    RETURNING (r.head_seq, r.head_ordinal) = ($5::bigint, 0) AS is_head
  ), admitted AS (
    INSERT INTO bridge_delegations AS d
      (room_id, room_seq, room_ordinal, room_siblings, matrix_event_id, ghost_mxid, agent_id, target_fingerprint,
       sender_mxid, origin_server_ts, thread_root, ingress, prompt, agent_turn, a2a_context_id, admitted_at,
       state, fence, lease_holder, lease_until, tried_at, edited_ts)
    SELECT $1, $5, 0, 1, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $2::timestamptz,
      CASE WHEN is_head THEN 'dispatching' ELSE 'queued' END, is_head::int, CASE WHEN is_head THEN $3::text END,
      CASE WHEN is_head THEN $4::timestamptz END, CASE WHEN is_head THEN $2::timestamptz END, $17
    FROM room, ${notFlushed()}
    RETURNING ${CLAIMED_COLUMNS}, 'queued' AS "resumedFrom"
  )
  SELECT * FROM admitted WHERE fence > 0`;

const NOTHING: Derived = { delegations: [], answers: [], cancels: [], envelopes: [], notices: [] };

async function admitOn(
  client: PoolClient,
  settings: LedgerSettings,
  admission: Admission,
  slotFor: NonNullable<Admission["slotFor"]>,
): Promise<Work<Admitted>> {
  const { keys } = settings;
  const time = toTime(admission.receivedAt);
  const all = admission.events.map(({ event }) => event);
  const { redacted, posted = [], roomState, receivedAt, order = new Map() } = admission;
  await writeDeviceInbox(client, admission.mail ?? [], receivedAt);
  const directUntil: NonNullable<KnownFacts["directUntil"]>[number][] = [];
  const derive = async (row: KnownRow, handled?: ReadonlySet<EventId>) => {
    const known = { ...toFacts(row, keys, receivedAt), directUntil, handled };
    const found = admission.about.rooms.length === 0 ? NOTHING : admission.derive(known);
    const { answers, cancels, edits = [] } = found;
    const isChange = answers.length + cancels.length + edits.length > 0;
    const counting = isChange ? undefined : countOpen(client, row, found, admission.capacity);
    const delegations = found.delegations.map((job) =>
      job.refused === undefined ? { ...job, sealed: seal(keys, job) } : job,
    );
    return { row, known, found: { ...found, delegations }, open: await counting };
  };
  // Where nothing is written first, the facts are read first: the server inserts the rows while this process derives and
  // seals, and counts what is open without waiting for this process to have heard of that.
  const isReadAtOnce = redacted.length + posted.length + roomState.length + order.size === 0;
  const [derivedAtOnce, inserted, forgottenBefore] = await Promise.all([
    isReadAtOnce ? readKnown(client, admission.about, receivedAt).then(derive) : undefined,
    HANDLE.one(client, [all, time, admission.bodySha256]),
    isReadAtOnce ? readForgotten(client) : undefined,
  ]);
  const fresh = new Set(inserted.events);
  // What was committed the first time may not have been durable when its process ended.
  if (fresh.size === 0 && all.length > 0)
    return { result: { ...NOTHING_ADMITTED, replayed: true }, sent: MAKE_DURABLE.rows(client, [all]) };
  const isFresh = ({ event }: { readonly event: EventId }) => fresh.has(event);

  // An answer that is in the same transaction must find its question.
  await recordPosted(client, posted);
  // Cancellation is first, because it locks delegations, and the later statements lock rooms.
  const canceled = redacted.length > 0 ? await cancelRedacted(client, redacted, receivedAt) : [];
  for (const one of roomState) {
    const { room } = one;
    if (one.kind !== "encryption" && admission.about.rooms.includes(room)) {
      const before = await readKnown(client, { rooms: [room], related: [] }, receivedAt);
      const { directWith, ghostsIn } = toFacts(before, keys, receivedAt);
      const direct = { room, position: one.position ?? 0, direct: directWith.get(room) };
      // What was said before somebody came or went was said in the room as it was. Of an unknown room nothing is told.
      if (ghostsIn.has(room)) directUntil.push(direct);
    }
    await applyRoomState(client, one, receivedAt);
  }
  const later = await firstLaterPlaces(client, order);
  const handled = new Set(all.filter((event) => !fresh.has(event)));
  // What retention deleted since the facts were read was inserted again, and is not new.
  const isCurrent = derivedAtOnce?.row.forgotten_before === forgottenBefore && handled.size === 0;
  const { row, known, found, open } =
    (isCurrent ? derivedAtOnce : undefined) ??
    (await derive(await readKnown(client, admission.about, receivedAt), handled));
  const derived: Derived = {
    delegations: found.delegations.filter(isFresh),
    answers: found.answers.filter(isFresh),
    envelopes: found.envelopes.filter(isFresh),
    cancels: found.cancels.filter(isFresh),
    edits: (found.edits ?? []).filter(isFresh),
    notices: found.notices.filter(({ event, source }) => fresh.has(event ?? source)),
  };
  // Before the rooms are locked, as delegations are everywhere.
  const done = await changeAsked(client, settings, derived, all, receivedAt);
  const asked = { delegations: done.delegations, envelopes: derived.envelopes };
  // What changes questions locks them before the row of all capacity, and may free a share.
  const counts = open ?? (await countOpen(client, row, asked, admission.capacity));
  const placed = place(asked, row, done.indices, counts, admission.capacity);
  const { jobs, envelopes } = placed;
  const refused = refusedOf(jobs);
  const envelopesDenied = envelopes.filter((envelope) => envelope.denied !== null).length;
  const notices = [
    ...derived.notices,
    ...done.notices,
    ...refusals(jobs),
    // An intake envelope names no ghost.
    ...refusals(envelopes.map((envelope) => ({ ...envelope, ghost: known.speakers.get(envelope.room) }))),
  ];
  const result = {
    replayed: false,
    admitted: jobs.length - refused.length,
    refused,
    answers: done.answers,
    envelopes: envelopes.length - envelopesDenied,
    envelopesDenied,
    canceled: [...canceled, ...done.canceled],
    notices: notices.length,
    claimed: undefined as ClaimedDelegation | undefined,
  };
  const [first] = jobs;
  const isAlone = jobs.length === 1 && refused.length + envelopes.length + later.size === 0;
  const isEncrypted = first !== undefined && known.encryptedRooms.has(first.room);
  const slot = isAlone && first !== undefined ? slotFor(first, isEncrypted) : undefined;
  const sent =
    first !== undefined && slot !== undefined
      ? admitAndClaim(client, keys, admission, first, slot).then((claimed) => {
          result.claimed = claimed;
        })
      : writeJobs(client, keys, admission, placed);
  const further = admission.malformed.length + notices.length + envelopes.length + later.size;
  if (further === 0 && done.uses.every(({ indexDigest }) => indexDigest === undefined))
    return { result, sent };
  await sent;
  if (envelopes.length > 0) await writeEnvelopes(client, admission, envelopes);
  await recordIndices(client, done.uses, done.indices, receivedAt);
  if (admission.malformed.length > 0) await writeMalformed(client, admission);
  if (result.admitted + result.envelopes > 0) await reorder(client, order, later, receivedAt);
  await writeNotices(client, notices, receivedAt, settings.noticeIntervalMs);
  return { result };
}

const seal = (keys: ContentKeys, { event, ghost, prompt: text, attachment, sealed }: NewDelegation) =>
  sealed ?? sealPrompt(keys, event, ghost, { text, attachment });

function writeJobs(
  client: PoolClient,
  keys: ContentKeys,
  { receivedAt, ingress }: Admission,
  placed: Placed,
) {
  const { jobs } = placed;
  const admitted = jobs.filter(({ denied }) => denied === null).length;
  const totals = roomTotals(placed);
  const roomIds = totals.map(({ room }) => room);
  // Each room and target is sent once; the rows refer to it by its position in the array, counted from 1.
  const targets = [...new Map(jobs.map((job) => [job.ghost, job])).values()];
  return (admitted === jobs.length ? WRITE : WRITE_WITH_REFUSALS).rows(client, [
    toTime(receivedAt),
    admitted,
    ...columnsOf(totals, "room", "places", "slots", "gate"),
    ...columnsOf(targets, "ghost", "agent", "targetFingerprint"),
    ingress,
    jobs.map((job) => 1 + targets.findIndex((target) => target.ghost === job.ghost)),
    jobs.map((job) => 1 + roomIds.indexOf(job.room)),
    ...inOneValue(jobs.map((job) => (job.denied === null ? seal(keys, job) : undefined))),
    ...columnsOf(jobs, "event", "sender", "originServerTs", "threadRoot"),
    ...columnsOf(jobs, "seq", "ordinal", "siblings", "denied", "agentTurn", "contextId", "editedTs"),
  ]);
}

/** Returns the question, if it was claimed. Only under its room's lock. */
async function admitAndClaim(
  on: Queryable,
  keys: ContentKeys,
  { ingress, receivedAt }: Admission,
  job: PlacedJob,
  { holder, leaseUntil }: ClaimSlot,
): Promise<ClaimedDelegation | undefined> {
  const [claimed] = await ADMIT_AND_CLAIM.rows(on, [
    ...[job.room, toTime(receivedAt), holder, toTime(leaseUntil), job.seq],
    ...[job.event, job.ghost, job.agent, job.targetFingerprint, job.sender, job.originServerTs],
    ...[job.threadRoot, ingress, seal(keys, job), job.agentTurn, job.contextId, job.editedTs],
  ]);
  return claimed && toClaimed(claimed, holder, keys);
}

async function writeEnvelopes(
  client: PoolClient,
  { transactionId, ingress, receivedAt }: Admission,
  placed: readonly PlacedIntakeEnvelope[],
): Promise<void> {
  await WRITE_ENVELOPES.rows(client, [
    transactionId,
    ingress,
    toTime(receivedAt),
    placed.map(({ deadline }) => toTime(deadline)),
    ...columnsOf(placed, "event", "room", "sender", "originServerTs"),
    ...columnsOf(placed, "fingerprint", "seq", "denied", "edits", "direct", "refersTo"),
  ]);
}

async function writeMalformed(client: PoolClient, { transactionId, receivedAt, malformed }: Admission) {
  const events = columnsOf(malformed, "sha256", "reason", "event", "room");
  await WRITE_MALFORMED.rows(client, [transactionId, toTime(receivedAt), ...events]);
}

/** @param intentOf the intent to call that is being recorded, if one is: it makes the admission durable too */
export function createIntake(
  pool: Pool,
  settings: LedgerSettings,
  intentOf: (lease: Lease) => Promise<unknown> | undefined,
) {
  const doubts = createClaimsOfUnknownCommits(pool);
  return {
    /** Safe to repeat. Resolves once it is on disk. @throws what the database throws: nothing was committed, unless an answer was lost */
    async admit(admission: Admission): Promise<Admitted> {
      const { events, redacted, order = new Map() } = admission;
      // A room may be put in order for an event that has no readable ID, and is not among these.
      const roomIds = [...[...events, ...redacted].map(({ room }) => room), ...order.keys()];
      let claiming: ClaimOfUnknownCommit | undefined;
      let admitted: Admitted | undefined;
      // The transaction may be made again.
      const slotFor: Admission["slotFor"] = (question, isEncrypted) => {
        const slot = claiming?.slot ?? admission.slotFor?.(question, isEncrypted);
        claiming = slot && { question, slot };
        return slot;
      };
      try {
        admitted = await inRooms(pool, roomIds, (client) => admitOn(client, settings, admission, slotFor));
      } catch (error) {
        if (claiming !== undefined && isPassing(error)) doubts.add(claiming);
        throw error;
      } finally {
        if (claiming !== undefined && admitted?.replayed === true) doubts.add(claiming);
        const givenBack = doubts.giveBackAll(admission.receivedAt);
        // The end of a slot wakes its worker, which then finds what was given back.
        if (claiming === undefined || !doubts.has(claiming)) claiming?.slot.end(admitted?.claimed);
        else void givenBack.then(() => claiming?.slot.end(undefined));
      }
      const { claimed, replayed } = admitted;
      if (claiming !== undefined && !replayed) {
        // A question that needs nothing but the database is on its way to its agent by then.
        await setImmediate();
        const outcome = claimed && (await intentOf(claimed.lease)?.catch(() => undefined));
        if (outcome !== "begun") await MAKE_DURABLE.one(pool, [[claiming.question.event]]);
        // The call is made before the acknowledgement is.
        else await setImmediate();
      }
      if ((admission.decryptedIn ?? []).length > 0) await keysFound(pool, admission.decryptedIn ?? []);
      return admitted;
    },

    /** Which of these events were handled, as far as that is remembered. */
    async handled(events: readonly EventId[]): Promise<ReadonlySet<EventId>> {
      return new Set((await HANDLED.rows(pool, [events])).map(({ event }) => event));
    },
  };
}
