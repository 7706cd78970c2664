// Admission: one homeserver transaction becomes rows, in one database transaction.
// Invariants: one admission at a time in the whole deployment (an advisory lock), so capacity is exact and
// sequence numbers are dense; nothing remote happens while it is open; either everything of it is committed
// or nothing is. What the events mean is decided by `derive`, a pure function of them and of what is known.
import type { Pool, PoolClient } from "pg";
import { sha256 } from "../../domain/digest.ts";
import type { EventId, GhostMxid, RoomId } from "../../domain/identifiers.ts";
import { type Admission, type Admitted, inRoom, type KnownFacts, type NewNotice } from "./admission.ts";
import { promptIdentity } from "./claim.ts";
import { applyRoomState } from "./memberships.ts";
import { noticeBound } from "./notice-bound.ts";
import { type KnownPlaces, type Placed, place, roomTotals } from "./placement.ts";
import type { ContentKeys } from "./seal.ts";
import { oneRow, rows, type Statement, toTime } from "./statement.ts";
import type { NoticeKind } from "./states.ts";
import { inTransaction, type Work } from "./transaction.ts";
import { noticeTransactionId } from "./transaction-ids.ts";

// "drawbrig" as a 64-bit key: one lock for all admissions.
const BEGIN = "BEGIN; SELECT pg_advisory_xact_lock(7237127932340562279)";

const SEEN: Statement = {
  name: "transaction_seen",
  text: `SELECT EXISTS (SELECT FROM bridge_transactions WHERE transaction_id = $1 AND body_sha256 = $2) AS seen`,
};

const KNOWN: Statement = {
  name: "known_facts",
  text: `
  SELECT
    EXISTS (SELECT FROM bridge_transactions WHERE transaction_id = $1 AND body_sha256 = $2) AS seen,
    (SELECT counted_open + admitted - counted_at_admitted FROM bridge_capacity)::int AS open_global_max,
    (SELECT json_agg(json_build_array(room_id, encrypted, open_count, next_seq))
       FROM bridge_rooms WHERE room_id = ANY ($3)) AS rooms,
    (SELECT json_agg(json_build_array(g.room_id, g.ghost_mxid, g.membership, g.direct AND (
         SELECT count(*) FROM (SELECT FROM bridge_room_members m WHERE m.room_id = g.room_id LIMIT 2) two) = 1))
       FROM bridge_ghost_rooms g WHERE g.room_id = ANY ($3)) AS ghosts,
    (SELECT json_agg(json_build_array(room, event, ghost, said)) FROM (
       SELECT d.room_id AS room, s.event_id AS event, d.ghost_mxid AS ghost, true AS said
         FROM bridge_sends s JOIN bridge_delegations d ON d.id = s.delegation_id WHERE s.event_id = ANY ($5)
       UNION SELECT room_id, matrix_event_id, ghost_mxid, false FROM bridge_delegations
         WHERE matrix_event_id = ANY ($5)
       UNION SELECT room_id, thread_root, ghost_mxid, false FROM bridge_delegations
         WHERE room_id = ANY ($3) AND thread_root = ANY ($5)) spoken) AS spoken,
    (SELECT json_agg(json_build_array(matrix_event_id, ghost_mxid))
       FROM bridge_delegations WHERE matrix_event_id = ANY ($4)) AS pairs`,
};

const COUNT_OPEN: Statement = {
  name: "count_open",
  text: `
  UPDATE bridge_capacity SET
    counted_open = COALESCE((SELECT sum(open_count) FROM bridge_rooms), 0), counted_at_admitted = admitted
  RETURNING counted_open::int AS open_global`,
};

interface KnownRow extends KnownPlaces {
  seen: boolean;
  /** Never less than what is open now. */
  open_global_max: number;
  ghosts: [string, string, "invite" | "join" | "leave", boolean][] | null;
  spoken: [string, string, string, boolean][] | null;
}

