// The ledger as an operator's commands use it, whether bridges run or not.
import { pino } from "pino";
import { DrawbridgeError } from "../domain/errors.ts";
import type { BridgeConfig } from "./config.ts";
import { openDatabase } from "./database.ts";
import { migrate } from "./ledger/migrate.ts";
import { createOperations, type Operations } from "./ledger/operator-commands.ts";

/** Opens the bridge's database for `work`, and closes it whatever happens. @throws DrawbridgeError */
export async function withOperations<T>(
  config: BridgeConfig,
  work: (operations: Operations) => Promise<T>,
): Promise<T> {
  const { pool, close } = openDatabase(config, pino({ level: "silent" }));
  try {
    await migrate(pool).catch((cause: unknown) => {
      if (cause instanceof DrawbridgeError) throw cause;
      throw new DrawbridgeError("database_unavailable", "the bridge's database cannot be reached", {
        hint: "Start PostgreSQL, or correct `database` in the configuration.",
        cause,
      });
    });
    return await work(createOperations(pool, config.limits.noticeInterval));
  } finally {
    await close();
  }
}
