// Statements that run for each transaction read what they need by index, however much a room has been asked.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { readKnown } from "../../../../src/bridge/ledger/admission-facts.ts";
import type { About } from "../../../../src/bridge/ledger/admission-types.ts";
import type { Queryable } from "../../../../src/bridge/ledger/postgres.ts";
import { event, ledgerFixture, room, T0 } from "../../../support/ledger.ts";

const ANSWERED = 2_000;

describe("query plans", () => {
  it("of the answers of a room only those of the last half minute are read, and no statement starts a worker process [INT-2]", async (t) => {
    const { pool } = await ledgerFixture(t);
    await pool.query(
      `INSERT INTO bridge_delegations (matrix_event_id, ghost_mxid, room_id, room_seq, room_ordinal, room_siblings,
         sender_mxid, origin_server_ts, agent_id, target_fingerprint, state, admitted_at, terminal_at, terminal_stage,
         terminal_reason)
       SELECT '$' || i, '@agent_docs:a.test', '!r', i, 0, 1, '@alice:a.test', 0, 'docs', 'f', 'completed', $1,
         $1::timestamptz - i * interval '1 second', 'reply', 'answered' FROM generate_series(1, ${ANSWERED}) i`,
      [new Date(T0)],
    );
    let plan = "";
    const explaining = async ({ text, values }: { text: string; values: unknown[] }) => {
      const { rows } = await pool.query({ text: `EXPLAIN (ANALYZE, COSTS OFF) ${text}`, values });
      plan = rows.map((line) => line["QUERY PLAN"]).join("\n");
      return { rows: [{}] };
    };
    const about: About = { rooms: [room("r")], related: [event("answer")] };
    await readKnown({ query: explaining as unknown as Queryable["query"] }, about, T0);
    const [read] =
      /(Index|Bitmap Index) Scan (using|on) bridge_delegations_answered.*rows=\d+/.exec(plan) ?? [];
    assert.match(read ?? "", /rows=29$/, plan);
    const { rows } = await pool.query("SHOW max_parallel_workers_per_gather");
    assert.deepEqual(rows, [{ max_parallel_workers_per_gather: "0" }]);
  });
});
