// The events that a delegation sends: stored sealed with their transaction IDs, then sent one by one.
// Invariants: an attempt is recorded before it is made, and none is made once the event was sent or abandoned; the event
// ID is a fact about the homeserver, so it is recorded whoever reports it; a sent event keeps no content.
import type { Pool } from "pg";
import type { EventId, GhostMxid, RoomId, TransactionId } from "../../domain/identifiers.ts";
import type { UnknownObject } from "../../domain/json.ts";
import type { ContentKeys } from "./content-keys.ts";
import { sourceOf } from "./delegation-transitions.ts";
import { type ClaimedDelegation, HELD, heldBy, type Lease, nameOf } from "./leases.ts";
import { columnsOf, type Queryable, statement, toTime } from "./postgres.ts";
import { advanceRoom } from "./room-order.ts";
import type { SendPurpose } from "./states.ts";
import { replyTransactionId } from "./transaction-ids.ts";

export type ReplyPart = { readonly eventType: string; readonly content: UnknownObject };

export interface PendingSend {
  readonly sendId: string;
  readonly purpose: SendPurpose;
  readonly ordinal: number;
  readonly roomId: RoomId;
  readonly ghost: GhostMxid;
  readonly sourceEventId: EventId;
  readonly transactionId: TransactionId;
  readonly eventType: string;
  readonly content: UnknownObject;
  readonly firstAttemptedAt: number | undefined;
}

const sendIdentity = (transactionId: string) => `send\n${transactionId}`;

export interface Said {
  readonly parts: readonly ReplyPart[];
  readonly agentVersion: string | undefined;
  /** The agent's conversation, where it was not recorded before. */
  readonly contextId?: string | undefined;
}

/**
 * Returns what stores an agent's words as events to be sent, sealed, and gives the turn to the room's next delegation. What
 * was not sent of a question before, which was answered without it or needs no answer any more, is given up. It yields
 * `canceled`, and writes nothing, when the delegation is to be canceled.
 * @param set further assignments; `$8` is the ordinal of the first event, and `further` values begin with `$11`
 */
export function storing(name: string, purpose: SendPurpose, from: string, set: string) {
  const store = statement<{ canceled: boolean; send_ids: string[] }>(name)`
    WITH held AS (
      SELECT d.id, d.cancel_requested_at IS NOT NULL AS canceled
      FROM bridge_delegations d WHERE ${HELD} AND ${from} FOR UPDATE
    ), moved AS (
      UPDATE bridge_delegations d SET
        accepted_at = COALESCE(d.accepted_at, $4), waiting_since = $4, due_at = d.lease_until, prompt = NULL, attempts = 0,
        agent_version = COALESCE($9, d.agent_version), a2a_context_id = COALESCE($10, d.a2a_context_id), ${set}
      FROM held h WHERE d.id = h.id AND NOT h.canceled
      RETURNING d.id, d.room_id, d.room_seq, d.room_ordinal, d.room_siblings
    ), advanced AS (${advanceRoom("$4", 0)}
    ), given_up AS (
      UPDATE bridge_sends s SET state = 'abandoned', content = NULL
      FROM moved m WHERE s.delegation_id = m.id AND s.state = 'pending'
    ), sends AS (
      INSERT INTO bridge_sends (delegation_id, purpose, ordinal, transaction_id, event_type, content)
      SELECT m.id, '${purpose}', $8 + p.ordinal - 1, p.transaction_id, p.event_type, p.content
      FROM moved m, unnest($5::text[], $6::text[], $7::bytea[])
        WITH ORDINALITY AS p (transaction_id, event_type, content, ordinal)
      RETURNING id, ordinal
    )
    SELECT canceled, ARRAY(SELECT id::text FROM sends ORDER BY ordinal) AS send_ids FROM held`;
  return async (
    on: Queryable,
    keys: ContentKeys,
    { lease, sourceEventId, ghost, roomId }: ClaimedDelegation,
    { parts, agentVersion, contextId }: Said,
    now: number,
    first = 0,
    further: readonly unknown[] = [],
  ): Promise<PendingSend[] | "canceled"> => {
    const sends = parts.map((part, index) => ({
      ...{ purpose, ordinal: first + index, roomId, ghost, sourceEventId, ...part },
      transactionId: replyTransactionId(sourceEventId, ghost, purpose, first + index),
      firstAttemptedAt: undefined,
    }));
    const sealed = sends.map(({ content, transactionId }) =>
      keys.seal(JSON.stringify(content), sendIdentity(transactionId)),
    );
    const ids = columnsOf(sends, "transactionId", "eventType");
    const said = [...ids, sealed, first, agentVersion, contextId];
    const values = [...heldBy(lease), toTime(now), ...said, ...further];
    const row = await store.held(on, values, nameOf(lease));
    if (row.canceled) return "canceled";
    return sends.map((send, index) => ({ ...send, sendId: row.send_ids[index] ?? "" }));
  };
}

const storeReply = storing(
  "record_reply",
  "reply",
  "d.state IN ('dispatching', 'following', 'awaiting_input')",
  "state = 'reply_pending', reply_at = $4, options = NULL",
);

const PENDING_SENDS = statement<Omit<PendingSend, "content"> & { readonly content: Buffer }>("pending_sends")`
  SELECT s.id AS "sendId", s.purpose, s.ordinal, d.room_id AS "roomId", d.ghost_mxid AS ghost,
    d.matrix_event_id AS "sourceEventId", s.transaction_id AS "transactionId", s.event_type AS "eventType",
    s.content, s.first_attempted_at AS "firstAttemptedAt"
  FROM bridge_sends s JOIN bridge_delegations d ON d.id = s.delegation_id
  WHERE ${HELD} AND s.state = 'pending' AND s.purpose = $4
  ORDER BY s.ordinal`;

const RECORD_ATTEMPT = statement("record_attempt")`
  UPDATE bridge_sends SET first_attempted_at = COALESCE(first_attempted_at, $2)
  WHERE id = $1 AND state = 'pending' RETURNING id`;

const SENT_AS = statement<{ event: EventId }>("sent_as")`
  SELECT event_id AS event FROM bridge_sends WHERE id = $1 AND state = 'sent'`;

const RECORD_SENT = statement("record_sent")`
  UPDATE bridge_sends SET state = 'sent', event_id = $2, content = NULL WHERE id = $1 AND state = 'pending'`;

export function createReplies(pool: Pool, keys: ContentKeys) {
  return {
    recordReply: (claimed: ClaimedDelegation, reply: Said, now: number) =>
      storeReply(pool, keys, claimed, reply, now),

    async pendingSends(lease: Lease, purpose: SendPurpose): Promise<PendingSend[]> {
      // Rejects when the lease is lost, even if nothing is pending.
      await sourceOf(pool, lease);
      const pending = await PENDING_SENDS.rows(pool, [...heldBy(lease), purpose]);
      return pending.map(({ content, ...send }) => {
        const opened = keys.open(content, sendIdentity(send.transactionId));
        return { ...send, content: JSON.parse(opened) as UnknownObject };
      });
    },

    /** The event ID when it was sent meanwhile. @throws DrawbridgeError `lease_lost` when it was abandoned: it must not be sent */
    async recordAttempt(sendId: string, now: number): Promise<EventId | undefined> {
      if ((await RECORD_ATTEMPT.first(pool, [sendId, toTime(now)])) !== undefined) return undefined;
      return (await SENT_AS.held(pool, [sendId], `event ${sendId}`)).event;
    },

    recordSent: (sendId: string, eventId: EventId) => RECORD_SENT.run(pool, [sendId, eventId]),
  };
}
