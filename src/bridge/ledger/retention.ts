// How long rows are kept after their end, and their deletion by the process with the role `retention`.
// Invariants: a row that is open, or that was not exported, is never deleted; whatever forgets which events were handled
// records how far, in the same statement; a batch is bounded in rows and time, and goes on where the last one ended; by a clock
// that has just been set nothing is deleted.
import type { Pool } from "pg";
import type { Clock } from "../../domain/clock.ts";
import type { BridgeConfig } from "../config.ts";
import { type Statement, statement, toTime } from "./postgres.ts";

/** In milliseconds. */
export type RetentionTimes = BridgeConfig["retention"] & {
  /** Of room keys, after their last use (`encryption.sessionRetention`). */
  readonly sessions: number;
  /** Of the names of agents' contexts, after the end of the delegation (`limits.contextLifetime`). */
  readonly contexts: number;
};

type Deletion = { readonly deleted: number; readonly last: number | undefined };

interface Kind {
  readonly name: string;
  readonly keep: (times: RetentionTimes) => number;
  /** $1: what ended before it is deleted; $2: how many rows at most; $3: nothing that ended before it is left. */
  readonly delete: Statement<Deletion>;
  /** The newest time of all rows. When given, the time is counted back from it, should it be older than now. */
  readonly newest?: Statement<{ newest: number | undefined }>;
}

interface Rows {
  readonly table: string;
  /** Its ID when absent. */
  readonly key?: readonly string[];
  /** The time of its end, a column or an expression; an index begins with it. */
  readonly ended: string;
  /** What else must hold: the predicate of that index, and conditions on `e`. */
  readonly where?: string;
  /** Instead of the deletion of those rows `t`. */
  readonly change?: string;
  readonly also?: string;
}

function kind(name: string, keep: Kind["keep"], rows: Rows): Kind {
  const { table, key = ["id"], ended, where = "true", also = "" } = rows;
  const { change = `DELETE FROM ${table} t USING` } = rows;
  const same = key.map((column) => `t.${column} = e.${column}`).join(" AND ");
  const statementOfKind = statement<Deletion>(`retention_${name}`)`
    WITH ended AS MATERIALIZED (
      SELECT ${key.map((column) => `e.${column}`).join(", ")}, ${ended} AS at FROM ${table} e
      WHERE ${ended} < $1 AND ${ended} >= $3::timestamptz AND ${where}
      ORDER BY ${ended} LIMIT $2 FOR UPDATE SKIP LOCKED
    ), gone AS (
      ${change} ended e WHERE ${same}
    )${also === "" ? "" : `, ${also}`}
    SELECT count(*)::int AS deleted, max(at) AS last FROM ended`;
  return { name, keep, delete: statementOfKind };
}

/** A room outlives what was asked in it, because the places of its queue are counted in its row. */
const keepRooms = ({ rooms, delegations }: RetentionTimes) => Math.max(rooms, delegations);

/** Every ghost has left the room of `e`, and none is about to join. */
const DESERTED = `NOT EXISTS (
      SELECT FROM bridge_ghost_rooms o WHERE o.room_id = e.room_id AND (o.membership = 'join' OR o.task IS NOT NULL))`;

const WEEK_MS = 7 * 24 * 60 * 60_000;
const dayOf = (time: string) => `floor(extract(epoch FROM ${time}) / 86400)::int`;

