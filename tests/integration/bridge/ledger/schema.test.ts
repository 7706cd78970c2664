// The schema of the tables and its migrations, and how statements hand over values.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { migrate } from "../../../../src/bridge/ledger/migrate.ts";
import { createLedgerPool, statement } from "../../../../src/bridge/ledger/postgres.ts";
import * as states from "../../../../src/bridge/ledger/states.ts";
import { testDatabase } from "../../../support/database.ts";

/** The members of each `column IN (…)` check of a table. */
async function checkedSets(
  pool: { query(sql: string): Promise<{ rows: { text: string }[] }> },
  table: string,
) {
  const { rows } = await pool.query(
    `SELECT pg_get_constraintdef(oid) AS text FROM pg_constraint WHERE conrelid = '${table}'::regclass AND contype = 'c'`,
  );
  const sets = new Map<string, string[]>();
  for (const { text } of rows) {
    const match = /^CHECK \(\(?(\w+) = ANY \(ARRAY\[(.*)\]\)\)?\)$/.exec(text);
    if (match?.[1] === undefined || match[2] === undefined) continue;
    sets.set(match[1], [...match[2].matchAll(/'([^']+)'/g)].map((one) => one[1] ?? "").sort());
  }
  return sets;
}

describe("statement", () => {
  it("hands over arrays with whatever is in them", async (t) => {
    const { pool } = await testDatabase(t, { migrated: false });
    const texts = ["", "NULL", 'a "b"', "c\\d", "{e,f}", "\n\t", "\u{1f600}", "\u2028", null, undefined];
    const numbers = [0, -1, 2.5, 1e21, Number.MAX_SAFE_INTEGER, null, undefined];
    const bytes = [Buffer.from([0, 92, 34, 255]), null];
    const read = statement<{ one: unknown }>("arrays")`
      SELECT jsonb_build_array($1::text[], $2::float8[], $3::bool[], $4::bytea[]) AS one`;
    const values = [texts, numbers, [true, false, undefined], bytes];
    // One of the texts needs the driver's own form; without it they have the form of JSON.
    for (const some of [texts, texts.filter((text) => text !== "c\\d" && text !== "\n\t")]) {
      const { one } = await read.one(pool, [some, ...values.slice(1)]);
      const expected = [some, numbers, [true, false, null], ["\\x005c22ff", null]];
      assert.deepEqual(one, JSON.parse(JSON.stringify(expected)));
    }
    assert.deepEqual((await read.one(pool, [[], [], [], []])).one, [[], [], [], []]);
  });
});

describe("schema", () => {
  it("has the closed sets of the code as CHECK constraints", async (t) => {
    const { pool } = await testDatabase(t);
    const sorted = (...lists: (readonly string[])[]) => lists.flat().sort();
    const delegations = await checkedSets(pool, "bridge_delegations");
    assert.deepEqual(delegations.get("state"), sorted(states.OPEN_STATES, states.TERMINAL_STATES));
    const notices = await checkedSets(pool, "bridge_notices");
    assert.deepEqual(notices.get("kind"), sorted(states.NOTICE_KINDS));
    const envelopes = await checkedSets(pool, "bridge_encrypted_intake");
    assert.deepEqual(envelopes.get("state"), sorted(states.INTAKE_ENVELOPE_STATES));
    const sends = await checkedSets(pool, "bridge_sends");
    assert.deepEqual(sends.get("purpose"), sorted(states.SEND_PURPOSES.filter((one) => one !== "notice")));
    const targets = await checkedSets(pool, "bridge_targets");
    assert.deepEqual(targets.get("trust"), sorted(states.TARGET_TRUST));
    const ghosts = await checkedSets(pool, "bridge_ghosts");
    assert.deepEqual(ghosts.get("device_stopped_reason"), sorted(states.DEVICE_STOP_REASONS));
  });

  it("accepts the reasons of each state of an intake envelope, and no others [ENC-3]", async (t) => {
    const { pool } = await testDatabase(t);
    const all = new Set(Object.values(states.INTAKE_ENVELOPE_REASONS).flat());
    let event = 0;
    const insert = (state: string, reason: string) =>
      pool.query(
        `INSERT INTO bridge_encrypted_intake
         (matrix_event_id, room_id, sender_mxid, origin_server_ts, transaction_id, ingress, intake_fingerprint,
          room_seq, deadline, admitted_at, state, terminal_reason, terminal_at)
       VALUES ($1, '!r', '@s:a', 1, 't', 'transaction', $2, $3, now(), now(), $4, $5, now())`,
        [`$e${++event}`, Buffer.alloc(32), state === "denied" ? null : event, state, reason],
      );
    for (const [state, reasons] of Object.entries(states.INTAKE_ENVELOPE_REASONS)) {
      for (const reason of all) {
        if ((reasons as readonly string[]).includes(reason)) await insert(state, reason);
        else await assert.rejects(insert(state, reason), /envelope_reason/);
      }
    }
    await assert.rejects(insert("awaiting_key", "derived"), /envelope_ends_once/);
  });

  it("refuses a terminal row that holds content or a lease [DEL-3] [AUD-2]", async (t) => {
    const { pool } = await testDatabase(t);
    const insert = (prompt: string, holder: string, task = "NULL", question = "NULL") =>
      pool.query(
        `INSERT INTO bridge_delegations
         (matrix_event_id, ghost_mxid, room_id, sender_mxid, origin_server_ts, agent_id, target_fingerprint,
          admitted_at, state, terminal_at, terminal_stage, terminal_reason, prompt,
          lease_holder, lease_until, a2a_task_id, question_key)
       VALUES ('$e', '@g:a', '!r', '@s:a', 1, 'docs', 'none', now(), 'failed', now(),
          'dispatch', 'agent_failed', ${prompt}, ${holder}, ${holder === "NULL" ? "NULL" : "now()"}, ${task}, ${question})`,
      );
    await assert.rejects(insert("'\\x01'", "NULL"), /terminal_is_final/);
    await assert.rejects(insert("NULL", "'one'"), /terminal_is_final/);
    await assert.rejects(insert("NULL", "NULL", "'named by the agent'"), /terminal_is_final/);
    await assert.rejects(insert("NULL", "NULL", "NULL", "'named by the agent'"), /terminal_is_final/);
    await insert("NULL", "NULL");
  });

  it("is migrated once when twenty processes start together", async (t) => {
    const database = await testDatabase(t, { migrated: false });
    const pools = Array.from({ length: 20 }, () =>
      createLedgerPool({ connectionString: database.url, max: 1 }),
    );
    try {
      const applied = await Promise.all(pools.map((pool) => migrate(pool)));
      assert.equal(applied.filter((count) => count > 0).length, 1);
      const { rows } = await database.pool.query("SELECT count(*)::int AS count FROM bridge_migrations");
      assert.equal(
        rows[0].count,
        applied.reduce((sum, count) => sum + count, 0),
      );
    } finally {
      await Promise.all(pools.map((pool) => pool.end()));
    }
  });

  it("ends a transaction whose process hangs [DEL-9]", async (t) => {
    const { pool } = await testDatabase(t);
    const { rows } = await pool.query("SHOW idle_in_transaction_session_timeout");
    assert.deepEqual(rows, [{ idle_in_transaction_session_timeout: "1s" }]);
  });

  it("refuses a database of a newer release without changing it", async (t) => {
    const { pool } = await testDatabase(t);
    await pool.query("INSERT INTO bridge_migrations (version, name) VALUES (9001, 'future')");
    await assert.rejects(migrate(pool), { code: "database_unavailable" });
  });
});
