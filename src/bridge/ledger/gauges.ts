// What waits in the database, for the gauges: one statement that reads what is open by its indices, and nothing of what
// has ended.
import type { Pool } from "pg";
import type { GhostMxid } from "../../domain/identifiers.ts";
import { statement } from "./postgres.ts";
import type { OpenState } from "./states.ts";

export interface Waiting {
  readonly delegations: Readonly<Partial<Record<OpenState, number>>>;
  /** Since when the oldest question, or answer to one of an agent, waits to be accepted by its agent. */
  readonly oldestQuestionAt: number | undefined;
  /** Encrypted events without a key: which hold their rooms, whose rooms have continued, when the oldest came. */
  readonly envelopes: { readonly holding: number; readonly passed: number; readonly oldestAt: number | null };
  readonly oldestAuditAt: number | undefined;
  readonly quarantined: number;
}

const WAITING = statement<Waiting>("gauges")`
  WITH open AS MATERIALIZED (
    SELECT state, count(*)::int AS number, min(COALESCE(waiting_since, admitted_at)) AS oldest
    FROM bridge_delegations WHERE terminal_at IS NULL GROUP BY state
  )
  SELECT COALESCE((SELECT json_object_agg(state, number) FROM open), '{}') AS delegations,
    (SELECT min(oldest) FROM open WHERE state IN ('queued', 'dispatching')) AS "oldestQuestionAt",
    (SELECT json_build_object('holding', count(room_seq), 'passed', count(*) - count(room_seq),
       'oldestAt', (extract(epoch FROM min(admitted_at)) * 1000)::float8)
     FROM bridge_encrypted_intake WHERE state = 'awaiting_key') AS envelopes,
    (SELECT created_at FROM bridge_audit WHERE exported_at IS NULL ORDER BY id LIMIT 1) AS "oldestAuditAt",
    (SELECT count(*)::int FROM bridge_targets WHERE ghost_mxid = ANY ($1) AND trust = 'quarantined') AS quarantined`;

export const createGauges = (pool: Pool) => (ghosts: readonly GhostMxid[]) => WAITING.first(pool, [ghosts]);
