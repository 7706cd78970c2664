// Audit records and their export to the audit file. The table is the durable record, and the file is a copy of it.
import type { Pool } from "pg";
import type { UnknownObject } from "../../domain/json.ts";
import { inTransaction, rows, statement, toTime } from "./postgres.ts";

export interface AuditRow {
  readonly id: string;
  readonly record: UnknownObject;
}

/** The file is written meanwhile. */
const BEGIN_EXPORT = "BEGIN; SET LOCAL idle_in_transaction_session_timeout = '20s'";

// Rows that another process is exporting are skipped.
const UNEXPORTED = statement("audit_unexported")`
  SELECT id, record FROM bridge_audit WHERE exported_at IS NULL ORDER BY id LIMIT $1
  FOR UPDATE SKIP LOCKED`;

const EXPORTED = statement("audit_exported")`
  UPDATE bridge_audit SET exported_at = $2 WHERE id = ANY ($1::bigint[])`;

export function createAuditOutbox(pool: Pool) {
  return {
    /**
     * Passes up to `limit` unexported records to `write`, and marks them as exported once it has made them durable.
     * If `write` throws, they stay unexported. Returns how many there were.
     */
    export: (
      limit: number,
      write: (records: readonly AuditRow[]) => Promise<void>,
      now: number,
    ): Promise<number> =>
      inTransaction(pool, BEGIN_EXPORT, async (client) => {
        const records = await rows<{ id: string; record: Record<string, unknown> }>(client, UNEXPORTED, [
          limit,
        ]);
        if (records.length === 0) return { result: 0 };
        await write(records);
        const sent = rows(client, EXPORTED, [records.map(({ id }) => id), toTime(now)]);
        return { result: records.length, sent };
      }),
  };
}
