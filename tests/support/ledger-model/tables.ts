// What the real tables say, and what the model says, in one shape, so that the two are compared as wholes.
// Invariants: the tables are read in one statement; everything that a caller of the ledger can observe is in the shape
// (states, owners, times, order, counts, content, notices, audit records), and nothing that only an implementation has.
import assert from "node:assert/strict";
import type { Pool } from "pg";
import { isDelegation, isOpen } from "./entities.ts";
import type { LedgerModel } from "./model.ts";

const ms = (column: string) => `(extract(epoch FROM ${column}) * 1000)::float8`;
const array = (select: string) => `(SELECT coalesce(json_agg(x), '[]') FROM (${select}) x)`;

// A room's line: what is open behind its head's place. A head that ended while it waited is stepped over by a claim.
const READ = `SELECT json_build_object(
  'delegations', ${array(`
    SELECT matrix_event_id || ' ' || ghost_mxid AS key, state, terminal_reason AS reason, ${ms("terminal_at")} AS "endedAt",
      lease_holder AS holder, ${ms("lease_until")} AS "leaseUntil", fence, ${ms("due_at")} AS "dueAt",
      ${ms("tried_at")} AS "triedAt", attempts, prompt IS NOT NULL AS "hasPrompt", answer_event_id AS "answerEvent",
      options IS NOT NULL AS "hasOptions", asked, a2a_task_id AS task, a2a_attempted AS attempted,
      a2a_unsettled AS unsettled, input_until IS NOT NULL AS "isAwaited", cancel_reason AS cancel,
      ${array(`SELECT purpose, ordinal, state, first_attempted_at IS NOT NULL AS attempted, content IS NOT NULL AS "hasContent"
        FROM bridge_sends s WHERE s.delegation_id = d.id AND s.purpose <> 'progress' ORDER BY s.id`)} AS sends
    FROM bridge_delegations d ORDER BY matrix_event_id, ghost_mxid`)},
  'envelopes', ${array(`
    SELECT matrix_event_id AS event, state, terminal_reason AS reason, ${ms("terminal_at")} AS "endedAt",
      holder IS NOT NULL AS "isHeld", ${ms("due_at")} AS "dueAt",
      CASE WHEN state = 'awaiting_key' THEN ${ms("woken_at")} END AS "wokenAt", fence, attempts, jobs
    FROM bridge_encrypted_intake ORDER BY matrix_event_id`)},
  'rooms', ${array(`
    SELECT r.room_id AS room, r.open_count AS open, r.keys_missing_at IS NOT NULL AS "keysMissing",
      r.head_at IS NOT NULL AND ${ms("r.head_at")} <= $1 AS "isDue",
      (SELECT ${ms("r.head_at")} FROM bridge_delegations d WHERE d.room_id = r.room_id AND d.room_seq = r.head_seq
         AND d.room_ordinal = r.head_ordinal AND d.terminal_at IS NOT NULL) AS "steppedOverAt",
      ARRAY(SELECT name FROM (
        SELECT d.matrix_event_id || ' ' || d.ghost_mxid AS name, d.room_seq AS seq, d.room_ordinal AS ordinal
        FROM bridge_delegations d WHERE d.room_id = r.room_id AND d.terminal_at IS NULL
          AND (d.room_seq, d.room_ordinal) >= (r.head_seq, r.head_ordinal)
        UNION ALL SELECT e.matrix_event_id, e.room_seq, 0
        FROM bridge_encrypted_intake e WHERE e.room_id = r.room_id AND e.state = 'awaiting_key' AND e.room_seq >= r.head_seq
      ) line ORDER BY seq, ordinal) AS line
    FROM bridge_rooms r ORDER BY r.room_id`)},
  'notices', ${array(`
    SELECT kind, room_id AS room, ghost_mxid AS ghost, source_event_id AS source, reason,
      ${ms("created_at")} AS "createdAt", state, ${ms("due_at")} AS "dueAt",
      holder IS NOT NULL AS "isHeld", fence, attempts
    FROM bridge_notices ORDER BY id`)},
  'statuses', ${array(`
    SELECT d.matrix_event_id || ' ' || d.ghost_mxid AS key, s.event_id AS event, ${ms("s.due_at")} AS "dueAt",
      s.holder IS NOT NULL AS "isHeld", s.fence
    FROM bridge_statuses s JOIN bridge_delegations d ON d.id = s.delegation_id ORDER BY 1`)},
  'audit', ARRAY(SELECT concat_ws(' ', record->>'event_id', COALESCE(record->'target'->>'ghost', '-'), record->>'outcome',
      record->>'terminal_reason') FROM bridge_audit ORDER BY 1),
  'handled', (SELECT count(*) FROM bridge_handled_events),
  'bound', (SELECT counted_open + admitted - counted_at_admitted FROM bridge_capacity),
  'ids', (SELECT json_object_agg(matrix_event_id || ' ' || ghost_mxid, id::text) FROM bridge_delegations),
  'noticeIds', ARRAY(SELECT id::text FROM bridge_notices ORDER BY id)
) AS tables`;

