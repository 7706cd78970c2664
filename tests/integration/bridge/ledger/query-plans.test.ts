// Statements that run for each transaction read what they need by index, however much a room has been asked.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Pool } from "pg";
import { readKnown } from "../../../../src/bridge/ledger/admission-facts.ts";
import type { About } from "../../../../src/bridge/ledger/admission-types.ts";
import { ContentKeys } from "../../../../src/bridge/ledger/content-keys.ts";
import type { Queryable } from "../../../../src/bridge/ledger/postgres.ts";
import { createStatuses } from "../../../../src/bridge/ledger/status-messages.ts";
import type { AgentId, UserId } from "../../../../src/domain/identifiers.ts";
import {
  ACCEPTED,
  arrivals,
  asking,
  BUCKET,
  claimEnvelopes,
  envelope,
  event,
  ghost,
  job,
  LEASE_MS,
  ledgerFixture,
  PART,
  ROOM_GATE_MS,
  room,
  T0,
} from "../../../support/ledger.ts";

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

/** Rows that were read so far in this database. */
async function rowsReadBy(pool: Pool): Promise<number> {
  await pool.query("SELECT pg_stat_force_next_flush()");
  const { rows } = await pool.query(
    `SELECT (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes)
       + (SELECT sum(seq_tup_read) FROM pg_stat_user_tables) AS read`,
  );
  return Number(rows[0]?.read);
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
      plan += rows.map((line) => line["QUERY PLAN"]).join("\n");
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
      return blocks.get("known_related_facts") ?? Number.NaN;
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

  it("an admission reads as many rows, however many questions are open in its room, of its agent, of its server and in all [INT-2] [INT-4]", async (t) => {
    const { pool, admit } = await ledgerFixture(t, 1);
    const capacity = { roomQueue: 1_000_000, globalQueue: 1_000_000, agentQueue: 20, serverQueue: 20 };
    const fill = async (from: number, to: number) => {
      const values = [new Date(T0), from, to];
      await pool.query(
        `INSERT INTO bridge_delegations (matrix_event_id, ghost_mxid, room_id, room_seq, room_ordinal, room_siblings,
           sender_mxid, origin_server_ts, agent_id, target_fingerprint, thread_root, state, admitted_at)
         SELECT '$' || i, '@agent_docs:a.test', '!r', i, 0, 1, '@alice:' || (ARRAY['a', 'b'])[1 + i % 2] || '.test', 0,
           (ARRAY['docs', 'hr'])[1 + i / 2 % 2], 'f', '$thread' || i, 'queued', $1
         FROM generate_series($2::int, $3::int) i`,
        values,
      );
      await pool.query(
        `INSERT INTO bridge_encrypted_intake (matrix_event_id, room_id, sender_mxid, origin_server_ts, transaction_id,
           ingress, intake_fingerprint, deadline, room_seq, state, due_at, admitted_at)
         SELECT '$waiting' || i, '!other', '@bob:b.test', 0, 't', 'transaction', decode(repeat('00', 32), 'hex'), $1, i,
           'awaiting_key', $1, $1 FROM generate_series($2::int, $3::int) i`,
        values,
      );
      await pool.query(
        `INSERT INTO bridge_rooms (room_id, next_seq, head_at, open_count)
         SELECT '!r', $3::int + 1, $1::timestamptz, $3::int - $2::int + 1
         ON CONFLICT (room_id) DO UPDATE SET next_seq = excluded.next_seq, head_at = excluded.head_at,
           open_count = bridge_rooms.open_count + excluded.open_count`,
        values,
      );
      await pool.query("UPDATE bridge_capacity SET admitted = admitted + $1", [to - from + 1]);
    };
    let asked = 0;
    const rowsRead = async (): Promise<number> => {
      asked += 1;
      const before = await rowsReadBy(pool);
      const about = { rooms: [room("r")], related: [event("thread1"), event("7"), event("waiting7")] };
      const question = job(`q${asked}`, { sender: "@carol:c.test" as UserId, agent: "it" as AgentId });
      const refused = job(`refused${asked}`);
      const { admitted, refused: refusals } = await admit([question, refused], { about, capacity });
      assert.deepEqual([admitted, refusals.length], [1, 1]);
      return (await rowsReadBy(pool)) - before;
    };
    // Statements are planned while the tables are empty, and keep their plans.
    assert.equal(
      (await admit([job("first")], { capacity: { ...capacity, agentQueue: 0 } })).refused.length,
      1,
    );
    await fill(1_001, 1_100);
    await rowsRead();
    const few = await rowsRead();
    await fill(1_201, 1_200 + IN_THREAD);
    const many = await rowsRead();
    assert.ok(many <= few + 20, `${many} rows, with 100 open ${few}`);
  });

  it("each step of a question reads as many rows, however many wait or have ended, though all statements were planned before [INT-2] [DEL-1]", async (t) => {
    const { pool, admit, claimOne, delegations } = await ledgerFixture(t, 1);
    const fill = async (from: number, to: number) => {
      const values = [new Date(T0), from, to];
      await pool.query(
        `INSERT INTO bridge_delegations (matrix_event_id, ghost_mxid, room_id, room_seq, room_ordinal, room_siblings,
           sender_mxid, origin_server_ts, agent_id, target_fingerprint, state, admitted_at, due_at, terminal_at,
           terminal_stage, terminal_reason)
         SELECT '$' || i, '@agent_docs:a.test', '!other' || i, 1, 0, 1, '@alice:a.test', 0, 'docs', 'f', state, $1,
           CASE WHEN state = 'following' THEN $1::timestamptz + interval '1 hour' END, CASE WHEN ended THEN $1::timestamptz END,
           CASE WHEN ended THEN 'reply' END, CASE WHEN ended THEN 'answered' END
         FROM generate_series($2::int, $3::int) i
         CROSS JOIN LATERAL (SELECT (ARRAY['queued', 'following', 'completed'])[1 + i % 3] AS state) kind
         CROSS JOIN LATERAL (SELECT state = 'completed' AS ended) how`,
        values,
      );
      await pool.query(
        `INSERT INTO bridge_rooms (room_id, next_seq, head_seq, head_at, open_count)
         SELECT '!other' || i, 2, CASE WHEN i % 3 = 0 THEN 1 ELSE 2 END,
           CASE WHEN i % 3 = 0 THEN $1::timestamptz + interval '1 second' END, (i % 3 < 2)::int
         FROM generate_series($2::int, $3::int) i`,
        values,
      );
      await pool.query(
        `INSERT INTO bridge_sends (delegation_id, purpose, ordinal, transaction_id, event_type, state, event_id)
         SELECT id, 'reply', 0, 'txn' || matrix_event_id, 'm.room.message', 'sent', '$sent' || matrix_event_id
         FROM bridge_delegations WHERE state = 'completed' AND matrix_event_id ~ '^.[0-9]+$'
           AND substr(matrix_event_id, 2)::int BETWEEN $1 AND $2`,
        [from, to],
      );
      await pool.query(
        "UPDATE bridge_delegations SET state = 'awaiting_input' WHERE state = 'following' AND id % 2 = 0",
      );
    };
    const now = T0 + 2_000;
    const life = async (name: string): Promise<Record<string, number>> => {
      const read: Record<string, number> = {};
      const step = async <Result>(what: string, work: () => Promise<Result>): Promise<Result> => {
        const before = await rowsReadBy(pool);
        const result = await work();
        read[what] = (await rowsReadBy(pool)) - before;
        return result;
      };
      await step("admit", () =>
        admit([job(name)], { capacity: { roomQueue: 1_000_000, globalQueue: 1_000_000 } }),
      );
      assert.equal(await step("pass heads", () => delegations.passHeads(T0, T0 + ROOM_GATE_MS)), 0);
      const claimed = await step("claim", () => claimOne({ limit: 2, now }));
      assert.equal(claimed.sourceEventId, event(name));
      await step("renew", () => delegations.renew([claimed.lease], now + LEASE_MS));
      await step("begin", () => delegations.beginDispatch(claimed.lease, BUCKET, now));
      const answer = { parts: [PART], agentVersion: undefined, contextId: undefined };
      const sends = await step("record", () => delegations.recordReply(claimed, answer, now));
      assert.ok(sends !== "canceled");
      const [{ sendId } = { sendId: "" }] = sends;
      await step("attempt", () => delegations.recordAttempt(sendId, now));
      const sent = { sendId, eventId: event(`sent-${name}`) };
      await step("finish", () =>
        delegations.finish(
          claimed.lease,
          { state: "completed", stage: "reply", reason: "answered", sent },
          now,
        ),
      );
      const capacity = { roomQueue: 1_000_000, globalQueue: 1_000_000 };
      await admit([job(`later-${name}`)], { capacity });
      const { lease: later } = await claimOne({ limit: 2, now });
      await step("defer", () => delegations.defer(later, now + 3_600_000));
      await pool.query("UPDATE bridge_delegations SET due_at = 'infinity' WHERE id = $1", [
        later.delegationId,
      ]);
      await admit([job(`asks-${name}`)], { capacity });
      const asks = await claimOne({ limit: 2, now });
      await delegations.beginDispatch(asks.lease, BUCKET, now);
      await step("accept", () => delegations.recordAccepted(asks.lease, ACCEPTED, now));
      const further = { options: [], key: undefined, taskId: "t", asked: 0, until: now };
      const asked = await step("ask", () => delegations.recordQuestion(asks, { ...answer, ...further }, now));
      assert.ok(asked !== "canceled");
      const [question = sends[0]] = asked;
      const times = { now, until: now };
      await step("asked", () =>
        delegations.recordAsked(asks.lease, question?.sendId ?? "", event(`asked-${name}`), times),
      );
      await step("end of the wait", () => delegations.endWait(asks.lease, now));
      await pool.query("UPDATE bridge_delegations SET due_at = 'infinity' WHERE id = $1", [
        asks.lease.delegationId,
      ]);
      return read;
    };
    await life("first");
    await fill(1, 30);
    await life("second");
    const few = await life("third");
    await fill(31, IN_THREAD);
    const many = await life("fourth");
    for (const [what, rowsRead] of Object.entries(many)) {
      const before = few[what] ?? Number.NaN;
      assert.ok(rowsRead <= before + 20, `${what}: ${rowsRead} rows, with 30 others ${before}`);
    }
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

  it("an intake envelope that ends is found by its event, however many wait for their keys [INT-2] [ENC-10]", async (t) => {
    const { pool, ledger, admit } = await ledgerFixture(t, 1);
    const fill = (from: number, to: number) =>
      pool.query(
        `INSERT INTO bridge_encrypted_intake (matrix_event_id, room_id, sender_mxid, origin_server_ts, transaction_id,
           ingress, intake_fingerprint, deadline, state, due_at, admitted_at)
         SELECT '$waiting' || i, '!other', '@bob:b.test', 0, 't', 'transaction', decode(repeat('00', 32), 'hex'), $1,
           'awaiting_key', $1, $1 FROM generate_series($2::int, $3::int) i`,
        [new Date(T0 + 3_600_000), from, to],
      );
    const rowsRead = async (name: string) => {
      await admit([], arrivals(envelope(`derived-${name}`), envelope(`expired-${name}`)));
      const [derived, expired] = await claimEnvelopes(ledger);
      assert.ok(derived && expired);
      const before = await rowsReadBy(pool);
      await ledger.envelopes.derive(derived, asking(derived, []), T0);
      await ledger.envelopes.expire(expired, "undecryptable", T0);
      return (await rowsReadBy(pool)) - before;
    };
    await rowsRead("first");
    await fill(1, 30);
    const few = await rowsRead("second");
    await fill(31, OPEN);
    const many = await rowsRead("third");
    assert.ok(many <= few + 20, `${many} rows, with 30 that wait ${few}`);
  });

  it("neither what has ended nor other rooms are read to claim status messages that are due [INT-2] [DEL-6]", async (t) => {
    const { pool, ledger, admit } = await ledgerFixture(t, 1);
    const now = T0 + 6_000;
    const request = { limit: 10, now, leaseUntil: now + LEASE_MS, holder: "one", ghosts: [ghost()] };
    const rowsRead = async (name: string) => {
      await admit([job(name)]);
      const before = await rowsReadBy(pool);
      assert.equal((await ledger.statuses.claim(request)).length, 1);
      return (await rowsReadBy(pool)) - before;
    };
    await rowsRead("first");
    const few = await rowsRead("second");
    await pool.query(
      `INSERT INTO bridge_delegations (matrix_event_id, ghost_mxid, room_id, room_seq, room_ordinal, room_siblings,
         sender_mxid, origin_server_ts, agent_id, target_fingerprint, state, admitted_at, terminal_at, terminal_stage,
         terminal_reason)
       SELECT '$' || i, '@agent_docs:a.test', '!other' || i, 1, 0, 1, '@alice:a.test', 0, 'docs', 'f', 'completed', $1, $1,
         'reply', 'answered' FROM generate_series(1, ${OPEN}) i`,
      [new Date(T0)],
    );
    await pool.query(
      `INSERT INTO bridge_rooms (room_id, next_seq, head_seq, encrypted)
       SELECT '!other' || i, 2, 2, true FROM generate_series(1, ${OPEN}) i`,
    );
    const many = await rowsRead("third");
    assert.ok(many <= few + 20, `${many} rows, with no others ${few}`);
  });
});
