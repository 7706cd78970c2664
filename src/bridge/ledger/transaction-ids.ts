// Transaction IDs of outgoing events (Matrix client-server API, "Transaction identifiers").
// Invariants: unique across the whole appservice, because a homeserver's memory of them has neither user nor device;
// a function of the delegation's or notice's unique key alone, so that an earlier send can be recognised by the event
// that carries it, even after a lost database.
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

export const isFor = (id: TransactionId, purpose: SendPurpose): boolean => id.startsWith(`db1.${purpose}.`);

// The list is digested as JSON, so no two different lists of values share a digest input.
function derive(purpose: SendPurpose, key: readonly (string | number)[]): TransactionId {
  const digest = sha256(JSON.stringify(["drawbridge.transaction.v1", purpose, ...key])).toString("base64url");
  return `db1.${purpose}.${digest}` as TransactionId;
}

/** Of an event of the delegation of `source` to `ghost`. @param ordinal among those of this purpose, from 0 */
export function replyTransactionId(source: EventId, ghost: GhostMxid, purpose: SendPurpose, ordinal: number) {
  return derive(purpose, [source, ghost, ordinal]);
}

/** Of a notice. @param marker its unique marker in the ledger */
export const noticeTransactionId = (marker: string): TransactionId => derive("notice", [marker]);
