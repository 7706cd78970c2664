// Counts a partner's rows in the homeserver's database, where the deployment lets it be read.
// Invariants: the session can only read, and each statement has a deadline; what comes back is counts and
// identifiers of rooms and files; a table or column that this Synapse does not have is left out.
import { DatabaseError, Pool } from "pg";
import { DrawbridgeError } from "../../../domain/errors.ts";

/** Whose a user is: what follows the first colon of the ID. */
const serverIn = (column: string) => `substring(${column} from position(':' in ${column}) + 1)`;

/** How a row names a partner: as a user of its, or as the server itself. */
const USER_TABLES = [
  ["events", "sender"],
  ["room_memberships", "user_id"],
  ["receipts_linearized", "user_id"],
  ["device_lists_remote_cache", "user_id"],
  ["device_lists_remote_extremeties", "user_id"],
  ["e2e_cross_signing_keys", "user_id"],
  ["user_directory", "user_id"],
] as const;
const SERVER_TABLES = [
  ["remote_media_cache", "media_origin"],
  ["remote_media_cache_thumbnails", "media_origin"],
  ["server_keys_json", "server_name"],
  ["server_signature_keys", "server_name"],
  ["destinations", "destination"],
  ["destination_rooms", "destination"],
  ["device_lists_outbound_pokes", "destination"],
  ["federation_inbound_events_staging", "origin"],
] as const;

const DEADLINE_MS = 120_000;
const CONNECT_MS = 10_000;
const SESSIONS = 2;
type Parties = Readonly<Record<"own" | "partner", string>>;

/** Runs `work` with sessions that can only read. @throws DrawbridgeError `database_unavailable` */
export async function withTables<T>(url: string, parties: Parties, work: (tables: RowCounts) => Promise<T>) {
  const pool = new Pool({
    connectionString: url,
    options: "-c default_transaction_read_only=on",
    statement_timeout: DEADLINE_MS,
    // A server that is gone without a word ends nothing.
    query_timeout: DEADLINE_MS + CONNECT_MS,
    connectionTimeoutMillis: CONNECT_MS,
    max: SESSIONS,
  });
  pool.on("error", () => undefined);
  try {
    await pool.query("SELECT 1").catch((cause: unknown) => Promise.reject(unreadable(cause)));
    return await work(tablesIn(pool, parties));
  } catch (cause) {
    throw cause instanceof DatabaseError ? unreadable(cause) : cause;
  } finally {
    await pool.end();
  }
}

export type RowCounts = ReturnType<typeof tablesIn>;

function tablesIn(pool: Pool, { own, partner }: Parties) {
  const count = async (statement: string, ...values: unknown[]) => {
    const { rows } = await pool.query<{ n: string }>(statement, [partner, ...values]);
    return Number(rows[0]?.n ?? 0);
  };
  return {
    /** The partner's rows by table; an absent table is one that this homeserver does not have. */
    async counts(): Promise<Readonly<Record<string, number>>> {
      const columnNames = `SELECT table_name || '.' || column_name AS name FROM information_schema.columns
         WHERE table_schema = ANY (current_schemas(false))`;
      const { rows } = await pool.query<{ name: string }>(columnNames);
      const known = new Set(rows.map(({ name }) => name));
      const columns = [
        ...USER_TABLES.map(([table, column]) => [table, column, serverIn(column)] as const),
        ...SERVER_TABLES.map(([table, column]) => [table, column, column] as const),
      ];
      const counts: Record<string, number> = {};
      for (const [table, column, server] of columns) {
        if (!known.has(`${table}.${column}`)) continue;
        counts[table] = await count(`SELECT count(*) AS n FROM ${table} WHERE ${server} = $1`);
      }
      return counts;
    },

    async eventsByRoom(): Promise<ReadonlyMap<string, number>> {
      const events = `SELECT room_id, count(*) AS n FROM events WHERE ${serverIn("sender")} = $1 GROUP BY room_id`;
      const { rows } = await pool.query<{ room_id: string; n: string }>(events, [partner]);
      return new Map(rows.map(({ room_id, n }) => [room_id, Number(n)]));
    },

    async countEvents(room: string, untilMs: number) {
      const events = `SELECT CASE ${serverIn("sender")} WHEN $2 THEN 'own' WHEN $3 THEN 'partner' ELSE 'others' END AS whose,
           count(*) AS n
         FROM events WHERE room_id = $1 AND origin_server_ts <= $4 GROUP BY 1`;
      const values = [room, own, partner, untilMs];
      const { rows } = await pool.query<{ whose: string; n: string }>(events, values);
      const found = Object.fromEntries(rows.map(({ whose, n }) => [whose, Number(n)]));
      return { own: found["own"] ?? 0, partner: found["partner"] ?? 0, others: found["others"] ?? 0 };
    },

    /** Every cached file of the partner's, encrypted ones too, and when it was last used. */
    async files() {
      const { rows } = await pool.query<{ media_id: string; quarantined: boolean; at: string | null }>(
        `SELECT media_id, quarantined_by IS NOT NULL AS quarantined, last_access_ts AS at
         FROM remote_media_cache WHERE media_origin = $1 ORDER BY media_id`,
        [partner],
      );
      return rows.map(({ media_id, quarantined, at }) => ({
        ...{ mediaId: media_id, isQuarantined: quarantined, lastAccessMs: Number(at ?? 0) },
      }));
    },

    /** Cached files of other servers that go with a purge of everything last used before a time. */
    otherFiles: (beforeMs: number) =>
      count(
        `SELECT count(*) AS n FROM remote_media_cache
         WHERE media_origin <> $1 AND last_access_ts < $2 AND quarantined_by IS NULL`,
        beforeMs,
      ),
  };
}

function unreadable(cause: unknown): DrawbridgeError {
  const code = (cause as { code?: unknown }).code;
  const detail = typeof code === "string" ? code : "no connection";
  const hint = "Correct homeserver.databaseUrl: the URL of a role that may select; or leave it out.";
  const what = `the homeserver's database cannot be read: ${detail}`;
  return new DrawbridgeError("database_unavailable", what, { hint, cause });
}