const ADMIT = `
  WITH transaction AS (
    INSERT INTO bridge_transactions
      (transaction_id, body_sha256, received_at, events, admitted, denied, malformed)
    VALUES ($1, $2, $3, $4, $5, $6, $7)
  ), capacity AS (
    UPDATE bridge_capacity SET admitted = admitted + $5 WHERE $5 > 0
  ), rooms AS (
    INSERT INTO bridge_rooms AS r (room_id, next_seq, head_at, open_count)
    SELECT room_id, 1 + events, CASE WHEN events > 0 THEN $3::timestamptz END, jobs
    FROM unnest($8::text[], $9::int[], $10::int[]) AS u (room_id, events, jobs)
    ON CONFLICT (room_id) DO UPDATE SET
      next_seq = r.next_seq + excluded.next_seq - 1,
      open_count = r.open_count + excluded.open_count,
      head_at = COALESCE(r.head_at, excluded.head_at)
  ), delegations AS (
    INSERT INTO bridge_delegations
      (matrix_event_id, ghost_mxid, room_id, sender_mxid, origin_server_ts, thread_root, agent_id,
       target_fingerprint, prompt, room_seq, room_ordinal, room_siblings, state,
       terminal_stage, terminal_reason, admitted_at, terminal_at)
    SELECT event, ($11::text[])[target], ($8::text[])[room], sender, ts, thread, ($12::text[])[target],
      ($13::text[])[target],
      prompt, seq, ordinal, siblings,
      CASE WHEN denied IS NULL THEN 'queued' ELSE 'denied' END,
      CASE WHEN denied IS NULL THEN NULL ELSE 'intake' END, denied, $3,
      CASE WHEN denied IS NULL THEN NULL ELSE $3::timestamptz END
    FROM unnest($14::text[], $15::int[], $16::int[], $17::text[], $18::bigint[], $19::text[], $20::bytea[],
      $21::bigint[], $22::int[], $23::int[], $24::text[])
      AS u (event, target, room, sender, ts, thread, prompt, seq, ordinal, siblings, denied)`;

const WRITE: Statement = { name: "admit", text: `${ADMIT}) SELECT` };

// Refusals are terminal from the start, and audited as such.
const WRITE_WITH_REFUSALS: Statement = {
  name: "admit_with_refusals",
  text: `${ADMIT} RETURNING *)
  INSERT INTO bridge_audit (schema, record, created_at)
  SELECT 'svc.delegation.v1', bridge_delegation_audit(d.*::bridge_delegations), $3
  FROM delegations d WHERE d.state = 'denied'`,
};

const WRITE_MALFORMED: Statement = {
  name: "admit_malformed",
  text: `
  INSERT INTO bridge_malformed_events (event_sha256, transaction_id, reason, matrix_event_id, room_id, received_at)
  SELECT digest, $1, reason, event, room, $2
  FROM unnest($3::bytea[], $4::text[], $5::text[], $6::text[]) AS u (digest, reason, event, room)
  ON CONFLICT DO NOTHING`,
};

const WRITE_NOTICE: Statement = {
  name: "admit_notice",
  text: `
  INSERT INTO bridge_notices
    (marker, kind, room_id, ghost_mxid, source_event_id, thread_root, reason, transaction_id, created_at, due_at)
  SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $9
  WHERE NOT EXISTS (
    SELECT FROM bridge_notices n WHERE $10::timestamptz IS NOT NULL AND n.room_id = $3 AND n.kind = $2
      AND n.ghost_mxid = $4 AND n.created_at > $10)
  ON CONFLICT DO NOTHING`,
};

