// Outgoing events of delegations: the attempt is recorded before it is made, the event ID once it is known.
// Both are facts about the homeserver, true whoever records them, so they carry no lease.
import type { EventId } from "../../domain/identifiers.ts";
import { type Queryable, rows, type Statement, toTime } from "./statement.ts";

const RECORD_ATTEMPT: Statement = {
  name: "record_attempt",
  text: `UPDATE bridge_sends SET first_attempted_at = $2 WHERE id = $1 AND first_attempted_at IS NULL`,
};

export async function recordAttempt(on: Queryable, sendId: string, now: number): Promise<void> {
  await rows(on, RECORD_ATTEMPT, [sendId, toTime(now)]);
}

const RECORD_SENT: Statement = {
  name: "record_sent",
  text: `UPDATE bridge_sends SET state = 'sent', event_id = $2, content = NULL WHERE id = $1 AND state = 'pending'`,
};

export async function recordSent(on: Queryable, sendId: string, eventId: EventId): Promise<void> {
  await rows(on, RECORD_SENT, [sendId, eventId]);
}
