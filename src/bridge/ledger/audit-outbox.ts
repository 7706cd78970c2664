// Audit records and their export to the audit file. The table is the durable record, and the file is a copy of it.
import type { Pool } from "pg";
import type { UnknownObject } from "../../domain/json.ts";
import { inTransaction, statement, toTime } from "./postgres.ts";

export type AuditRow = { readonly id: string; readonly record: UnknownObject };

/** The file is written meanwhile. */
const BEGIN_EXPORT = "BEGIN; SET LOCAL idle_in_transaction_session_timeout = '20s'";

// Rows that another process is exporting are skipped.
const UNEXPORTED = statement<AuditRow>("audit_unexported")`
  SELECT id, record FROM bridge_audit WHERE exported_at IS NULL ORDER BY id LIMIT $1
  FOR UPDATE SKIP LOCKED`;

const EXPORTED = statement("audit_exported")`
  UPDATE bridge_audit SET exported_at = $2 WHERE id = ANY ($1::bigint[])`;

export function createAuditOutbox(pool: Pool) {
  return {
    /** Marks up to `limit` records as exported once `write` has made them durable. Returns them. */
    export: (limit: number, write: (records: readonly AuditRow[]) => Promise<void>, now: number) =>
      inTransaction<readonly AuditRow[]>(pool, BEGIN_EXPORT, async (client) => {
        const records = await UNEXPORTED.rows(client, [limit]);
        if (records.length === 0) return { result: [] };
        await write(records);
        const sent = EXPORTED.rows(client, [records.map(({ id }) => id), toTime(now)]);
        return { result: records, sent };
      }),
  };
}
