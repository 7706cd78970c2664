// Numbered SQL files, each applied once, in order, in its own transaction.
// Invariants: processes that start at once migrate one after another, under an advisory lock; a database that is newer
// than this program is refused and not changed; a role that may not create tables finds a database that is up to date in order.
import { readdirSync, readFileSync } from "node:fs";
import type { Pool, PoolClient } from "pg";
import { DrawbridgeError } from "../../domain/errors.ts";
import { ADVISORY_LOCKS } from "./postgres.ts";

/** A migration may rebuild large tables, and others wait for it. */
const MIGRATION_MS_MAX = 60 * 60_000;
const NO_RIGHT = "42501";
const DIRECTORY = new URL("./migrations/", import.meta.url);

function readMigrations() {
  return readdirSync(DIRECTORY)
    .filter((name) => name.endsWith(".sql"))
    .sort()
    .map((name) => ({
      version: Number(name.slice(0, 4)),
      name,
      sql: readFileSync(new URL(name, DIRECTORY), "utf8"),
    }));
}

const failed = (what: string, cause: unknown) =>
  new DrawbridgeError("database_unavailable", `${what} failed`, {
    hint: "Nothing of it was kept. Check the database user's rights and free space. Where another user migrates, run `drawbridge bridge migrate` as that user.",
    cause,
  });

/** For what may take long. The connection has no statement timeout; the driver gives up after MIGRATION_MS_MAX. */
const slowly = (client: PoolClient, text: string) => {
  const query = { text, query_timeout: MIGRATION_MS_MAX };
  return client.query(query);
};

async function applyMissing(client: PoolClient): Promise<number> {
  const { rows } = await client.query("SELECT to_regclass('bridge_migrations') IS NOT NULL AS present");
  // Even IF NOT EXISTS takes the right to create tables.
  if (rows[0]?.present !== true) {
    const create = `CREATE TABLE bridge_migrations (
       version integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())`;
    await client.query(create).catch((error: Error & { code?: string }) => {
      throw error.code === NO_RIGHT ? failed("the first migration", error) : error;
    });
  }
  const applied = await client.query<{ newest: number }>(
    "SELECT COALESCE(max(version), 0) AS newest FROM bridge_migrations",
  );
  const migrations = readMigrations();
  const newest = migrations.at(-1)?.version ?? 0;
  const present = applied.rows[0]?.newest ?? 0;
  if (present > newest) {
    throw new DrawbridgeError(
      "database_unavailable",
      `the database is at version ${present}; this program knows versions up to ${newest}`,
      { hint: "Run a newer release of Drawbridge against this database." },
    );
  }
  const missing = migrations.filter(({ version }) => version > present);
  for (const migration of missing) {
    await client.query("BEGIN");
    try {
      await slowly(client, migration.sql);
      await client.query("INSERT INTO bridge_migrations (version, name) VALUES ($1, $2)", [
        migration.version,
        migration.name,
      ]);
      await client.query("COMMIT");
    } catch (cause) {
      await client.query("ROLLBACK");
      throw failed(`migration ${migration.name}`, cause);
    }
  }
  return missing.length;
}

/** Returns how many migrations were missing and are applied now. @throws DrawbridgeError `database_unavailable` */
export async function migrate(pool: Pool): Promise<number> {
  const client = await pool.connect();
  try {
    await client.query("SET statement_timeout = 0");
    await slowly(client, `SELECT pg_advisory_lock(${ADVISORY_LOCKS.migration})`);
    try {
      return await applyMissing(client);
    } finally {
      await client.query(`SELECT pg_advisory_unlock(${ADVISORY_LOCKS.migration})`);
    }
  } finally {
    // Closed: it has no statement timeout.
    client.release(true);
  }
}
