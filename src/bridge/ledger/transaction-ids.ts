// Transaction IDs of outgoing events (Matrix client-server API, "Transaction identifiers").
// Invariants:
// - unique across the whole appservice: a homeserver's memory of them is keyed by neither user nor device,
//   so room, ghost, purpose and ordinal all go in (an event ID names its room);
// - a function of the delegation's or notice's unique key alone: made again after a lost database, the ID
//   is the same one, and an event carries it, so that an earlier send can be recognised.
import { sha256 } from "../../domain/digest.ts";
import type { EventId, GhostMxid, TransactionId } from "../../domain/identifiers.ts";
import type { UnknownObject } from "../../domain/json.ts";
import type { SendPurpose } from "./states.ts";

/** The key in an event's content under which the bridge writes the transaction ID it was sent with. */
export const TRANSACTION_KEY = "org.drawbridge.transaction_id";

/** The transaction ID that an event carries, if it carries one. Anybody may write one: its sender says whose it is. */
export function transactionIdIn(content: UnknownObject): TransactionId | undefined {
  const value = content[TRANSACTION_KEY];
  return typeof value === "string" && value.startsWith("db1.") ? (value as TransactionId) : undefined;
}

/** Whether an ID is of an event with this purpose. */
export function isFor(id: TransactionId, purpose: SendPurpose): boolean {
  return id.startsWith(`db1.${purpose}.`);
}

// The list is digested as JSON, so no two different lists of values share a digest input.
function derive(purpose: SendPurpose, key: readonly (string | number)[]): TransactionId {
  const digest = sha256(JSON.stringify(["drawbridge.transaction.v1", purpose, ...key])).toString("base64url");
  return `db1.${purpose}.${digest}` as TransactionId;
}

/**
 * The transaction ID of one event that belongs to a delegation.
 * @param source the event of the question
 * @param ghost the ghost that the question addresses; with `source` it is the delegation's unique key
 * @param ordinal place among the delegation's events of this purpose, from 0
 */
export function replyTransactionId(
  source: EventId,
  ghost: GhostMxid,
  purpose: SendPurpose,
  ordinal: number,
): TransactionId {
  return derive(purpose, [source, ghost, ordinal]);
}

/**
 * The transaction ID of a notice.
 * @param marker the notice's unique marker in the ledger
 */
export function noticeTransactionId(marker: string): TransactionId {
  return derive("notice", [marker]);
}
