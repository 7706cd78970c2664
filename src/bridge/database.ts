// The bridge's connection pool to its PostgreSQL server, and the ledger as an operator's commands use it, whether bridges run
// or not.
// Invariants: only the ledger uses the pool; a connection that breaks is replaced, and nothing that was uncommitted on it was
// acknowledged.
import type { Pool } from "pg";
import { type Logger, pino } from "pino";
import type { Clock } from "../domain/clock.ts";
import { DrawbridgeError, errorName } from "../domain/errors.ts";
import { readSecret } from "../runtime/secrets.ts";
import type { BridgeConfig } from "./config.ts";
import { type AcceptedDatabase, acceptDatabase } from "./ledger/database-marker.ts";
import { migrate } from "./ledger/migrate.ts";
import { createOperations, type Operations } from "./ledger/operator-commands.ts";
import { createLedgerPool } from "./ledger/postgres.ts";

const POOL_SIZE = 16;
const RETRY_FIRST_MS = 250;
const RETRY_MS_MAX = 5_000;

export interface Database {
  readonly pool: Pool;
  /** For connections outside the pool. It may hold a password. */
  readonly url: string;
  close(): Promise<void>;
}

/** Creates the pool, without connecting yet. */
export function openDatabase(config: BridgeConfig, log: Logger): Database {
  const url = readSecret(config.database.url, config.directory);
  const pool = createLedgerPool({
    connectionString: url,
    max: POOL_SIZE,
    application_name: "drawbridge-bridge",
  });
  // The pool itself replaces an idle connection that breaks, for instance when the server restarts.
  pool.on("error", (error) => log.warn({ code: errorName(error) }, "an idle database connection broke"));
  return { pool, url, close: () => pool.end() };
}

/** SQLSTATE 28: wrong user or password; 3D: no such database. */
const isRefusal = (name: string) => /^(28|3D)/.test(name);

/** What an operator is told when the database was not to be had: whether it is away, or refuses the URL's user or name. */
function databaseError(cause: unknown): DrawbridgeError {
  if (cause instanceof DrawbridgeError) return cause;
  const name = errorName(cause);
  return isRefusal(name)
    ? new DrawbridgeError("database_unavailable", `the database refuses the connection (${name})`, {
        hint: "Correct user, password and database name in the URL that `database` names.",
        cause,
      })
    : new DrawbridgeError("database_unavailable", `the bridge's database cannot be reached (${name})`, {
        hint: "Start PostgreSQL, or correct host and port in the URL that `database` names.",
        cause,
      });
}

/** Migrates as soon as the database can be reached. Rejects with the signal's reason when aborted. */
export async function migrateWhenReachable(
  pool: Pool,
  clock: Clock,
  log: Logger,
  signal: AbortSignal,
): Promise<void> {
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

/** Opens the bridge's database for `work`, and closes it whatever happens. @throws DrawbridgeError */
export async function onDatabase<T>(
  config: BridgeConfig,
  work: (pool: Pool, migrated: number) => Promise<T>,
): Promise<T> {
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

/** @throws DrawbridgeError */
export function withOperations<T>(
  config: BridgeConfig,
  work: (operations: Operations) => Promise<T>,
): Promise<T> {
  return onDatabase(config, (pool) => work(createOperations(pool, config.limits.noticeInterval)));
}

/** Returns how many migrations were applied. @throws DrawbridgeError */
export function migrateDatabase(config: BridgeConfig): Promise<number> {
  return onDatabase(config, async (_, migrated) => migrated);
}

/** Has bridges start on a database that was put back from a backup. @throws DrawbridgeError */
export function acceptRestoredDatabase(config: BridgeConfig, now: number): Promise<AcceptedDatabase> {
  return onDatabase(config, (pool) => acceptDatabase(pool, now, config.limits.noticeInterval));
}
