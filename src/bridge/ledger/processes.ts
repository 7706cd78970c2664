// The bridge processes on one database, and what each of them owns. Invariants: a process is alive as long as a connection of
// its own, never idle for a second, holds the advisory lock of its number, a shared one once it drains; only what nobody alive
// owns can be taken; the leases of a process that has ended are released under a higher fence.
import type { Pool } from "pg";
import { storingFrom } from "./leases.ts";
import { ADVISORY_LOCKS, statement, toTime } from "./postgres.ts";
import { connectToServer } from "./postgres-servers.ts";

const STATEMENT_TIMEOUT_MS = 5_000;
/** The server ends a connection that is idle for so long. Its process observes more often. */
export const IDLE_MS_MAX = 1_000;
const CHANNEL = "drawbridge";
const BEGIN_SESSION = `SELECT set_config('idle_session_timeout', '${IDLE_MS_MAX}', false);
  SELECT set_config('plan_cache_mode', 'force_generic_plan', false); LISTEN ${CHANNEL}`;

const NUMBER = statement<{ number: number }>("process_number")`
  SELECT number, pg_advisory_lock(${ADVISORY_LOCKS.process}, number)
  FROM (SELECT nextval('bridge_process')::integer AS number) own`;

// Another session sees one of the two locks at any time.
const LEAVE = statement("process_leave")`
  SELECT pg_advisory_lock_shared(${ADVISORY_LOCKS.process}, $1), pg_advisory_unlock(${ADVISORY_LOCKS.process}, $1)`;

const OBSERVE = statement<{ live: string[]; sharing: number; owners: Record<string, string> }>(
  "process_observe",
)`
  SELECT ARRAY(SELECT bridge_live_processes()) AS live,
    (SELECT count(*)::int FROM bridge_live_processes('ExclusiveLock')) AS sharing,
    COALESCE((SELECT json_object_agg(name, process) FROM bridge_ownership), '{}') AS owners`;

const TAKE = statement<{ name: string }>("process_take")`
  INSERT INTO bridge_ownership AS o (name, process) SELECT name, $1 FROM unnest($2::text[]) AS u (name) ORDER BY name
  ON CONFLICT (name) DO UPDATE SET process = excluded.process
    WHERE o.process = excluded.process OR o.process NOT IN (SELECT bridge_live_processes())
  RETURNING name`;

const GIVE_UP = statement("process_give_up")`
  DELETE FROM bridge_ownership WHERE name = ANY ($2) AND process = $1`;

const NOTIFY = statement("process_notify")`SELECT pg_notify('${CHANNEL}', $1)`;

const hasEnded = (holder: string) =>
  `${holder} IS NOT NULL AND ${holder} NOT IN (SELECT bridge_live_processes())`;

// Leased delegations are heads of rooms, or due by themselves; an index finds both. Delegations are locked before rooms,
// and both in ascending order, as in every other statement: a late write of the ended process may run at the same time.
const RELEASE_DELEGATIONS = statement("release_delegations")`
  WITH ended AS MATERIALIZED (
    SELECT d.id FROM bridge_delegations d
    WHERE d.id IN (
      SELECT h.id FROM bridge_rooms r
      JOIN bridge_delegations h ON h.room_id = r.room_id AND h.room_seq = r.head_seq AND h.room_ordinal = r.head_ordinal
      WHERE r.head_at IS NOT NULL AND ${hasEnded("h.lease_holder")}
      UNION ALL
      SELECT o.id FROM bridge_delegations o WHERE o.due_at IS NOT NULL AND ${hasEnded("o.lease_holder")}
    ) AND ${hasEnded("d.lease_holder")}
    ORDER BY d.id FOR UPDATE OF d
  ), released AS (
    UPDATE bridge_delegations d SET
      lease_holder = NULL, lease_until = NULL, fence = d.fence + 1,
      due_at = CASE WHEN d.due_at IS NOT NULL THEN $1::timestamptz END, a2a_storing_until = ${storingFrom("$1::timestamptz")}
    FROM ended e WHERE d.id = e.id
    RETURNING d.room_id, d.room_seq, d.room_ordinal, d.due_at
  ), rooms AS MATERIALIZED (
    SELECT r.room_id FROM bridge_rooms r JOIN released h ON h.room_id = r.room_id
    WHERE h.due_at IS NULL AND r.head_seq = h.room_seq AND r.head_ordinal = h.room_ordinal
    ORDER BY r.room_id FOR UPDATE OF r
  ), turns AS (
    UPDATE bridge_rooms r SET head_at = $1 FROM rooms l WHERE r.room_id = l.room_id
  )
  SELECT 1 FROM released`;

// A row that another statement has locked is left to the next release, since some lock several in another order than this one.
const releaseIn = (name: string, table: string, ...key: readonly string[]) => statement(`release_${name}`)`
  WITH ended AS MATERIALIZED (
    SELECT ${key.join(", ")} FROM ${table} WHERE due_at IS NOT NULL AND ${hasEnded("holder")} FOR UPDATE SKIP LOCKED
  )
  UPDATE ${table} t SET holder = NULL, due_at = $1, fence = t.fence + 1
  FROM ended e WHERE ${key.map((column) => `t.${column} = e.${column}`).join(" AND ")} RETURNING 1`;

const RELEASE_ALL = [
  RELEASE_DELEGATIONS,
  releaseIn("envelopes", "bridge_encrypted_intake", "matrix_event_id"),
  releaseIn("memberships", "bridge_ghost_rooms", "room_id", "ghost_mxid"),
  releaseIn("notices", "bridge_notices", "id"),
  releaseIn("statuses", "bridge_statuses", "delegation_id"),
];

export type ProcessConnection = Awaited<ReturnType<typeof openProcessConnection>>;

/** Each method of the connection rejects once it is broken. @throws the driver's error */
export async function openProcessConnection(url: string, onNotified: (message: string) => void) {
  const client = await connectToServer(url, {
    statement_timeout: STATEMENT_TIMEOUT_MS,
    query_timeout: STATEMENT_TIMEOUT_MS,
    // Others' work is reported while this process observes.
    pipeline: true,
    application_name: "drawbridge-process",
  });
  const broken = new AbortController();
  client.on("error", () => broken.abort());
  client.on("end", () => broken.abort());
  client.on("notification", ({ payload = "" }) => onNotified(payload));
  const close = () => client.end().catch(() => undefined);
  try {
    await client.query(BEGIN_SESSION);
    const process = String((await NUMBER.one(client, [])).number);
    return {
      process,
      /** Aborts when the connection is broken: then others take what it owned. */
      broken: broken.signal,
      /** Who is alive, how many of them have a share of the ghosts, and who owns what, by name; an owner may have ended. */
      async observe() {
        const found = await OBSERVE.one(client, []);
        return { ...found, owners: new Map(Object.entries(found.owners)) };
      },
      /** From now on this process has no share of the ghosts. */
      leave: () => LEAVE.run(client, [process]),
      take: async (names: readonly string[]): Promise<readonly string[]> =>
        (await TAKE.rows(client, [process, names])).map(({ name }) => name),
      giveUp: (names: readonly string[]) => GIVE_UP.run(client, [process, names]),
      notify: (message: string) => NOTIFY.run(client, [message]),
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Returns how many leases were released. Safe to repeat. */
export async function releaseEnded(pool: Pool, now: number): Promise<number> {
  let released = 0;
  for (const statement of RELEASE_ALL) {
    released += (await statement.rows(pool, [toTime(now)])).length;
  }
  return released;
}
