// The events that a delegation sends: stored sealed with their transaction IDs, then sent one by one.
// Invariants: an attempt is recorded before it is made, and none is made once the event was sent or abandoned; the event
// ID is a fact about the homeserver, so it is recorded whoever reports it; a sent event keeps no content.
import type { Pool } from "pg";
import type { EventId, GhostMxid, RoomId, TransactionId } from "../../domain/identifiers.ts";
import type { UnknownObject } from "../../domain/json.ts";
import type { ContentKeys } from "./content-keys.ts";
import { sourceOf } from "./delegations.ts";
import { assertHeld, type ClaimedDelegation, HELD, heldBy, type Lease } from "./leases.ts";
import { entities, leaseLost, oneRow, rows, statement, toTime } from "./postgres.ts";
import { advanceRoom } from "./room-order.ts";
import type { SendPurpose } from "./states.ts";
import { replyTransactionId } from "./transaction-ids.ts";

/** One event of an answer or a question, in the order of sending. */
export interface ReplyPart {
  readonly eventType: string;
  readonly content: UnknownObject;
}

/** An event to be sent, with the transaction ID of every attempt. */
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
  /** When it was first attempted; undefined before that. */
  readonly firstAttemptedAt: number | undefined;
}

/** The row identity that an event's content is sealed for. */
const sendIdentity = (transactionId: string) => `send\n${transactionId}`;

/**
 * A CTE that stores the events of the delegation in the CTE `moved`, the first of them with the ordinal `from`. The other
 * parameters are arrays: transaction IDs, types, sealed contents.
 */
export const insertSends = (
  purpose: string,
  ids: string,
  types: string,
  contents: string,
  from = "0",
) => `sends AS (
    INSERT INTO bridge_sends (delegation_id, purpose, ordinal, transaction_id, event_type, content)
    SELECT m.id, ${purpose}, ${from} + p.ordinal - 1, p.transaction_id, p.event_type, p.content
    FROM moved m, unnest(${ids}::text[], ${types}::text[], ${contents}::bytea[])
      WITH ORDINALITY AS p (transaction_id, event_type, content, ordinal)
    RETURNING id, ordinal
  )`;

const RECORD_REPLY = statement("record_reply")`
  WITH held AS (
    SELECT d.id, d.cancel_requested_at IS NOT NULL AS canceled
    FROM bridge_delegations d WHERE ${HELD} AND d.state IN ('dispatching', 'following', 'awaiting_input') FOR UPDATE
  ), moved AS (
    UPDATE bridge_delegations d SET
      state = 'reply_pending', accepted_at = COALESCE(d.accepted_at, $4), reply_at = $4, waiting_since = $4, due_at = d.lease_until,
      prompt = NULL, options = NULL, agent_version = COALESCE($5, d.agent_version), attempts = 0,
      a2a_context_id = COALESCE($9, d.a2a_context_id)
    FROM held h WHERE d.id = h.id AND NOT h.canceled
    RETURNING d.id, d.room_id, d.room_seq, d.room_ordinal, d.room_siblings
  ), advanced AS (${advanceRoom("$4", 0)}
  ), ${insertSends("'reply'", "$6", "$7", "$8")}
  SELECT (SELECT count(*)::int FROM held) AS held, COALESCE((SELECT canceled FROM held), false) AS canceled,
    ARRAY(SELECT id::text FROM sends ORDER BY ordinal) AS send_ids`;

const PENDING_SENDS = statement("pending_sends")`
  SELECT s.id AS "sendId", s.purpose, s.ordinal, d.room_id AS "roomId", d.ghost_mxid AS ghost,
    d.matrix_event_id AS "sourceEventId", s.transaction_id AS "transactionId", s.event_type AS "eventType",
    s.content, s.first_attempted_at AS "firstAttemptedAt"
  FROM bridge_sends s JOIN bridge_delegations d ON d.id = s.delegation_id
  WHERE ${HELD} AND s.state = 'pending' AND s.purpose = $4
  ORDER BY s.ordinal`;

