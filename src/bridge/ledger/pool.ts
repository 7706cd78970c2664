// Connections for the ledger's statements.
// Invariants: plans do not depend on statistics. Every statement of the ledger finds its rows by index, on an
// empty table as on one of millions; a planner that has seen neither would read a young table from end to
// end, and keep doing so while it grows. And a transaction whose process has stopped, or whose machine is gone,
// ends soon: it holds rows, and the turn to admit, that every other bridge waits for.
import { Pool, type PoolConfig } from "pg";

const PLANNER = [
  "enable_seqscan=off",
  "enable_hashjoin=off",
  "enable_mergejoin=off",
  "jit=off",
  // Each statement is planned once a connection: with the above there is only one plan worth having.
  "plan_cache_mode=force_generic_plan",
]
  .map((setting) => `-c ${setting}`)
  .join(" ");

/** Far longer than any transaction waits between two statements: for the audit file, at most. */
const IDLE_IN_TRANSACTION_MS = 20_000;

export function createLedgerPool(config: PoolConfig): Pool {
  const pool = new Pool({
    idle_in_transaction_session_timeout: IDLE_IN_TRANSACTION_MS,
    ...config,
    pipeline: true,
    options: [PLANNER, config.options].filter(Boolean).join(" "),
  });
  // A connection that breaks while it is in use fails the query that waits on it, and that is handled
  // there. Without a listener its error event would end the process as well.
  pool.on("connect", (client) => client.on("error", () => {}));
  return pool;
}