// A queued delegation ends here and now; one in a worker's hands is marked, and its worker ends it; one
// that waits for its next try is claimable at once, so that a worker ends it. The turn of a room is
// hastened only for its head: another delegation's lease is not to be cut short.
const CANCEL: Statement = {
  name: "cancel_redacted",
  text: `
  WITH hit AS MATERIALIZED (
    SELECT d.id, d.state FROM bridge_delegations d
    JOIN unnest($1::text[], $3::text[]) AS u (event, room) ON d.matrix_event_id = u.event AND d.room_id = u.room
    WHERE d.terminal_at IS NULL ORDER BY d.id FOR UPDATE OF d
  ), marked AS (
    UPDATE bridge_delegations d SET
      cancel_requested_at = $2,
      due_at = CASE WHEN d.lease_holder IS NULL AND d.due_at IS NOT NULL THEN $2::timestamptz ELSE d.due_at END
    FROM hit WHERE d.id = hit.id AND hit.state <> 'queued'
    RETURNING d.id, d.room_id, d.room_seq, d.room_ordinal, d.lease_holder IS NULL AS is_free
  ), ended AS (
    UPDATE bridge_delegations d SET
      state = 'canceled', terminal_stage = 'intake', terminal_reason = 'source_redacted', terminal_at = $2,
      cancel_requested_at = $2, prompt = NULL
    FROM hit WHERE d.id = hit.id AND hit.state = 'queued'
    RETURNING d.*
  ), moved AS MATERIALIZED (
    SELECT room_id, room_seq, room_ordinal, 1 AS freed FROM ended
    UNION ALL SELECT room_id, room_seq, room_ordinal, 0 FROM marked WHERE is_free
  ), locked AS MATERIALIZED (
    SELECT room_id FROM bridge_rooms WHERE room_id IN (SELECT room_id FROM moved) ORDER BY room_id FOR UPDATE
  ), rooms AS (
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
  SELECT ARRAY(SELECT id::text FROM marked) AS marked`,
};

function toFacts(row: KnownRow): KnownFacts {
  const ghostsIn = new Map<RoomId, Set<GhostMxid>>();
  const ghostsGone = new Map<RoomId, Set<GhostMxid>>();
  const directWith = new Map<RoomId, GhostMxid>();
  for (const [room, ghost, membership, direct] of row.ghosts ?? []) {
    const side = membership === "leave" ? ghostsGone : ghostsIn;
    const set = side.get(room as RoomId) ?? new Set();
    side.set(room as RoomId, set.add(ghost as GhostMxid));
    if (direct && membership !== "leave") directWith.set(room as RoomId, ghost as GhostMxid);
  }
  for (const room of directWith.keys()) if ((ghostsIn.get(room)?.size ?? 0) > 1) directWith.delete(room);
  const saidBy = new Map<string, Set<GhostMxid>>();
  const threadOf = new Map<string, Set<GhostMxid>>();
  for (const [room, event, ghost, said] of row.spoken ?? []) {
    const key = inRoom(room as RoomId, event as EventId);
    for (const map of said ? [saidBy, threadOf] : [threadOf]) {
      map.set(key, (map.get(key) ?? new Set()).add(ghost as GhostMxid));
    }
  }
  return {
    encryptedRooms: new Set(
      (row.rooms ?? []).filter(([, encrypted]) => encrypted).map(([room]) => room as RoomId),
    ),
    ghostsIn,
    ghostsGone,
    directWith,
    saidBy,
    threadOf,
  };
}

async function writeNotices(
  client: PoolClient,
  admission: Admission,
  placed: readonly Placed[],
  asked: readonly NewNotice[],
) {
  const refusals = placed
    .filter(({ denied }) => denied !== null)
    .map(({ job, denied }) => ({
      kind: "capacity_exceeded" as NoticeKind,
      room: job.room,
      ghost: job.ghost,
      source: job.event,
      threadRoot: job.threadRoot,
      reason: denied,
    }));
  const time = toTime(admission.receivedAt);
  for (const notice of [...asked.map((one) => ({ ...one, reason: null })), ...refusals]) {
    const bound = noticeBound(notice, "intake", admission.receivedAt, admission.noticeIntervalMs);
    await rows(client, WRITE_NOTICE, [
      bound.marker,
      notice.kind,
      notice.room,
      notice.ghost,
      notice.source,
      notice.threadRoot ?? null,
      notice.reason,
      noticeTransactionId(bound.marker),
      time,
      bound.since === undefined ? null : toTime(bound.since),
    ]);
  }
}

