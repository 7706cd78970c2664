// One database transaction on one connection: committed whole, or rolled back.
// Invariant: it is over only when the database has said COMMIT. The ledger's connections are pipelined, so
// BEGIN travels with the first statement and COMMIT with the last; a statement that fails aborts the
// transaction, and everything sent behind it fails with it.
import type { Pool, PoolClient } from "pg";
import { DrawbridgeError } from "../../domain/errors.ts";

// "drawbrig" as a 64-bit key.
/** Begins a transaction that admits: one at a time in the whole deployment, so that its bounds are exact. */
export const BEGIN_ADMISSION = "BEGIN; SELECT pg_advisory_xact_lock(7237127932340562279)";

/** What the work in a transaction comes to. */
export interface Work<Result> {
  readonly result: Result;
  /** Its last statement, sent and not waited for. */
  readonly sent?: Promise<unknown>;
}

/**
 * Runs `work` between `begin` and COMMIT. Nothing remote may be awaited inside.
 * @param begin `BEGIN`, or `BEGIN; …` with what is to be done in the same round trip
 * @throws whatever `work` or the database threw; then nothing of it was kept
 */
export async function inTransaction<Result>(
  pool: Pool,
  begin: string,
  work: (client: PoolClient) => Promise<Work<Result>>,
): Promise<Result> {
  const client = await pool.connect();
  let broken: Error | undefined;
  try {
    const begun = client.query(begin);
    // Both fail when BEGIN does; it is reported once.
    const [, { result, sent }] = await Promise.all([begun, work(client)]);
    const [, committed] = await Promise.all([sent, client.query("COMMIT")]);
    // An aborted transaction answers COMMIT with ROLLBACK, and no error.
    if (committed.command !== "COMMIT")
      throw new DrawbridgeError("internal", "a transaction was not committed");
    return result;
  } catch (error) {
    await client.query("ROLLBACK").catch((failure: Error) => {
      broken = failure;
    });
    throw error;
  } finally {
    // A connection that could not even roll back is not given to anyone else.
    client.release(broken);
  }
}