/** Events of a delegation, with their transaction IDs and sealed contents. @param from the ordinal of the first */
export function newSends(
  keys: ContentKeys,
  { sourceEventId, ghost, roomId }: ClaimedDelegation,
  purpose: SendPurpose,
  parts: readonly ReplyPart[],
  from = 0,
) {
  const sends = parts.map((part, index) => ({
    ...{ purpose, ordinal: from + index, roomId, ghost, sourceEventId, ...part },
    transactionId: replyTransactionId(sourceEventId, ghost, purpose, from + index),
    firstAttemptedAt: undefined,
  }));
  return {
    /** Values of the parameters of {@link insertSends}. */
    values: [
      sends.map(({ transactionId }) => transactionId),
      sends.map(({ eventType }) => eventType),
      sends.map(({ content, transactionId }) =>
        keys.seal(JSON.stringify(content), sendIdentity(transactionId)),
      ),
    ],
    /** What is to be sent, once the rows stand. @param ids the IDs of the rows, in order */
    pending: (ids: readonly string[]): PendingSend[] =>
      sends.map((send, index) => ({ ...send, sendId: ids[index] ?? "" })),
  };
}

type SealedSend = Omit<PendingSend, "content"> & { readonly content: Buffer };

const RECORD_ATTEMPT = statement("record_attempt")`
  UPDATE bridge_sends SET first_attempted_at = COALESCE(first_attempted_at, $2)
  WHERE id = $1 AND state = 'pending' RETURNING id`;

const SENT_AS = statement("sent_as")`
  SELECT event_id AS event FROM bridge_sends WHERE id = $1 AND state = 'sent'`;

const RECORD_SENT = statement("record_sent")`
  UPDATE bridge_sends SET state = 'sent', event_id = $2, content = NULL WHERE id = $1 AND state = 'pending'`;

export function createReplies(pool: Pool, keys: ContentKeys) {
  return {
    /**
     * Stores the parts of the answer (sealed) with their transaction IDs; the state becomes `reply_pending`.
     * `canceled`: it is to be canceled and nothing was written; finish it as canceled.
     */
    async recordReply(
      claimed: ClaimedDelegation,
      reply: {
        parts: readonly ReplyPart[];
        agentVersion: string | undefined;
        /** The agent's conversation, where it was not recorded before. */
        contextId?: string | undefined;
      },
      now: number,
    ): Promise<PendingSend[] | "canceled"> {
      const sends = newSends(keys, claimed, "reply", reply.parts);
      const row = await oneRow<{ held: number; canceled: boolean; send_ids: string[] }>(pool, RECORD_REPLY, [
        ...heldBy(claimed.lease),
        toTime(now),
        reply.agentVersion ?? null,
        ...sends.values,
        reply.contextId ?? null,
      ]);
      assertHeld(row.held, claimed.lease);
      if (row.canceled) return "canceled";
      return sends.pending(row.send_ids);
    },

    /** The unsent events of a delegation for one purpose, in order. */
    async pendingSends(lease: Lease, purpose: SendPurpose): Promise<PendingSend[]> {
      // Rejects when the lease is lost, even if nothing is pending.
      await sourceOf(pool, lease);
      const pending = await entities<SealedSend>(pool, PENDING_SENDS, [...heldBy(lease), purpose]);
      return pending.map((send) => ({
        ...send,
        content: JSON.parse(
          keys.open(send.content, sendIdentity(send.transactionId)),
        ) as PendingSend["content"],
      }));
    },

    /**
     * Records that a request for this event is about to be made. Keeps the time of the first attempt.
     * @returns the event ID when the event was sent meanwhile: no request is needed
     * @throws DrawbridgeError `lease_lost` when the event was abandoned meanwhile: it must not be sent
     */
    async recordAttempt(sendId: string, now: number): Promise<EventId | undefined> {
      const touched = await rows(pool, RECORD_ATTEMPT, [sendId, toTime(now)]);
      if (touched.length === 1) return undefined;
      const [sent] = await rows<{ event: EventId }>(pool, SENT_AS, [sendId]);
      if (sent === undefined) throw leaseLost(`event ${sendId}`);
      return sent.event;
    },

    /** Records the event ID that the homeserver gave, and clears the content. */
    async recordSent(sendId: string, eventId: EventId): Promise<void> {
      await rows(pool, RECORD_SENT, [sendId, eventId]);
    },
  };
}
