// One database transaction on one connection: committed whole, or rolled back.
import type { Pool, PoolClient } from "pg";

/**
 * Runs `work` between `begin` and COMMIT. Nothing remote may be awaited inside.
 * @param begin `BEGIN`, or `BEGIN; …` with what is to be done in the same round trip
 * @throws whatever `work` or the database threw; then nothing of it was kept
 */
export async function inTransaction<Result>(
  pool: Pool,
  begin: string,
  work: (client: PoolClient) => Promise<Result>,
): Promise<Result> {
  const client = await pool.connect();
  let broken: Error | undefined;
  try {
    await client.query(begin);
    const result = await work(client);
    await client.query("COMMIT");
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