export interface Tables {
  readonly delegations: readonly { readonly key: string; readonly fence: number }[];
  readonly envelopes: readonly { readonly event: string; readonly fence: number }[];
  readonly notices: readonly { readonly fence: number }[];
  readonly statuses: readonly { readonly key: string; readonly fence: number }[];
  readonly rooms: readonly {
    readonly room: string;
    readonly open: number;
    readonly keysMissing: boolean;
    readonly isDue: boolean;
    /** When a claim may step over the head, because it ended while it waited. */
    readonly steppedOverAt?: number | null;
    readonly line: readonly string[];
  }[];
  readonly audit: readonly string[];
  readonly handled: number;
  /** The upper bound of what is open, which refuses nothing before it was counted anew. */
  readonly bound: number;
  /** IDs of delegations by event and ghost. */
  readonly ids: Readonly<Record<string, string>> | null;
  /** IDs of notices, in their order. */
  readonly noticeIds: readonly string[];
}

export async function readTables(pool: Pool, now: number): Promise<Tables> {
  const { rows } = await pool.query<{ tables: Tables }>({ name: "read_tables", text: READ, values: [now] });
  return (rows[0] as { tables: Tables }).tables;
}

const by =
  <T>(key: (one: T) => string) =>
  (left: T, right: T) =>
    key(left) < key(right) ? -1 : 1;

/** The tables as the model expects them. */
export function expectedTables(model: LedgerModel, now: number): Omit<Tables, "bound" | "ids" | "noticeIds"> {
  const delegations = [...model.delegations.values()].map(
    ({
      event: _event,
      ghost: _ghost,
      room: _room,
      sender: _sender,
      agent: _agent,
      admittedAt: _at,
      endedInLine: _in,
      ...one
    }) => one,
  );
  const envelopes = [...model.envelopes.values()].map(
    ({ room: _room, sender: _sender, admittedAt: _at, deadline: _deadline, ...one }) => ({
      ...one,
      wokenAt: isOpen(one) ? one.wokenAt : null,
    }),
  );
  const rooms = [...model.rooms].map(([room, { line, turnAt, keysMissing }]) => ({
    room,
    open: model.openIn((one) => one.room === room),
    keysMissing,
    isDue: line[0] !== undefined && isDelegation(line[0]) && turnAt <= now,
    line: line.map((one) => (isDelegation(one) ? one.key : one.event)),
  }));
  return {
    delegations: delegations.sort(by(({ key }) => key)),
    envelopes: envelopes.sort(by(({ event }) => event)),
    rooms: rooms.sort(by(({ room }) => room)),
    notices: model.notices,
    statuses: [...model.statuses.values()].sort(by(({ key }) => key)),
    audit: [...model.audit].sort(),
    handled: model.handled.size,
  };
}

/**
 * A head that leaves at the end of its room's gate may give the turn to one that has ended meanwhile. What comes then waits
 * for the same time, because the head is stepped over at that time.
 */
function adoptGates(tables: Tables, model: LedgerModel, now: number): void {
  for (const { room: name, steppedOverAt } of tables.rooms) {
    const room = model.rooms.get(name);
    if (room === undefined || typeof steppedOverAt !== "number" || steppedOverAt <= now) continue;
    assert.ok(steppedOverAt <= now + model.gateMs, `the head of ${name} ended, and is stepped over too late`);
    room.turnAt = Math.max(room.turnAt, steppedOverAt);
  }
}

/** @throws AssertionError that shows in what the tables differ from the model */
export function assertSame(tables: Tables, model: LedgerModel, now: number): void {
  adoptGates(tables, model, now);
  const { bound, ids: _ids, noticeIds: _noticeIds, ...found } = tables;
  // A head that ended while it waited, with nothing open behind it, leaves its room due; a claim finds nothing there.
  const rooms = found.rooms.map(({ steppedOverAt: _at, ...room }) => ({
    ...room,
    isDue: room.isDue && room.line[0]?.includes(" ") === true,
  }));
  assert.deepEqual({ ...found, rooms }, expectedTables(model, now));
  const open = model.openIn(() => true);
  assert.ok(bound >= open, `${open} are open, but their upper bound is ${bound}`);
}
