// What a bridge's audit file says of one delegation.
import type { z } from "zod";
import { DelegationAudit } from "../../src/bridge/audit/records.ts";
import type { Clock } from "../../src/domain/clock.ts";
import type { EventId, GhostMxid } from "../../src/domain/identifiers.ts";

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

/** The file's lines carry the ledger's own ID besides what the schema names. */
function parseRecord(line: string): DelegationRecord | undefined {
  try {
    const { audit_id: _id, ...record } = JSON.parse(line) as Record<string, unknown>;
    return DelegationAudit.safeParse(record).data;
  } catch {
    return undefined;
  }
}
