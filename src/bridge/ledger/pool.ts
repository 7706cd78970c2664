// Connections for the ledger's statements.
// Invariant: plans do not depend on statistics. Every statement of the ledger finds its rows by index, on an
// empty table as on one of millions; a planner that has seen neither would read a young table from end to
// end, and keep doing so while it grows.
import { Pool, type PoolConfig } from "pg";

const PLANNER = "-c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off -c jit=off";

export function createLedgerPool(config: PoolConfig): Pool {
  return new Pool({ ...config, options: [PLANNER, config.options].filter(Boolean).join(" ") });
}
