// The bridge's connection to its PostgreSQL server.
// Invariants: nothing but the ledger uses it; a connection that breaks is replaced, and what was not
// committed on it was never acknowledged.
import type { Pool } from "pg";
import type { Logger } from "pino";
import type { Clock } from "../domain/clock.ts";
import { DrawbridgeError } from "../domain/errors.ts";
import { readSecret } from "../runtime/secrets.ts";
import type { BridgeConfig } from "./config.ts";
import { migrate } from "./ledger/migrate.ts";
import { createLedgerPool } from "./ledger/postgres.ts";

const POOL_SIZE = 16;
const CONNECT_TIMEOUT_MS = 5_000;
// Every statement of the ledger takes milliseconds; one that takes this long is not going to end well.
const STATEMENT_TIMEOUT_MS = 30_000;
const RETRY_FIRST_MS = 250;
const RETRY_MS_MAX = 5_000;

export interface Database {
  readonly pool: Pool;
  /** For connections besides the pool's; it may hold a password. */
  readonly url: string;
  close(): Promise<void>;
}

function errorCode(error: unknown): string {
  const { code, name } = error as { code?: unknown; name?: unknown };
  return typeof code === "string" ? code : String(name);
}

/** Opens the pool; connects nothing yet. */
export function openDatabase(config: BridgeConfig, log: Logger): Database {
  const url = readSecret(config.database.url, config.directory);
  const pool = createLedgerPool({
    connectionString: url,
    max: POOL_SIZE,
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    statement_timeout: STATEMENT_TIMEOUT_MS,
    keepAlive: true,
    application_name: "drawbridge-bridge",
  });
  // An idle connection that breaks (the server restarted) is dropped by the pool; that is all there is to do.
  pool.on("error", (error) => log.warn({ code: errorCode(error) }, "an idle database connection broke"));
  return { pool, url, close: () => pool.end() };
}

/** Migrates, waiting for a database that is not there yet. Rejects with the signal's reason when aborted. */
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
      // A migration that failed, or a database of a newer release, does not heal by waiting.
      if (errorCode(error) === "database_unavailable") throw error;
      // SQLSTATE 28: wrong user or password; 3D: no such database.
      if (/^(28|3D)/.test(errorCode(error))) {
        throw new DrawbridgeError("database_unavailable", "the database refuses the connection", {
          hint: "Correct user, password and database name in the URL that `database` names.",
          cause: error,
        });
      }
      log.warn({ code: errorCode(error), waitMs }, "the database cannot be reached yet");
      await clock.sleep(waitMs, signal);
    }
  }
}
