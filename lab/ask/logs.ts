// Reads a bridge's audit file and a gateway's access log as they grow: the record of a question, and its
// invocation.
import { closeSync, openSync, readSync, statSync } from "node:fs";
import * as z from "zod";
import { DelegationAudit } from "../../src/bridge/audit/records.ts";
import type { Clock } from "../../src/domain/clock.ts";
import type { EventId, GhostMxid } from "../../src/domain/identifiers.ts";

/** Each call returns the whole lines that were appended since the last one. */
export function tailOf(file: string): () => string[] {
  let position = sizeOf(file);
  let rest = "";
  return () => {
    const size = sizeOf(file);
    if (size < position) {
      position = 0; // Replaced by a new file.
      rest = "";
    }
    if (size === position) return [];
    const chunk = Buffer.alloc(size - position);
    const descriptor = openSync(file, "r");
    try {
      position += readSync(descriptor, chunk, 0, chunk.length, position);
    } finally {
      closeSync(descriptor);
    }
    const lines = (rest + chunk.toString("utf8")).split("\n");
    rest = lines.pop() ?? "";
    return lines.filter((line) => line !== "");
  };
}

function sizeOf(file: string): number {
  try {
    return statSync(file).size;
  } catch {
    return 0;
  }
}

export type DelegationRecord = z.output<typeof DelegationAudit>;

const POLL_MS = 20;

/** The record of this question to this ghost, once it is written; undefined if it is not by the deadline. */
export async function findRecord(
  lines: () => string[],
  eventId: EventId,
  ghost: GhostMxid,
  clock: Clock,
  deadline: number,
): Promise<DelegationRecord | undefined> {
  for (;;) {
    for (const line of lines()) {
      const record = parseRecord(line);
      if (record?.event_id === eventId && record.target.ghost === ghost) return record;
    }
    if (clock.now() > deadline) return undefined;
    await clock.sleep(POLL_MS);
  }
}

/** The file's lines carry the ledger's own ID besides the fields of the schema. */
function parseRecord(line: string): DelegationRecord | undefined {
  try {
    const { audit_id: _id, ...record } = JSON.parse(line) as Record<string, unknown>;
    return DelegationAudit.safeParse(record).data;
  } catch {
    return undefined;
  }
}

export const AccessLogLine = z.object({
  start_time: z.string(),
  azp: z.string().nullable(),
  route: z.string().nullable(),
  code: z.number(),
  details: z.string().nullable(),
  duration_ms: z.number(),
});
export type AccessLogLine = z.output<typeof AccessLogLine>;

const WAIT_MS = 3_000;
/** The two programs round their times on their own. */
const ROUNDING_MS = 2;

/**
 * The caller's first invocation between the question's admission and its end; the log lags a little behind.
 * @param isCaller by `azp`; others try at the same time, and are refused
 */
export async function findInvocation(
  lines: () => string[],
  record: DelegationRecord,
  isCaller: (azp: string) => boolean,
  clock: Clock,
): Promise<AccessLogLine | null> {
  if (!record.a2a_attempted) return null;
  const from = Date.parse(record.admitted_at) - ROUNDING_MS;
  const to = Date.parse(record.time) + ROUNDING_MS;
  const deadline = clock.now() + WAIT_MS;
  for (;;) {
    for (const line of lines()) {
      const parsed = parseLine(line);
      if (parsed?.route?.startsWith("invoke:") !== true) continue;
      if (parsed.azp === null || !isCaller(parsed.azp)) continue;
      const startedAt = Date.parse(parsed.start_time);
      if (startedAt >= from && startedAt <= to) return parsed;
    }
    if (clock.now() > deadline) return null;
    await clock.sleep(POLL_MS);
  }
}

function parseLine(line: string): AccessLogLine | undefined {
  try {
    return AccessLogLine.safeParse(JSON.parse(line)).data;
  } catch {
    return undefined;
  }
}
