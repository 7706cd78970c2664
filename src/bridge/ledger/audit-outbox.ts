// Audit records on their way to the audit file. The table is the durable record; the file a copy of it.
import { type Queryable, rows, type Statement, toTime } from "./statement.ts";

export interface AuditRow {
  readonly id: string;
  readonly record: Readonly<Record<string, unknown>>;
}

const UNEXPORTED: Statement = {
  name: "audit_unexported",
  text: `SELECT id, record FROM bridge_audit WHERE exported_at IS NULL ORDER BY id LIMIT $1`,
};

const EXPORTED: Statement = {
  name: "audit_exported",
  text: `UPDATE bridge_audit SET exported_at = $2 WHERE id = ANY ($1::bigint[])`,
};

export async function unexportedAudit(on: Queryable, limit: number): Promise<AuditRow[]> {
  return await rows<{ id: string; record: Record<string, unknown> }>(on, UNEXPORTED, [limit]);
}

export async function auditExported(on: Queryable, ids: readonly string[], now: number): Promise<void> {
  await rows(on, EXPORTED, [ids, toTime(now)]);
}
