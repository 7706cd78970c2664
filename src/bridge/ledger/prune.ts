// Forgetting what has served its purpose. Delegations, intake envelopes and message indices stay: their unique keys are
// what makes an event that comes again harmless, however late. Audit records stay: the table is the durable record.
import { type Queryable, rows, type Statement, toTime } from "./statement.ts";

const PRUNE_TRANSACTIONS: Statement = {
  name: "prune_transactions",
  text: `DELETE FROM bridge_transactions WHERE received_at < $1`,
};

const PRUNE_MALFORMED: Statement = {
  name: "prune_malformed",
  text: `DELETE FROM bridge_malformed_events WHERE received_at < $1`,
};

export async function prune(on: Queryable, before: number): Promise<void> {
  await rows(on, PRUNE_TRANSACTIONS, [toTime(before)]);
  await rows(on, PRUNE_MALFORMED, [toTime(before)]);
}
