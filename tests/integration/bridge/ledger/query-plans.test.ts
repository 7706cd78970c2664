// Statements that run for each transaction read what they need by index, however much a room has been asked.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Pool } from "pg";
import { readKnown } from "../../../../src/bridge/ledger/admission-facts.ts";
import type { About } from "../../../../src/bridge/ledger/admission-types.ts";
import { ContentKeys } from "../../../../src/bridge/ledger/content-keys.ts";
import type { Queryable } from "../../../../src/bridge/ledger/postgres.ts";
import { createStatuses } from "../../../../src/bridge/ledger/status-messages.ts";
import type { UserId } from "../../../../src/domain/identifiers.ts";
import { event, ghost, ledgerFixture, room, T0 } from "../../../support/ledger.ts";

const ANSWERED = 2_000;
const IN_THREAD = 12_000;
const OPEN = 4_000;

/** Runs statements as their own explanations, and says how many blocks each has read. */
function counting(pool: Pool): { readonly on: Pool; readonly blocks: Map<string, number> } {
  const blocks = new Map<string, number>();
  const query = async ({ name, text, values }: { name: string; text: string; values: unknown[] }) => {
    const { rows } = await pool.query({ text: `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ${text}`, values });
    const { Plan: plan } = rows[0]["QUERY PLAN"][0];
    blocks.set(name, plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]);
    return { rows: [{}] };
  };
  return { on: Object.assign(Object.create(pool), { query }), blocks };
}

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

  it("of a thread one row of each agent is read, however much many people asked there [INT-2]", async (t) => {
    const { pool } = await ledgerFixture(t);
    const ask = (from: number, to: number) =>
      pool.query(
        `INSERT INTO bridge_delegations (matrix_event_id, ghost_mxid, room_id, room_seq, room_ordinal, room_siblings,
           sender_mxid, origin_server_ts, thread_root, agent_id, target_fingerprint, state, admitted_at, terminal_at,
           terminal_stage, terminal_reason)
         SELECT '$' || i, '@agent_' || (ARRAY['docs', 'hr', 'it'])[1 + i % 3] || ':a.test', '!r', i, 0, 1,
           '@user' || i / 3 % 1000 || ':a.test', 0, '$root', 'docs', 'f', 'failed', $1, $1, 'dispatch', 'agent_failed'
         FROM generate_series($2::int, $3::int) i`,
        [new Date(T0), from, to],
      );
    const thread = { room: room("r"), root: event("root"), sender: "@user7:a.test" as UserId };
    const about: About = { rooms: [thread.room], related: [thread.root], threads: [thread] };
    const blocksRead = async () => {
      const { on, blocks } = counting(pool);
      await readKnown(on, about, T0);
      return blocks.get("known_facts") ?? Number.NaN;
    };
    await ask(1, 30);
    await blocksRead();
    const few = await blocksRead();
    await ask(31, IN_THREAD);
    const many = await blocksRead();
    // Of each of the three agents, two searches of an index that is higher by a level or two.
    assert.ok(many <= few + 40, `${many} blocks, with 30 rows ${few}`);
    const { subjects } = await readKnown(pool, about, T0);
    const latest = (sender: number, agent: number) => {
      const ids = Array.from({ length: IN_THREAD }, (_, i) => i + 1);
      return ids.findLast((i) => Math.floor(i / 3) % 1_000 === sender && i % 3 === agent);
    };
    assert.deepEqual(
      subjects?.map(({ source, ghost: by, sender }) => [source, by, sender]),
      ["docs", "hr", "it"].map((name, agent) => [`$${latest(7, agent)}`, ghost(name), thread.sender]),
    );
    const another = { ...thread, sender: "@newcomer:a.test" as UserId };
    const { subjects: others } = await readKnown(pool, { ...about, threads: [another] }, T0);
    assert.deepEqual(new Set(others?.map(({ ghost: by }) => by)), new Set(["docs", "hr", "it"].map(ghost)));
  });

  it("open questions that have their status messages are not read to find others [INT-2]", async (t) => {
    const { pool, rows } = await ledgerFixture(t);
    await pool.query(
      `INSERT INTO bridge_delegations (matrix_event_id, ghost_mxid, room_id, room_seq, room_ordinal, room_siblings,
         sender_mxid, origin_server_ts, agent_id, target_fingerprint, state, admitted_at)
       SELECT '$' || i, '@agent_docs:a.test', '!r', i, 0, 1, '@alice:a.test', 0, 'docs', 'f',
         (ARRAY['queued', 'dispatching', 'following', 'awaiting_input'])[1 + i % 4], $1
       FROM generate_series(1, ${OPEN}) i`,
      [new Date(T0)],
    );
    const keys = ContentKeys.parse(Buffer.alloc(32, 7).toString("base64"));
    const now = T0 + 5_000;
    const claim = async () => {
      const { on, blocks } = counting(pool);
      await createStatuses(on, keys).claim({ limit: 16, now, leaseUntil: now + 1_000 });
      return blocks.get("find_statuses") ?? Number.NaN;
    };
    const found = async () => Number((await rows("SELECT count(*) AS n FROM bridge_statuses"))[0]?.["n"]);
    const expected = (OPEN * 3) / 4;
    for (let round = 0; round * 256 < expected; round++) await claim();
    assert.equal(await found(), expected);
    await pool.query("VACUUM bridge_delegations");
    const blocks = await claim();
    assert.ok(blocks <= 10, `${blocks} blocks`);
    await pool.query("UPDATE bridge_delegations SET state = 'following' WHERE matrix_event_id = '$3'");
    await claim();
    assert.equal(await found(), expected + 1, "one that the agent works on again is found");
  });
});
