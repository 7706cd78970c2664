// Outgoing events of delegations: the attempt is recorded before it is made, the event ID once it is known.
// An event that was sent or abandoned meanwhile is refused; the event ID is a fact about the homeserver,
// true whoever records it.
import type { EventId } from "../../domain/identifiers.ts";
import { noLongerHeld, type Queryable, rows, type Statement, toTime } from "./statement.ts";

const RECORD_ATTEMPT: Statement = {
  name: "record_attempt",
  text: `UPDATE bridge_sends SET first_attempted_at = COALESCE(first_attempted_at, $2)
         WHERE id = $1 AND state = 'pending' RETURNING id`,
};

/** @throws DrawbridgeError `lease_lost` when it was sent or abandoned meanwhile: it must not be sent */
export async function recordAttempt(on: Queryable, sendId: string, now: number): Promise<void> {
  const touched = await rows(on, RECORD_ATTEMPT, [sendId, toTime(now)]);
  if (touched.length !== 1) throw noLongerHeld(`event ${sendId}`);
}

const RECORD_SENT: Statement = {
  name: "record_sent",
  text: `UPDATE bridge_sends SET state = 'sent', event_id = $2, content = NULL WHERE id = $1 AND state = 'pending'`,
};

export async function recordSent(on: Queryable, sendId: string, eventId: EventId): Promise<void> {
  await rows(on, RECORD_SENT, [sendId, eventId]);
}
