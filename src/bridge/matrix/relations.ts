// How an event of the bridge says what it answers (Matrix client-server API, "Rich replies", "Threading").
// Invariant: a question asked in a thread is answered in that thread, any other by a reply.
import type { EventId } from "../../domain/identifiers.ts";

/**
 * The `m.relates_to` of an answer to `source`.
 * @param continued true for all but the first event of one answer: clients need not quote the question again
 */
export function relatesTo(
  source: EventId,
  threadRoot: EventId | undefined,
  continued = false,
): Readonly<Record<string, unknown>> {
  const inReplyTo = { "m.in_reply_to": { event_id: source } };
  if (threadRoot === undefined) return inReplyTo;
  return { rel_type: "m.thread", event_id: threadRoot, is_falling_back: continued, ...inReplyTo };
}
