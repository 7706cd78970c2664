// Retention on a real PostgreSQL: what is deleted, what stays, and what a forgotten event becomes.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { BridgeConfigFile } from "../../../../src/bridge/config.ts";
import { createRetention, createSteadiness } from "../../../../src/bridge/ledger/retention.ts";
import { intakeFixture, question } from "../../../support/intake.ts";
import {
  arrivals,
  BEGIN_PATIENT,
  BUCKET,
  envelope,
  event,
  job,
  ledgerFixture,
  PART,
  room,
  T0,
} from "../../../support/ledger.ts";
import { ManualClock } from "../../../support/manual-clock.ts";
import { ROOT } from "../../../support/temporary.ts";

const DAY = 24 * 60 * 60_000;
const TIMES = { ...BridgeConfigFile.shape.retention.parse(undefined), sessions: 90 * DAY, contexts: DAY };
/** Tables whose rows are as many as agents, ghosts, processes or open delegations, or that hold one row. */
const BOUNDED = [
  "bridge_capacity",
  "bridge_crypto_stores",
  "bridge_database_marker",
  "bridge_forgotten",
  "bridge_ghosts",
  "bridge_migrations",
  "bridge_ownership",
  "bridge_statuses",
  "bridge_targets",
];

type Fixture = Awaited<ReturnType<typeof ledgerFixture>>;
const counted = async ({ rows }: Pick<Fixture, "rows">, table: string, where = "true") =>
  Number((await rows(`SELECT count(*) AS n FROM ${table} WHERE ${where}`))[0]?.["n"]);

/** Asks, and has the answer recorded and sent at T0. */
async function answered({ delegations, admit, claimOne }: Fixture, name: string): Promise<void> {
  await admit([job(name)]);
  const claimed = await claimOne();
  const { lease } = claimed;
  await delegations.beginDispatch(lease, BUCKET, T0);
  const sends = await delegations.recordReply(claimed, { parts: [PART], agentVersion: undefined }, T0);
  assert.ok(sends !== "canceled");
  const sent = { sendId: sends[0]?.sendId ?? "", eventId: event(`${name}-answer`) };
  await delegations.finish(lease, { state: "completed", stage: "reply", reason: "answered", sent }, T0);
}

