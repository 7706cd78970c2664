// The ledger as an operator's commands use it, whether bridges run or not.
import type { Pool } from "pg";
import { pino } from "pino";
import type { BridgeConfig } from "./config.ts";
import { databaseError, openDatabase } from "./database.ts";
import { type AcceptedDatabase, acceptDatabase } from "./ledger/database-marker.ts";
import { migrate } from "./ledger/migrate.ts";
import { createOperations, type Operations } from "./ledger/operator-commands.ts";

/** Opens the bridge's database for `work`, and closes it whatever happens. @throws DrawbridgeError */
async function onDatabase<T>(
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
