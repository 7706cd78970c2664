// Admission: one homeserver transaction becomes rows, in one database transaction under the locks of its rooms.
// Invariants: an event is handled once, whichever process it comes to and however often, because the transaction that
// handles it inserts its row; a room's places have no gaps; no remote call is made meanwhile; everything of a transaction
// is committed, or nothing. What its events mean is decided by `derive`, a pure function of the events and of the facts
// that are known at that moment. A single question whose turn it is at once is claimed as it is admitted, for a slot that
// its process keeps for it.
import type { Pool, PoolClient } from "pg";
import type { EventId } from "../../domain/identifiers.ts";
import {
  indexOwners,
  type KnownRow,
  knownOpen,
  readForgotten,
  readKnown,
  recordIndices,
  speakersOf,
  toFacts,
} from "./admission-facts.ts";
import {
  type Admission,
  type Admitted,
  type ClaimSlot,
  type Derived,
  type NewDelegation,
  NOTHING_ADMITTED,
} from "./admission-types.ts";
import { admitAndClaim } from "./admit-and-claim.ts";
import { recordAnswers, recordPosted } from "./agent-questions.ts";
import { cancelDelegations, cancelRedacted } from "./cancellation.ts";
import { countOpen } from "./capacity.ts";
import type { ContentKeys } from "./content-keys.ts";
import { writeDeviceInbox } from "./device-inbox.ts";
import { keysFound } from "./envelope-expiry.ts";
import { firstLaterPlaces, reorder } from "./late-events.ts";
import type { ClaimedDelegation } from "./leases.ts";
import { refusedEnvelopes, refusedJobs, writeNotices } from "./notices.ts";
import {
  isFirstUse,
  type Placed,
  type PlacedIntakeEnvelope,
  place,
  roomTotals,
  STAGE_OF_DENIED,
} from "./place-or-refuse.ts";
import { inRooms, type Queryable, rows, statement, toTime, type Work } from "./postgres.ts";
import { sealPrompt } from "./prompts.ts";
import { applyRoomState } from "./room-state.ts";

// A delegation or an intake envelope may be kept for longer than the row of its event, and its key is unique.
const HANDLE = statement("handle_events")`
  INSERT INTO bridge_handled_events (matrix_event_id, handled_at)
  SELECT event, $2 FROM unnest($1::text[]) AS u (event)
  WHERE NOT EXISTS (SELECT FROM bridge_delegations d WHERE d.matrix_event_id = event)
    AND NOT EXISTS (SELECT FROM bridge_encrypted_intake e WHERE e.matrix_event_id = event)
  ORDER BY event
  ON CONFLICT DO NOTHING RETURNING matrix_event_id AS event`;

const HANDLED = statement("handled_events")`
  SELECT matrix_event_id AS event FROM bridge_handled_events WHERE matrix_event_id = ANY ($1)`;