const KINDS: readonly Kind[] = [
  {
    ...kind("handled_events", ({ handledEvents }) => handledEvents, {
      table: "bridge_handled_events",
      key: ["matrix_event_id"],
      ended: "handled_at",
      also: `forgotten AS (
        UPDATE bridge_forgotten SET before = $1 WHERE before < $1 AND EXISTS (SELECT FROM ended)
      )`,
    }),
    // What a catchup reads after a long downtime was handled before that began.
    newest: statement<{ newest: number | undefined }>(
      "newest_handled_event",
    )`SELECT max(handled_at) AS newest FROM bridge_handled_events`,
  },
  kind("malformed_events", ({ malformedEvents }) => malformedEvents, {
    table: "bridge_malformed_events",
    key: ["event_sha256"],
    ended: "received_at",
  }),
  kind("device_inbox", (keep) => keep.deviceInbox, { table: "bridge_device_inbox", ended: "received_at" }),
  // A bucket that nobody took a token of for so long is full again, as a new one is.
  kind("limiter", () => WEEK_MS, { table: "bridge_limiter", key: ["bucket"], ended: "refilled_at" }),
  // One that ended while it waited is kept until its room is past it: a claim steps over the row, not over a gap.
  kind("delegations", ({ delegations }) => delegations, {
    table: "bridge_delegations",
    ended: "terminal_at",
    where: `NOT EXISTS (SELECT FROM bridge_rooms r WHERE r.room_id = e.room_id
      AND (r.head_seq, r.head_ordinal) <= (e.room_seq, e.room_ordinal))`,
    also: "sends AS (DELETE FROM bridge_sends s USING ended e WHERE s.delegation_id = e.id)",
  }),
  // An agent could write anything into the name; nothing continues the conversation any more.
  kind("contexts", ({ contexts }) => contexts, {
    table: "bridge_delegations",
    ended: "CASE WHEN a2a_context_id IS NOT NULL THEN terminal_at END",
    change: "UPDATE bridge_delegations t SET a2a_context_id = NULL FROM",
  }),
  kind("envelopes", ({ delegations }) => delegations, {
    table: "bridge_encrypted_intake",
    key: ["matrix_event_id"],
    ended: "terminal_at",
  }),
  // Longer than any room key: what was asked with it could be asked again. The last use of a key is known to the week.
  kind("message_indices", (keep) => Math.max(keep.messageIndices, keep.sessions + 2 * WEEK_MS), {
    table: "bridge_megolm_indices",
    key: ["index_digest"],
    ended: "used_at",
  }),
  {
    name: "sessions",
    keep: ({ sessions }) => sessions,
    // No fence: a machine that still has such a record in memory writes it again when it uses it, and a record that is
    // being written at this moment is locked.
    delete: statement<Deletion>("retention_sessions")`
      WITH ended AS MATERIALIZED (
        SELECT ghost_mxid, object_store, record_key, used_day FROM bridge_crypto_records
        WHERE used_day < ${dayOf("$1::timestamptz")} AND used_day >= ${dayOf("GREATEST($3::timestamptz, 'epoch')")}
        ORDER BY used_day LIMIT $2 FOR UPDATE SKIP LOCKED
      ), gone AS (
        DELETE FROM bridge_crypto_records t USING ended e
        WHERE t.ghost_mxid = e.ghost_mxid AND t.object_store = e.object_store AND t.record_key = e.record_key
      )
      SELECT count(*)::int AS deleted, to_timestamp(max(used_day) * 86400.0) AS last FROM ended`,
  },
  // A room is told once that it is refused; that notice goes with the room.
  kind("notices", ({ notices }) => notices, {
    table: "bridge_notices",
    ended: "created_at",
    where: "e.state <> 'pending' AND e.kind <> 'encrypted_room_refused'",
  }),
  kind("audit", ({ audit }) => audit, { table: "bridge_audit", ended: "exported_at" }),
  {
    name: "members",
    keep: keepRooms,
    delete: statement<Deletion>("retention_members")`
      WITH ended AS MATERIALIZED (
        SELECT m.room_id, m.user_id, e.inactive_since AS at
        FROM bridge_ghost_rooms e JOIN bridge_room_members m ON m.room_id = e.room_id
        WHERE e.inactive_since < $1 AND e.inactive_since >= $3::timestamptz AND e.task IS NULL AND ${DESERTED}
        ORDER BY e.inactive_since LIMIT $2
      ), gone AS (
        DELETE FROM bridge_room_members t USING ended e WHERE t.room_id = e.room_id AND t.user_id = e.user_id
      )
      SELECT count(*)::int AS deleted, max(at) AS last FROM ended`,
  },
  // The last membership goes with its room, under the room's lock: no admission gives out places meanwhile.
  kind("memberships", keepRooms, {
    table: "bridge_ghost_rooms",
    key: ["room_id", "ghost_mxid"],
    ended: "inactive_since",
    // The server has a bounded number of locks: none is taken of a room that stays.
    where: `e.task IS NULL
      AND CASE WHEN NOT (${DESERTED} AND (EXISTS (SELECT FROM bridge_room_members o WHERE o.room_id = e.room_id)
        OR EXISTS (SELECT FROM bridge_delegations o WHERE o.room_id = e.room_id)
        OR EXISTS (SELECT FROM bridge_encrypted_intake o WHERE o.room_id = e.room_id)))
      THEN pg_try_advisory_xact_lock(hashtextextended(e.room_id, 0)) END`,
    also: `deserted AS MATERIALIZED (
      SELECT DISTINCT e.room_id FROM ended e WHERE NOT EXISTS (
        SELECT FROM bridge_ghost_rooms o WHERE o.room_id = e.room_id
          AND NOT EXISTS (SELECT FROM ended g WHERE g.room_id = o.room_id AND g.ghost_mxid = o.ghost_mxid))
    ), refusals AS (
      DELETE FROM bridge_notices n USING deserted d
      WHERE n.room_id = d.room_id AND n.kind = 'encrypted_room_refused' AND n.state <> 'pending'
    ), rooms AS (
      DELETE FROM bridge_rooms r USING deserted d
      WHERE r.room_id = d.room_id AND r.open_count = 0 AND r.head_seq = r.next_seq
    )`,
  }),
];