describe("retention", () => {
  it("names every table that grows [OPS-1]", async (t) => {
    const { rows } = await ledgerFixture(t);
    const tables = await rows("SELECT tablename AS name FROM pg_tables WHERE tablename LIKE 'bridge_%'");
    const source = readFileSync(`${ROOT}/src/bridge/ledger/retention.ts`, "utf8");
    const named = [...source.matchAll(/(?:DELETE FROM |table: ")(bridge_[a-z_]+)/g)].map(([, name]) => name);
    assert.deepEqual(tables.map(({ name }) => name).sort(), [...new Set([...named, ...BOUNDED])].sort());
  });

  it("deletes what ended before its time, with what belongs to it, and nothing that is open [OPS-1]", async (t) => {
    const fixture = await ledgerFixture(t);
    const { ledger, admit, pool } = fixture;
    await answered(fixture, "q1");
    await admit([], { ...arrivals(envelope("e1"), envelope("e2"), job("q2")) });
    await pool.query(`UPDATE bridge_encrypted_intake SET state = 'expired', due_at = NULL, holder = NULL,
      terminal_at = to_timestamp(${T0 / 1000}), terminal_reason = 'undecryptable' WHERE matrix_event_id = '$e1'`);
    const round = (at: number) => ledger.retention.round(TIMES, new ManualClock(at));
    await round(T0 + TIMES.delegations);
    assert.equal(await counted(fixture, "bridge_delegations"), 2, "not before its time");
    const { deleted, hasMore } = await round(T0 + TIMES.delegations + 1);
    assert.deepEqual([deleted.get("delegations"), deleted.get("envelopes"), hasMore], [1, 1, false]);
    const left = await fixture.rows("SELECT matrix_event_id AS event FROM bridge_delegations");
    assert.deepEqual(left, [{ event: event("q2") }]);
    assert.equal(await counted(fixture, "bridge_sends"), 0);
    assert.equal(await counted(fixture, "bridge_encrypted_intake"), 1);
  });

  it("forgets a context once nothing may continue it, and none of what is open [AUD-2]", async (t) => {
    const fixture = await ledgerFixture(t);
    const { ledger, pool, delegations, claimOne } = fixture;
    await answered(fixture, "ended");
    await fixture.admit([job("open")]);
    const { lease } = await claimOne();
    await delegations.beginDispatch(lease, BUCKET, T0);
    await delegations.recordAccepted(lease, { taskId: "t", contextId: "c", agentVersion: undefined }, T0);
    await pool.query("UPDATE bridge_delegations SET a2a_context_id = 'c'");
    const round = (at: number) => ledger.retention.round(TIMES, new ManualClock(at));
    const contexts = () =>
      fixture.rows(
        "SELECT matrix_event_id AS event, a2a_context_id AS context FROM bridge_delegations ORDER BY 1",
      );
    const open = { event: event("open"), context: "c" };
    await round(T0 + TIMES.contexts);
    assert.deepEqual(
      await contexts(),
      [{ event: event("ended"), context: "c" }, open],
      "not before its time",
    );
    assert.equal((await round(T0 + TIMES.contexts + 1)).deleted.get("contexts"), 1);
    assert.deepEqual(await contexts(), [{ event: event("ended"), context: null }, open]);
    assert.equal((await round(T0 + TIMES.contexts + 2)).deleted.get("contexts"), 0);
  });

  it("keeps a question that was canceled while it waited until its room is past it [OPS-1]", async (t) => {
    const fixture = await ledgerFixture(t);
    const { ledger, admit, claim } = fixture;
    await admit([job("canceled"), job("behind")]);
    await admit([], { redacted: [{ room: room("r"), event: event("canceled") }] });
    const now = T0 + TIMES.delegations + 1;
    await ledger.retention.round(TIMES, new ManualClock(now));
    const [next] = await claim({ now });
    assert.equal(next?.sourceEventId, event("behind"));
    const { deleted } = await ledger.retention.round(TIMES, new ManualClock(now));
    assert.equal(deleted.get("delegations"), 1);
  });

  it("deletes no audit record that was not exported [OPS-1]", async (t) => {
    const fixture = await ledgerFixture(t);
    const { ledger } = fixture;
    for (const name of ["q1", "q2"]) await answered(fixture, name);
    await ledger.audit.export(1, () => Promise.resolve(), T0 + DAY);
    const late = T0 + DAY + TIMES.audit;
    assert.equal((await ledger.retention.round(TIMES, new ManualClock(late))).deleted.get("audit"), 0);
    const { deleted } = await ledger.retention.round(TIMES, new ManualClock(late + 1));
    assert.equal(deleted.get("audit"), 1);
    assert.equal(await counted(fixture, "bridge_audit", "exported_at IS NULL"), 1);
  });

  it("deletes notices that were sent or given up, none that waits, and none that a room is told once for ever [OPS-1]", async (t) => {
    const fixture = await ledgerFixture(t);
    const at = `to_timestamp(${T0 / 1_000})`;
    await fixture.pool.query(`
      INSERT INTO bridge_notices
        (marker, kind, room_id, ghost_mxid, transaction_id, state, created_at, due_at, event_id) VALUES
        ('sent', 'policy_denied', '!r', '@agent_a:a.test', 't1', 'sent', ${at}, NULL, '$1'),
        ('dropped', 'policy_denied', '!r', '@agent_a:a.test', 't2', 'dropped', ${at}, NULL, NULL),
        ('waits', 'policy_denied', '!r', '@agent_a:a.test', 't3', 'pending', ${at}, ${at}, NULL),
        ('once', 'encrypted_room_refused', '!r', '@agent_a:a.test', 't4', 'sent', ${at}, NULL, '$4')`);
    const round = (now: number) => fixture.ledger.retention.round(TIMES, new ManualClock(now));
    await round(T0 + TIMES.notices);
    assert.equal(await counted(fixture, "bridge_notices"), 4, "not before its time");
    await round(T0 + TIMES.notices + 1);
    const left = await fixture.rows("SELECT marker FROM bridge_notices ORDER BY marker");
    assert.deepEqual(left, [{ marker: "once" }, { marker: "waits" }]);
  });

  it("keeps a bucket for a week, a message index longer than any room key, members as long as what was asked [OPS-1] [ENC-9]", async (t) => {
    const { ledger, pool } = await ledgerFixture(t);
    const at = `to_timestamp(${T0 / 1_000})`;
    await pool.query(`
      INSERT INTO bridge_device_inbox (ghost_mxid, changes, received_at) VALUES ('@agent_a:a.test', '{}', ${at});
      INSERT INTO bridge_limiter (bucket, tokens, refilled_at) VALUES ('agent:a', 0, ${at});
      INSERT INTO bridge_megolm_indices (index_digest, matrix_event_id, used_at) VALUES (sha256('i'), '$q', ${at});
      INSERT INTO bridge_room_members (room_id, user_id) VALUES ('!left', '@u:a.test');
      INSERT INTO bridge_ghost_rooms (room_id, ghost_mxid, membership, inactive_since)
        VALUES ('!left', '@agent_a:a.test', 'leave', ${at})`);
    const times = {
      ...TIMES,
      messageIndices: 20 * DAY,
      sessions: 30 * DAY,
      rooms: DAY,
      delegations: 60 * DAY,
    };
    for (const [kind, keep] of [
      ["device_inbox", TIMES.deviceInbox],
      ["limiter", 7 * DAY],
      ["message_indices", 44 * DAY],
      ["members", 60 * DAY],
    ] as const) {
      const deleted = async (now: number) =>
        (await ledger.retention.round(times, new ManualClock(now))).deleted.get(kind);
      assert.deepEqual([await deleted(T0 + keep), await deleted(T0 + keep + 1)], [0, 1], kind);
    }
  });

  it("deletes in batches, and says whether there is more [OPS-1]", async (t) => {
    const fixture = await ledgerFixture(t);
    await fixture.pool.query(
      `INSERT INTO bridge_malformed_events SELECT sha256(n::text::bytea), 't', 'r', NULL, NULL, to_timestamp(n % 4)
       FROM generate_series(1, 10) n`,
    );
    const retention = createRetention(fixture.pool, 4);
    const clock = new ManualClock(T0);
    for (const expected of [
      [4, true],
      [4, true],
      [2, false],
      [0, false],
    ]) {
      const { deleted, hasMore } = await retention.round(TIMES, clock);
      assert.deepEqual([deleted.get("malformed_events"), hasMore], expected);
    }
  });

  it("counts what was handled from the last event: a catchup after a long downtime knows what came before [INT-3]", async (t) => {
    const { ledger, admit } = await ledgerFixture(t);
    await admit([job("q1")]);
    await admit([job("q2")], { receivedAt: T0 + 1_000 });
    const both = [event("q1"), event("q2")];
    const round = (handledEvents: number) =>
      ledger.retention.round({ ...TIMES, handledEvents }, new ManualClock(T0 + 365 * DAY));
    await round(1_000);
    assert.deepEqual(await ledger.intake.handled(both), new Set(both));
    await round(999);
    assert.deepEqual(await ledger.intake.handled(both), new Set([event("q2")]));
    for (const name of ["q1", "q2"]) assert.equal((await admit([job(name)])).replayed, true);
  });

  it("a question that was forgotten is refused when it comes again, and never asked twice [INT-3] [NOT-1]", async (t) => {
    const clock = new ManualClock(T0);
    const fixture = await intakeFixture(t, { clock });
    const old = { ...question("old"), origin_server_ts: T0 };
    const list = {
      ...question("list"),
      origin_server_ts: T0,
      content: { msgtype: "m.text", body: "!agents" },
    };
    await fixture.events("t1", old, list);
    await fixture.pool.query("UPDATE bridge_notices SET state = 'dropped', due_at = NULL");
    const [{ lease } = assert.fail()] = await fixture.claim({ now: T0 });
    const failed = { state: "failed", stage: "dispatch", reason: "agent_failed" } as const;
    await fixture.ledger.delegations.finish(lease, failed, T0);
    const later = T0 + 200 * DAY;
    clock.advance(200 * DAY);
    await fixture.events("t2", { ...question("new"), origin_server_ts: later });
    await fixture.ledger.retention.round(TIMES, clock);
    const kept =
      "SELECT matrix_event_id AS event, state, terminal_reason AS reason FROM bridge_delegations ORDER BY id";
    assert.deepEqual(
      (await fixture.rows(kept)).map((row) => row["event"]),
      ["$new"],
    );
    await fixture.events("t3", old, list);
    assert.deepEqual((await fixture.rows(kept)).at(-1), {
      event: "$old",
      state: "denied",
      reason: "event_too_old",
    });
    const notices = await fixture.rows("SELECT kind, reason FROM bridge_notices");
    assert.deepEqual(notices, [{ kind: "policy_denied", reason: "event_too_old" }]);
  });

  it("takes no event of the last 22 hours for forgotten, whatever a clock that was ahead has made it record [OPS-1]", async (t) => {
    const clock = new ManualClock(T0);
    const fixture = await intakeFixture(t, { clock });
    await fixture.pool.query("UPDATE bridge_forgotten SET before = $1", [new Date(T0 + 40 * DAY)]);
    const sent = (name: string, at: number) => ({ ...question(name), origin_server_ts: at });
    await fixture.events("t1", sent("recent", T0 - 22 * 60 * 60_000), sent("old", T0 - 25 * 60 * 60_000));
    assert.deepEqual(
      await fixture.rows(
        "SELECT matrix_event_id AS event, terminal_reason AS reason FROM bridge_delegations ORDER BY event DESC",
      ),
      [
        { event: "$recent", reason: null },
        { event: "$old", reason: "event_too_old" },
      ],
    );
  });

  it("deletes nothing until the clock has run for five minutes without a jump of more than a day [OPS-1]", () => {
    const clock = new ManualClock(T0);
    const isSteady = createSteadiness(clock);
    const MINUTE = 60_000;
    const after = (ms: number) => {
      clock.advance(ms);
      return isSteady();
    };
    assert.deepEqual([isSteady(), after(MINUTE), after(9 * MINUTE), after(DAY)], [false, false, true, true]);
    assert.deepEqual([after(60 * DAY), after(MINUTE), after(-60 * DAY)], [false, false, false]);
    assert.deepEqual([after(10 * MINUTE), after(-MINUTE)], [true, true]);
  });

  it("forgets a room that ghosts have left, when nothing of it is left, and not while it is admitted to [OPS-1]", async (t) => {
    const fixture = await ledgerFixture(t);
    const { ledger, pool } = fixture;
    const at = (ms: number) => `to_timestamp(${(T0 + ms) / 1_000})`;
    await pool.query(`
      INSERT INTO bridge_rooms (room_id) VALUES ('!left'), ('!half'), ('!asked'), ('!busy');
      INSERT INTO bridge_room_members SELECT r.room_id, '@u' || n FROM bridge_rooms r, generate_series(1, 3) n;
      INSERT INTO bridge_ghost_rooms (room_id, ghost_mxid, membership, inactive_since) VALUES
        ('!left', '@agent_a:a.test', 'leave', ${at(0)}), ('!left', '@agent_b:a.test', 'leave', ${at(DAY)}),
        ('!half', '@agent_a:a.test', 'leave', ${at(0)}), ('!half', '@agent_b:a.test', 'join', NULL),
        ('!asked', '@agent_a:a.test', 'leave', ${at(0)}), ('!busy', '@agent_a:a.test', 'leave', ${at(0)});
      INSERT INTO bridge_notices (marker, kind, room_id, ghost_mxid, transaction_id, state, created_at)
        VALUES ('m', 'encrypted_room_refused', '!left', '@agent_a:a.test', 't', 'dropped', ${at(0)})`);
    await fixture.admit([job("q1", { room: room("asked") })]);
    const round = () => ledger.retention.round(TIMES, new ManualClock(T0 + TIMES.rooms + 1));
    const names = async (table: string) =>
      (await fixture.rows(`SELECT DISTINCT room_id FROM ${table} ORDER BY 1`)).map((row) => row["room_id"]);
    const admission = await pool.connect();
    await admission.query(`${BEGIN_PATIENT}; SELECT pg_advisory_xact_lock(hashtextextended('!busy', 0))`);
    await round();
    await admission.query("COMMIT");
    admission.release();
    assert.deepEqual(await names("bridge_ghost_rooms"), ["!asked", "!busy", "!half", "!left"]);
    assert.deepEqual(await names("bridge_room_members"), ["!half"]);
    await ledger.retention.round(TIMES, new ManualClock(T0 + DAY + TIMES.rooms + 1));
    assert.deepEqual(await names("bridge_ghost_rooms"), ["!asked", "!half"]);
    assert.deepEqual(await names("bridge_room_members"), ["!half"]);
    assert.deepEqual(await names("bridge_rooms"), ["!asked", "!half"]);
    assert.equal(await counted(fixture, "bridge_notices"), 0);
  });

  it("takes no lock of a deserted room that is not deleted yet [OPS-1]", async (t) => {
    const { pool } = await ledgerFixture(t);
    await pool.query(`INSERT INTO bridge_ghost_rooms (room_id, ghost_mxid, membership, inactive_since)
      SELECT '!' || n, '@agent_docs:a.test', 'leave', to_timestamp(n) FROM generate_series(1, 100) n`);
    await pool.query(`INSERT INTO bridge_room_members SELECT '!' || room, '@' || n || ':a.test'
      FROM generate_series(1, 100) room, generate_series(1, 10) n`);
    const client = await pool.connect();
    await client.query(BEGIN_PATIENT);
    const query = (given: { readonly name: string }) =>
      (given.name === "retention_memberships" ? client : pool).query(given as never);
    const watched: typeof pool = Object.assign(Object.create(pool), { query });
    const { deleted } = await createRetention(watched).round(TIMES, new ManualClock(T0));
    const locks = await client.query(
      "SELECT count(*)::int AS n FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
    );
    await client.query("ROLLBACK");
    client.release();
    assert.deepEqual([deleted.get("memberships"), locks.rows[0]?.n], [50, 50]);
  });
});