const ADMIT = `
  WITH capacity AS (
    UPDATE bridge_capacity SET admitted = admitted + $2 WHERE $2 > 0
  ), rooms AS (
    INSERT INTO bridge_rooms AS r (room_id, next_seq, head_at, open_count, gate_seq)
    SELECT room_id, 1 + places, CASE WHEN places > 0 AND gate IS DISTINCT FROM 1 THEN $1::timestamptz END, slots, gate
    FROM unnest($3::text[], $4::int[], $5::int[], $20::bigint[]) AS u (room_id, places, slots, gate)
    ON CONFLICT (room_id) DO UPDATE SET
      next_seq = r.next_seq + excluded.next_seq - 1,
      open_count = r.open_count + excluded.open_count,
      gate_seq = COALESCE(r.gate_seq, r.next_seq + excluded.gate_seq - 1),
      head_at = CASE WHEN r.head_seq < r.next_seq THEN r.head_at ELSE excluded.head_at END
  ), delegations AS (
    INSERT INTO bridge_delegations
      (matrix_event_id, ghost_mxid, room_id, sender_mxid, origin_server_ts, thread_root, ingress, agent_id,
       target_fingerprint, prompt, agent_turn, a2a_context_id, room_seq, room_ordinal, room_siblings, state,
       terminal_stage, terminal_reason, admitted_at, terminal_at)
    SELECT event, ($6::text[])[target], ($3::text[])[room], sender, ts, thread, $21, ($7::text[])[target],
      ($8::text[])[target],
      prompt, turn, context, seq, ordinal, siblings,
      CASE WHEN denied IS NULL THEN 'queued' ELSE 'denied' END,
      ${STAGE_OF_DENIED}, denied, $1,
      CASE WHEN denied IS NULL THEN NULL ELSE $1::timestamptz END
    FROM unnest($9::text[], $10::int[], $11::int[], $12::text[], $13::bigint[], $14::text[], $15::bytea[],
      $16::bigint[], $17::int[], $18::int[], $19::text[], $22::int[], $23::text[])
      AS u (event, target, room, sender, ts, thread, prompt, seq, ordinal, siblings, denied, turn, context)`;

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
     room_seq, state, due_at, admitted_at, terminal_at, terminal_reason)
  SELECT event, room, sender, ts, $1, $2, fingerprint, deadline, seq,
    CASE WHEN denied IS NULL THEN 'awaiting_key' ELSE 'denied' END, CASE WHEN denied IS NULL THEN $3::timestamptz END,
    $3, CASE WHEN denied IS NOT NULL THEN $3::timestamptz END, denied
  FROM unnest($4::text[], $5::text[], $6::text[], $7::bigint[], $8::bytea[], $9::timestamptz[], $10::bigint[],
    $11::text[]) AS u (event, room, sender, ts, fingerprint, deadline, seq, denied)`;

const WRITE_MALFORMED = statement("admit_malformed")`
  INSERT INTO bridge_malformed_events (event_sha256, transaction_id, reason, matrix_event_id, room_id, received_at)
  SELECT digest, $1, reason, event, room, $2
  FROM unnest($3::bytea[], $4::text[], $5::text[], $6::text[]) AS u (digest, reason, event, room)
  ON CONFLICT DO NOTHING`;

const REPLAY: Admitted = { ...NOTHING_ADMITTED, replayed: true };

const NOTHING: Derived = { delegations: [], answers: [], cancels: [], envelopes: [], notices: [] };

async function admitOn(
  client: PoolClient,
  keys: ContentKeys,
  refuseEncryptedRooms: boolean,
  admission: Admission,
  slotFor: NonNullable<Admission["slotFor"]>,
): Promise<Work<Admitted>> {
  const time = toTime(admission.receivedAt);
  const all = admission.events.map(({ event }) => event);
  const { redacted, posted = [], roomState, receivedAt, order = new Map() } = admission;
  await writeDeviceInbox(client, admission.mail ?? [], receivedAt);
  const seal = (job: NewDelegation) =>
    sealPrompt(keys, job.event, job.ghost, { text: job.prompt, attachment: job.attachment });
  const derive = (row: KnownRow) => {
    const found = admission.about.rooms.length === 0 ? NOTHING : admission.derive(toFacts(row, keys));
    return { row, found, sealed: new Map(found.delegations.map((job) => [job, seal(job)])) };
  };
  // Where nothing is written first, the facts are read first: the server inserts the rows while this process derives.
  const isReadAtOnce = redacted.length + posted.length + roomState.length + order.size === 0;
  const [derivedAtOnce, inserted, forgottenBefore] = await Promise.all([
    isReadAtOnce ? readKnown(client, admission.about, receivedAt).then(derive) : undefined,
    rows<{ event: EventId }>(client, HANDLE, [all, time]),
    isReadAtOnce ? readForgotten(client) : undefined,
  ]);
  const fresh = new Set(inserted.map(({ event }) => event));
  if (fresh.size === 0 && all.length > 0) return { result: REPLAY };
  const isFresh = ({ event }: { readonly event: EventId }) => fresh.has(event);

  // An answer that is in the same transaction must find its question.
  await recordPosted(client, posted);
  // Cancellation is first, because it locks delegations, and the later statements lock rooms.
  const canceled = redacted.length > 0 ? await cancelRedacted(client, redacted, receivedAt) : [];
  await applyRoomState(client, roomState, receivedAt, refuseEncryptedRooms);
  const later = await firstLaterPlaces(client, order);
  // What retention deleted since the facts were read was inserted again, and is not new.
  const current = derivedAtOnce?.row.forgotten_before === forgottenBefore ? derivedAtOnce : undefined;
  const { row, found, sealed } = current ?? derive(await readKnown(client, admission.about, receivedAt));
  const derived: Derived = {
    delegations: found.delegations.filter(isFresh),
    answers: found.answers.filter(isFresh),
    envelopes: found.envelopes.filter(isFresh),
    cancels: found.cancels.filter(isFresh),
    notices: found.notices.filter(({ event, source }) => fresh.has(event ?? source)),
  };
  // Before the rooms are locked, as delegations are everywhere.
  const done = await changeAsked(client, keys, derived, all, receivedAt);
  const open = await countOpen(client, knownOpen(row), derived, admission.capacity);
  const placed = place(derived, row, done.indices, open, admission.capacity);
  const { jobs, envelopes } = placed;
  const denied = jobs.filter((entry) => entry.denied !== null).length;
  const envelopesDenied = envelopes.filter((entry) => entry.denied !== null).length;
  const speakers = speakersOf(row);
  const notices = [
    ...derived.notices,
    ...done.notices,
    ...refusedJobs(jobs),
    ...refusedEnvelopes(envelopes, (room) => speakers.get(room)),
  ];
  const result = {
    replayed: false,
    admitted: jobs.length - denied,
    denied,
    answers: done.answers,
    envelopes: envelopes.length - envelopesDenied,
    envelopesDenied,
    malformed: admission.malformed.length,
    canceled: [...canceled, ...done.canceled],
    notices: notices.length,
    claimed: undefined as ClaimedDelegation | undefined,
  };
  const sealedOf = (job: NewDelegation) => sealed.get(job) ?? seal(job);
  const [first] = jobs;
  const isAlone = jobs.length === 1 && denied + envelopes.length + later.size === 0;
  const isEncrypted = (row.rooms ?? []).some(([room, encrypted]) => encrypted && room === first?.job.room);
  const slot = isAlone && first !== undefined ? slotFor(first.job, isEncrypted) : undefined;
  const sent =
    first !== undefined && slot !== undefined
      ? admitAndClaim(client, keys, admission, { ...first, sealedPrompt: sealedOf(first.job) }, slot).then(
          (claimed) => {
            result.claimed = claimed;
          },
        )
      : writeJobs(client, admission, placed, sealedOf);
  const further = admission.malformed.length + notices.length + envelopes.length + later.size;
  if (further === 0 && done.uses.every(({ indexDigest }) => indexDigest === undefined))
    return { result, sent };
  await sent;
  if (envelopes.length > 0) await writeEnvelopes(client, admission, envelopes);
  await recordIndices(client, done.uses, done.indices, receivedAt);
  if (admission.malformed.length > 0) await writeMalformed(client, admission);
  if (result.admitted + result.envelopes > 0) await reorder(client, order, later, receivedAt);
  await writeNotices(client, notices, receivedAt, admission.noticeIntervalMs);
  return { result };
}

/**
 * Records what was derived for earlier questions: answers and cancellations. Whatever a ciphertext means, it means it once:
 * who repeats one can neither ask, answer nor cancel by it.
 * @param order events in the order in which they came
 */
export async function changeAsked(
  on: Queryable,
  keys: ContentKeys,
  { delegations, answers, cancels }: Omit<Derived, "envelopes" | "notices">,
  order: readonly EventId[],
  now: number,
) {
  const uses = [...delegations, ...answers, ...cancels];
  const indices = await indexOwners(on, uses, order);
  const isOwn = (one: (typeof uses)[number]) => isFirstUse(indices, one);
  const own = answers.filter(isOwn);
  const tooLate = await recordAnswers(on, keys, own, now);
  const canceled = cancels.filter(isOwn).map(({ delegation }) => delegation);
  const { marked, notices } = await cancelDelegations(on, "sender_canceled", canceled, now);
  return {
    ...{ uses, indices, canceled: marked, notices: [...tooLate, ...notices] },
    answers: own.length - tooLate.length,
  };
}

function writeJobs(
  client: PoolClient,
  { receivedAt, ingress }: Admission,
  placed: Placed,
  sealedOf: (job: NewDelegation) => Buffer,
): Promise<unknown> {
  const { jobs } = placed;
  const time = toTime(receivedAt);
  const denied = jobs.filter((entry) => entry.denied !== null).length;
  const totals = roomTotals(placed);
  const roomIds = totals.map(({ room }) => room);
  // Each room and target is sent once; the rows refer to it by its position in the array, counted from 1.
  const targets = [...new Map(jobs.map(({ job }) => [job.ghost, job])).values()];
  return rows(client, denied === 0 ? WRITE : WRITE_WITH_REFUSALS, [
    time,
    jobs.length - denied,
    roomIds,
    totals.map(({ places }) => places),
    totals.map(({ slots }) => slots),
    targets.map((job) => job.ghost),
    targets.map((job) => job.agent),
    targets.map((job) => job.targetFingerprint),
    jobs.map(({ job }) => job.event),
    jobs.map(({ job }) => 1 + targets.findIndex((target) => target.ghost === job.ghost)),
    jobs.map(({ job }) => 1 + roomIds.indexOf(job.room)),
    jobs.map(({ job }) => job.sender),
    jobs.map(({ job }) => job.originServerTs),
    jobs.map(({ job }) => job.threadRoot ?? null),
    jobs.map(({ job, denied: refused }) => (refused === null ? sealedOf(job) : null)),
    jobs.map(({ seq }) => seq),
    jobs.map(({ ordinal }) => ordinal),
    jobs.map(({ siblings }) => siblings),
    jobs.map(({ denied: refused }) => refused),
    totals.map(({ gate }) => gate),
    ingress,
    jobs.map(({ job }) => job.agentTurn),
    jobs.map(({ job }) => job.contextId ?? null),
  ]);
}

async function writeEnvelopes(
  client: PoolClient,
  { transactionId, ingress, receivedAt }: Admission,
  placed: readonly PlacedIntakeEnvelope[],
): Promise<void> {
  await rows(client, WRITE_ENVELOPES, [
    transactionId,
    ingress,
    toTime(receivedAt),
    placed.map(({ envelope }) => envelope.event),
    placed.map(({ envelope }) => envelope.room),
    placed.map(({ envelope }) => envelope.sender),
    placed.map(({ envelope }) => envelope.originServerTs),
    placed.map(({ envelope }) => envelope.fingerprint),
    placed.map(({ envelope }) => toTime(envelope.deadline)),
    placed.map(({ seq }) => seq),
    placed.map(({ denied }) => denied),
  ]);
}

async function writeMalformed(client: PoolClient, admission: Admission): Promise<void> {
  await rows(client, WRITE_MALFORMED, [
    admission.transactionId,
    toTime(admission.receivedAt),
    admission.malformed.map((event) => event.sha256),
    admission.malformed.map((event) => event.reason),
    admission.malformed.map((event) => event.event ?? null),
    admission.malformed.map((event) => event.room ?? null),
  ]);
}

export function createIntake(pool: Pool, keys: ContentKeys, refuseEncryptedRooms: boolean) {
  return {
    /**
     * Commits a transaction of the homeserver. When it returns, everything is durable. Safe to repeat.
     * @throws whatever the database threw; then nothing of it was committed
     */
    async admit(admission: Admission): Promise<Admitted> {
      const roomIds = [...admission.events, ...admission.redacted].map(({ room }) => room);
      let slot: ClaimSlot | undefined;
      let admitted: Admitted | undefined;
      // The transaction may be made again.
      const slotFor: Admission["slotFor"] = (...question) => (slot ??= admission.slotFor?.(...question));
      try {
        admitted = await inRooms(pool, roomIds, (client) =>
          admitOn(client, keys, refuseEncryptedRooms, admission, slotFor),
        );
      } finally {
        slot?.end(admitted?.claimed);
      }
      if ((admission.decryptedIn ?? []).length > 0) await keysFound(pool, admission.decryptedIn ?? []);
      return admitted;
    },

    /** Which of these events were handled, as far as that is remembered. */
    async handled(events: readonly EventId[]): Promise<ReadonlySet<EventId>> {
      return new Set((await rows<{ event: EventId }>(pool, HANDLED, [events])).map(({ event }) => event));
    },
  };
}