const BATCH_ROWS_MIN = 50;
const BATCH_ROWS_MAX = 2_000;
/** The next batch is half as large after one that took longer. */
const BATCH_MS_MAX = 200;

const JUMP_MS = 24 * 60 * 60_000;
/** Half of the time between two rounds. */
const STEADY_MS = 5 * 60_000;

/** Whether the clock has run for five minutes without a jump of more than a day; to be called in each round. */
export function createSteadiness(clock: Pick<Clock, "now">): () => boolean {
  let since = Number.NaN;
  let last = Number.NaN;
  return () => {
    const at = clock.now();
    if (!(Math.abs(at - last) <= JUMP_MS)) since = at;
    last = at;
    return at - since >= STEADY_MS;
  };
}

export function createRetention(pool: Pool, batchRowsMax: number = BATCH_ROWS_MAX) {
  const progress = new Map<string, { readonly from: number | undefined; readonly rows: number }>();

  const batchOf = async (one: Kind, times: RetentionTimes, now: number, clock: Pick<Clock, "now">) => {
    const { from, rows: size = BATCH_ROWS_MIN * 10 } = progress.get(one.name) ?? {};
    const rows = Math.min(batchRowsMax, size);
    const since = from === undefined ? "-infinity" : toTime(from);
    const found = await one.newest?.first(pool, []);
    const before = Math.min(now, found?.newest ?? now) - one.keep(times);
    const begunAt = clock.now();
    const { deleted, last } = await one.delete.one(pool, [toTime(before), rows, since]);
    const isSlow = clock.now() - begunAt > BATCH_MS_MAX;
    const next = isSlow ? Math.max(BATCH_ROWS_MIN, Math.floor(rows / 2)) : Math.min(batchRowsMax, rows * 2);
    const isFull = deleted === rows;
    progress.set(one.name, { from: isFull ? last : undefined, rows: next });
    return { deleted, isFull };
  };

  return {
    async round(times: RetentionTimes, clock: Pick<Clock, "now">) {
      const now = clock.now();
      const deleted = new Map<string, number>();
      let hasMore = false;
      for (const one of KINDS) {
        const batch = await batchOf(one, times, now, clock);
        deleted.set(one.name, batch.deleted);
        hasMore ||= batch.isFull;
      }
      return { deleted, hasMore };
    },
  };
}