async function admitOn(client: PoolClient, keys: ContentKeys, admission: Admission): Promise<Work<Admitted>> {
  const digest = sha256(admission.body);
  const time = toTime(admission.receivedAt);
  const key = [admission.transactionId, digest];
  const replay = { replayed: true, admitted: 0, denied: 0, malformed: 0, canceled: [], notices: 0 };

  let canceled: string[] = [];
  if (admission.roomState.length > 0 || admission.redacted.length > 0) {
    if ((await oneRow<{ seen: boolean }>(client, SEEN, key)).seen) return { result: replay };
    // Cancellation first: it locks delegations, and all else that follows locks rooms.
    if (admission.redacted.length > 0) {
      canceled = (
        await oneRow<{ marked: string[] }>(client, CANCEL, [
          admission.redacted.map(({ event }) => event),
          time,
          admission.redacted.map(({ room }) => room),
        ])
      ).marked;
    }
    await applyRoomState(client, admission.roomState, admission.receivedAt);
  }
  const { rooms: roomIds, events, related } = admission.about;
  const row = await oneRow<KnownRow>(client, KNOWN, [...key, roomIds, events, related]);
  if (row.seen) return { result: replay };
  const derived = roomIds.length === 0 ? { delegations: [], notices: [] } : admission.derive(toFacts(row));
  const jobs = derived.delegations;
  const mayExceed = row.open_global_max + jobs.length > admission.capacity.global;
  const openBefore = mayExceed
    ? (await oneRow<{ open_global: number }>(client, COUNT_OPEN, [])).open_global
    : row.open_global_max;
  const placed = place(jobs, row, openBefore, admission.capacity);
  const denied = placed.filter((entry) => entry.denied !== null).length;
  const totals = roomTotals(placed);
  // Rooms and targets recur: each is sent once, and the rows name it by its place, counted from 1.
  const targets = [...new Map(placed.map(({ job }) => [job.ghost, job])).values()];
  const sent = rows(client, denied === 0 ? WRITE : WRITE_WITH_REFUSALS, [
    ...key,
    time,
    admission.eventCount,
    placed.length - denied,
    denied,
    admission.malformed.length,
    totals.rooms,
    totals.events,
    totals.jobs,
    targets.map((job) => job.ghost),
    targets.map((job) => job.agent),
    targets.map((job) => job.targetFingerprint),
    placed.map(({ job }) => job.event),
    placed.map(({ job }) => 1 + targets.findIndex((target) => target.ghost === job.ghost)),
    placed.map(({ job }) => 1 + totals.rooms.indexOf(job.room)),
    placed.map(({ job }) => job.sender),
    placed.map(({ job }) => job.originServerTs),
    placed.map(({ job }) => job.threadRoot ?? null),
    placed.map(({ job, denied: refused }) =>
      refused === null ? keys.seal(job.prompt, promptIdentity(job.event, job.ghost)) : null,
    ),
    placed.map(({ seq }) => seq),
    placed.map(({ ordinal }) => ordinal),
    placed.map(({ siblings }) => siblings),
    placed.map(({ denied: refused }) => refused),
  ]);
  const result = {
    replayed: false,
    admitted: placed.length - denied,
    denied,
    malformed: admission.malformed.length,
    canceled,
    notices: derived.notices.length + denied,
  };
  if (admission.malformed.length === 0 && result.notices === 0) return { result, sent };
  await sent;
  if (admission.malformed.length > 0) await writeMalformed(client, admission);
  await writeNotices(client, admission, placed, derived.notices);
  return { result };
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

/**
 * Commits a transaction of the homeserver. When it returns, everything is durable.
 * @throws whatever the database threw; then nothing of it was kept.
 */
export async function admit(pool: Pool, keys: ContentKeys, admission: Admission): Promise<Admitted> {
  return await inTransaction(pool, BEGIN, (client) => admitOn(client, keys, admission));
}
