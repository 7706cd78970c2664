// Copies audit records from the ledger to the audit file, one JSON object a line.
// Invariants: a record is in the file exactly once, whatever is killed in between; a line is whole or cut
// off on the next start; records are marked exported only after the file was synced.
import { mkdirSync } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { dirname } from "node:path";
import type { Logger } from "pino";
import type { Clock } from "../../domain/clock.ts";
import { WorkLoop } from "../../runtime/work-loop.ts";
import type { AuditRow } from "../ledger/audit-outbox.ts";
import type { AuditOutbox } from "../ledger/ledger.ts";

const BATCH = 500;
// More than a batch of records ever takes: what a crash may have left unmarked lies in this tail.
const TAIL_BYTES = 4 * 1024 * 1024;
const NEWLINE = 0x0a;

/** Cuts off an unfinished last line, and returns the IDs in the tail of the file. */
async function repairTail(handle: FileHandle): Promise<Set<string>> {
  const { size } = await handle.stat();
  const length = Math.min(size, TAIL_BYTES);
  const { buffer } = await handle.read(Buffer.alloc(length), 0, length, size - length);
  const whole = buffer.lastIndexOf(NEWLINE) + 1;
  if (whole < length) await handle.truncate(size - length + whole);
  const ids = new Set<string>();
  for (const line of buffer.toString("utf8", 0, whole).split("\n")) {
    const id = /^\{"audit_id":"([0-9]+)"/.exec(line)?.[1];
    if (id !== undefined) ids.add(id);
  }
  return ids;
}

export interface AuditExporterOptions {
  readonly outbox: AuditOutbox;
  readonly clock: Clock;
  readonly log: Logger;
  readonly file: string;
  readonly isTurn: () => boolean;
  readonly onError?: () => void;
}

export function createAuditExporter({ outbox, clock, log, file, isTurn, onError }: AuditExporterOptions) {
  mkdirSync(dirname(file), { recursive: true });
  let handle: FileHandle | undefined;
  /** Written but perhaps not yet marked: what a crash between the two leaves behind. */
  let written = new Set<string>();
  const loop = new WorkLoop({
    clock,
    round,
    onError: () => {
      onError?.();
      log.warn({ event: "audit_not_exported" }, "audit records wait in the database");
    },
  });

  async function round(): Promise<boolean> {
    if (!isTurn()) {
      // Another process may write the file meanwhile: it is read again before the next write.
      await close();
      return false;
    }
    if (handle === undefined) {
      handle = await open(file, "a+", 0o600);
      written = await repairTail(handle);
    }
    const to = handle;
    const exported = await outbox.export(BATCH, (records) => append(to, records), clock.now());
    // Marked for good. Others that were written stay known until they are.
    for (const { id } of exported) written.delete(id);
    return exported.length === BATCH;
  }

  async function append(to: FileHandle, records: readonly AuditRow[]): Promise<void> {
    const missing = records.filter(({ id }) => !written.has(id));
    if (missing.length === 0) return;
    const lines = missing.map(({ id, record }) => `${JSON.stringify({ audit_id: id, ...record })}\n`);
    await to.appendFile(lines.join(""));
    await to.datasync();
    // Should marking them fail now, the next round finds them again and knows they are written.
    for (const { id } of missing) written.add(id);
  }

  async function close(): Promise<void> {
    await handle?.close();
    handle = undefined;
  }

  return { loop, round, close };
}
