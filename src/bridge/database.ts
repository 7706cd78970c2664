// The bridge's connection pool to its PostgreSQL server, also for an operator's commands, whether bridges run or not.
// Invariants: only the ledger uses the pool; a connection that breaks is replaced.
import type { Pool } from "pg";
import { type Logger, pino } from "pino";
import type { Clock } from "../domain/clock.ts";
import { DrawbridgeError, errorName } from "../domain/errors.ts";
import { readSecret } from "../runtime/secrets.ts";
import type { BridgeConfig } from "./config.ts";
import { migrate } from "./ledger/migrate.ts";
import { createLedgerPool } from "./ledger/postgres.ts";

const POOL_SIZE = 16;
const RETRY_FIRST_MS = 250;
const RETRY_MS_MAX = 5_000;

export function openDatabase(config: BridgeConfig, log: Logger) {
  const connectionString = readSecret(config.database.url, config.directory);
  const pool = createLedgerPool({ connectionString, max: POOL_SIZE, application_name: "drawbridge-bridge" });
  // The pool itself replaces an idle connection that breaks, for instance when the server restarts.
  pool.on("error", (error) => log.warn({ code: errorName(error) }, "an idle database connection broke"));
  return { pool, url: connectionString, close: () => pool.end() };
}

/** SQLSTATE 28: wrong user or password; 3D: no such database. */
const isRefusal = (name: string) => /^(28|3D)/.test(name);

function databaseError(cause: unknown): DrawbridgeError {
  if (cause instanceof DrawbridgeError) return cause;
  const name = errorName(cause);
  const [what, action] = isRefusal(name)
    ? ["the database refuses the connection", "Correct user, password and database name"]
    : ["the bridge's database cannot be reached", "Start PostgreSQL, or correct host and port"];
  const hint = `${action} in the URL that \`database\` names.`;
  return new DrawbridgeError("database_unavailable", `${what} (${name})`, { hint, cause });
}

/** Migrates as soon as the database can be reached. Rejects with the signal's reason when aborted. */
export async function migrateWhenReachable(pool: Pool, clock: Clock, log: Logger, signal: AbortSignal) {
  for (let waitMs = RETRY_FIRST_MS; ; waitMs = Math.min(2 * waitMs, RETRY_MS_MAX)) {
    try {
      const applied = await migrate(pool);
      if (applied > 0) log.info({ applied }, "the database was migrated");
      return;
    } catch (error) {
      // A migration that failed, or a database of a newer release: waiting does not help.
      if (errorName(error) === "database_unavailable") throw error;
      if (isRefusal(errorName(error))) throw databaseError(error);
      log.warn({ code: errorName(error), waitMs }, "the database cannot be reached yet");
      await clock.sleep(waitMs, signal);
    }
  }
}

/** Opens and migrates the bridge's database for `work`, and closes it whatever happens. @throws DrawbridgeError */
export async function onDatabase<T>(config: BridgeConfig, work: (pool: Pool, count: number) => Promise<T>) {
  const { pool, close } = openDatabase(config, pino({ level: "silent" }));
  try {
    const migrated = await migrate(pool).catch((cause: unknown) => {
      throw databaseError(cause);
    });
    return await work(pool, migrated);
  } finally {
    await close();
  }
}
