// Copies audit records from the ledger to the audit file, one JSON object a line.
// Invariants: a record is in the file exactly once, whatever is killed or fails in between; an unfinished line is cut off
// before the next one is written; records are marked exported only after the file was synced.
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

/** Cuts off an unfinished last line, and returns the lines in the tail of the file. */
async function repairTail(handle: FileHandle): Promise<Set<string>> {
  const { size } = await handle.stat();
  const length = Math.min(size, TAIL_BYTES);
  const { buffer } = await handle.read(Buffer.alloc(length), 0, length, size - length);
  const whole = buffer.lastIndexOf(NEWLINE) + 1;
  if (whole < length) await handle.truncate(size - length + whole);
  return new Set(buffer.toString("utf8", 0, whole).split("\n"));
}

const lineOf = ({ id, record }: AuditRow) => JSON.stringify({ audit_id: id, ...record });

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
  /** Whole lines, which a crash may have left unmarked: in a database that was put back, new records have IDs of old ones. */
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
    try {
      if (handle === undefined) {
        handle = await open(file, "a+", 0o600);
        written = await repairTail(handle);
      }
      const to = handle;
      const exported = await outbox.export(BATCH, (records) => append(to, records), clock.now());
      // Marked for good. Others that were written stay known until they are.
      for (const row of exported) written.delete(lineOf(row));
      return exported.length === BATCH;
    } catch (error) {
      // A part of the lines may be written: the tail of the file says which.
      await close().catch(() => undefined);
      throw error;
    }
  }

  async function append(to: FileHandle, records: readonly AuditRow[]): Promise<void> {
    const missing = records.map(lineOf).filter((line) => !written.has(line));
    await to.appendFile(missing.map((line) => `${line}\n`).join(""));
    await to.datasync();
  }

  async function close(): Promise<void> {
    const closing = handle;
    handle = undefined;
    await closing?.close();
  }

  return { loop, round, close };
}
