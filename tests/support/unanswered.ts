// What became of questions that nobody answered: for a crash test that fails, so that its message says where
// each of them stands. Invariant: it holds identifiers, states and times alone, as the tables and logs do.
import type { EventId } from "../../src/domain/identifiers.ts";
import type { EncryptedBridge } from "./encrypted-bridge.ts";

/** A bridge that was ended, and what it logged. */
export interface PastBridge {
  readonly startedAt: number;
  readonly endedAt: number;
  readonly printed: string;
}

const DELEGATIONS = `
  SELECT d.matrix_event_id, d.id, d.room_seq, d.state, d.ingress, d.lease_holder, d.lease_until, d.due_at, d.attempts,
    d.a2a_attempted, d.a2a_unsettled, d.retry_reason, d.admitted_at, d.accepted_at, d.terminal_at, d.terminal_reason
  FROM bridge_delegations d WHERE d.matrix_event_id = ANY($1) ORDER BY d.id`;
const ENVELOPES = `
  SELECT matrix_event_id, room_seq, state, ingress, attempts, key_requests, due_at, is_held, woken_at, deadline,
    admitted_at, terminal_reason
  FROM bridge_encrypted_intake WHERE matrix_event_id = ANY($1) ORDER BY room_seq`;
const OTHERS = [
  "SELECT state, count(*)::int AS delegations, max(terminal_at) AS last FROM bridge_delegations GROUP BY state",
  "SELECT state, count(*)::int AS envelopes FROM bridge_encrypted_intake GROUP BY state",
  "SELECT * FROM bridge_rooms",
  "SELECT * FROM bridge_ghosts",
  "SELECT ghost_mxid, device_id, fence, epoch, published_at FROM bridge_crypto_stores",
  "SELECT now() AS now",
];

/** Lines of a log that are no plain course of things. */
function complaints(printed: string): string[] {
  return printed.split("\n").filter((line) => {
    try {
      return !["debug", "info"].includes((JSON.parse(line) as { level: string }).level);
    } catch {
      return line.trim() !== "";
    }
  });
}

const LINES_MAX = 60;

/**
 * Where each of these questions stands, and what the bridges complained of; oldest first.
 * @param brought in how many transactions each event came
 */
export async function whereaboutsOf(
  unanswered: readonly EventId[],
  bridge: Pick<EncryptedBridge, "rows">,
  brought: ReadonlyMap<string, number>,
  bridges: readonly PastBridge[],
): Promise<string> {
  const table = async (sql: string, values: unknown[] = []) =>
    (await bridge.rows(sql, values)).map((row) => JSON.stringify(row));
  const past = bridges.flatMap(({ startedAt, endedAt, printed }, index) => {
    const span = `${new Date(startedAt).toISOString()} to ${new Date(endedAt).toISOString()}`;
    const lines = complaints(printed);
    return lines.length === 0 ? [] : [`bridge ${index}, ${span}:`, ...lines];
  });
  return [
    `${unanswered.length} unanswered:`,
    ...unanswered.map((event) => `${event}: in ${brought.get(event) ?? 0} transactions`),
    ...(await table(DELEGATIONS, [unanswered])),
    ...(await table(ENVELOPES, [unanswered])),
    ...(await Promise.all(OTHERS.map((sql) => table(sql)))).flat(),
    ...past.slice(-LINES_MAX),
  ].join("\n");
}
