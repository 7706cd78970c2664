// Admission: what is committed, recognised and refused when the homeserver repeats or a connection breaks.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { KnownFacts, NewDelegation } from "../../../../src/bridge/ledger/admission-types.ts";
import type { ClaimedDelegation } from "../../../../src/bridge/ledger/leases.ts";
import type { AgentId, EventId, UserId } from "../../../../src/domain/identifiers.ts";
import {
  arrivals,
  asking,
  BEGIN_PATIENT,
  BUCKET,
  claimEnvelopes,
  envelope,
  event,
  ghost,
  interrupted,
  job,
  LEASE_MS,
  ledgerFixture,
  ledgerOn,
  ROOM_GATE_MS,
  room,
  T0,
  untilWaiting,
} from "../../../support/ledger.ts";

const FAILED = {
  state: "failed",
  stage: "dispatch",
  reason: "agent_failed",
  notice: "delegation_failed",
} as const;

const HOUR = 60 * 60_000;

describe("admission", () => {
  it("is made again when its connection is cut in the middle, and asks once [INT-5]", async (t) => {
    const { pool, admit, rows } = await ledgerFixture(t);
    const holder = await pool.connect();
    await holder.query(`${BEGIN_PATIENT}; LOCK TABLE bridge_handled_events`);
    const admitting = admit([job("q1")]);
    for (let cut = 0; cut === 0; ) {
      const { rowCount } = await pool.query(
        `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
       WHERE datname = current_database() AND wait_event_type = 'Lock'`,
      );
      cut = rowCount ?? 0;
    }
    await holder.query("COMMIT");
    holder.release();
    assert.equal((await admitting).admitted, 1);
    assert.equal((await rows("SELECT 1 FROM bridge_delegations")).length, 1);
  });

  it("an event that asked nobody is not derived again with later facts [INT-3]", async (t) => {
    const { admit, rows } = await ledgerFixture(t);
    const quiet = {
      events: [job("thread")],
      derive: () => ({ delegations: [], answers: [], cancels: [], envelopes: [], notices: [] }),
    };
    assert.equal((await admit([], quiet)).replayed, false);
    const again = await admit([job("thread"), job("q1")]);
    assert.deepEqual([again.replayed, again.admitted], [false, 1]);
    assert.deepEqual(await rows("SELECT matrix_event_id FROM bridge_delegations"), [
      { matrix_event_id: event("q1") },
    ]);
  });

  it("an event that is forgotten while it is admitted again is derived as a forgotten one [INT-3]", async (t) => {
    const { pool, admit } = await ledgerFixture(t);
    const derivesNothing = () => ({ delegations: [], answers: [], cancels: [], envelopes: [], notices: [] });
    await admit([job("q1")], { derive: derivesNothing });
    const holder = await pool.connect();
    await holder.query(`${BEGIN_PATIENT}; DELETE FROM bridge_handled_events`);
    await holder.query("UPDATE bridge_forgotten SET before = $1", [new Date(T0 - 48 * HOUR)]);
    const bounds: number[] = [];
    const derive = ({ forgottenBefore }: KnownFacts) => {
      bounds.push(forgottenBefore);
      return derivesNothing();
    };
    const admitting = admit([job("q1")], { derive });
    await untilWaiting(pool, 1, admitting);
    await holder.query("COMMIT");
    holder.release();
    assert.equal((await admitting).replayed, false);
    assert.equal(bounds.at(-1), T0 - 47 * HOUR);
  });

  it("each question of a transaction keeps its own text, also behind one that is refused [INT-5]", async (t) => {
    const { admit, claim } = await ledgerFixture(t);
    const texts = ["a", "refused", "", "\u{1f600} ".repeat(3_000), "z"];
    const jobs = texts.map((prompt, n) =>
      job(`q${n}`, {
        room: room(`r${n}`),
        prompt,
        refused: prompt === "refused" ? "sender_policy_rejected" : undefined,
      }),
    );
    const { admitted, refused } = await admit(jobs);
    assert.deepEqual([admitted, refused.length], [4, 1]);
    const claimed = await claim();
    const kept = new Map(claimed.map((one) => [one.sourceEventId, one.prompt?.text]));
    const wanted = new Map(texts.map((text, n) => [event(`q${n}`), text]));
    wanted.delete(event("q1"));
    assert.deepEqual(kept, wanted);
  });

  it("what is open is never more than its bound, though others are admitted while it is counted [INT-4]", async (t) => {
    const { pool, admit, rows } = await ledgerFixture(t);
    // The bound is so far above what is open that the next admission counts.
    await pool.query("UPDATE bridge_capacity SET admitted = admitted + 20");
    const other = await pool.connect();
    await other.query(`${BEGIN_PATIENT}; UPDATE bridge_capacity SET admitted = admitted + 3`);
    const admitting = admit([job("q1")], { capacity: { roomQueue: 9, globalQueue: 100, serverQueue: 10 } });
    await untilWaiting(pool, 1, admitting);
    await other.query("COMMIT");
    other.release();
    await admitting;
    const [bound] = await rows(
      "SELECT counted_open + admitted - counted_at_admitted AS most FROM bridge_capacity",
    );
    assert.equal(Number(bound?.["most"]), 4, "three of the other transaction, and this one");
  });

  it("an agent that never accepts, asked in many rooms, fills its own share and not that of others [INT-4]", async (t) => {
    const { admit, rows } = await ledgerFixture(t);
    const capacity = { roomQueue: 2, globalQueue: 100, agentQueue: 20, serverQueue: 60 };
    const asked = (agent: string, n: number) =>
      job(`${agent}${n}`, { agent: agent as AgentId, ghost: ghost(agent), room: room(`${agent} ${n % 16}`) });
    for (let n = 0; n < 32; n++) await admit([asked("stuck", n)], { capacity });
    for (let n = 0; n < 20; n++) await admit([asked("docs", n)], { capacity });
    assert.deepEqual(
      await rows(
        `SELECT agent_id AS agent, COALESCE(terminal_reason, state) AS state, count(*)::int FROM bridge_delegations
         GROUP BY 1, 2 ORDER BY 1, 2`,
      ),
      [
        { agent: "docs", state: "queued", count: 20 },
        { agent: "stuck", state: "agent_capacity_exceeded", count: 12 },
        { agent: "stuck", state: "queued", count: 20 },
      ],
    );
  });

  it("agents that never accept and fill their askers' server leave the others their reserve [INT-4]", async (t) => {
    const { admit, rows } = await ledgerFixture(t);
    const capacity = { roomQueue: 9, globalQueue: 40, agentQueue: 30, serverQueue: 20, agentReserve: 2 };
    const asked = (agent: string, n: number, sender = "@alice:a.test") => {
      const place = { ghost: ghost(agent), room: room(`${agent} ${n}`) };
      return job(`${agent}${n}`, { agent: agent as AgentId, sender: sender as UserId, ...place });
    };
    for (let n = 0; n < 21; n++) await admit([asked("stuck", n)], { capacity });
    for (let n = 0; n < 3; n++) await admit([asked("docs", n)], { capacity });
    for (let n = 3; n < 6; n++) await admit([asked("docs", n, "@bob:b.test")], { capacity });
    assert.deepEqual(
      await rows(
        `SELECT agent_id AS agent, split_part(sender_mxid, ':', 2) AS server, COALESCE(terminal_reason, state) AS state,
           count(*)::int FROM bridge_delegations GROUP BY 1, 2, 3 ORDER BY 1, 2, 3`,
      ),
      [
        { agent: "docs", server: "a.test", state: "queued", count: 2 },
        { agent: "docs", server: "a.test", state: "server_capacity_exceeded", count: 1 },
        { agent: "docs", server: "b.test", state: "queued", count: 3 },
        { agent: "stuck", server: "a.test", state: "queued", count: 20 },
        { agent: "stuck", server: "a.test", state: "server_capacity_exceeded", count: 1 },
      ],
    );
  });

  it("claims a single question whose turn it is at once, for a slot that its process has for it [DEL-1]", async (t) => {
    const { delegations, admit, claim, claimOne } = await ledgerFixture(t);
    const ended: (EventId | undefined)[] = [];
    const slotFor = (asked: NewDelegation, isEncrypted: boolean) => ({
      holder: isEncrypted ? "none" : asked.agent,
      leaseUntil: T0 + LEASE_MS,
      end: (claimed: ClaimedDelegation | undefined) => ended.push(claimed?.sourceEventId),
    });
    const { claimed } = await admit([job("q1")], { slotFor });
    assert.ok(claimed);
    assert.deepEqual(
      [claimed.lease.holder, claimed.resumedFrom, claimed.triedAt, claimed.prompt?.text],
      ["docs", "queued", T0, "prompt of q1"],
    );
    // It stands behind another one, comes with another one, or is known.
    for (const jobs of [
      [job("q2")],
      [job("q3", { room: room("a") }), job("q4", { room: room("b") })],
      [job("q1")],
    ])
      assert.equal((await admit(jobs, { slotFor })).claimed, undefined);
    assert.deepEqual(ended, [event("q1"), undefined]);
    assert.deepEqual((await claim()).map((one) => one.sourceEventId).sort(), [event("q3"), event("q4")]);
    assert.equal(await delegations.beginDispatch(claimed.lease, BUCKET, T0), "begun");
    await delegations.finish(claimed.lease, FAILED, T0);
    assert.equal((await claimOne()).sourceEventId, event("q2"));
    // Its process ended: the next holder has a higher fence.
    const { claimed: lost } = await admit([job("q5", { room: room("empty") })], { slotFor });
    assert.equal((await claim()).length, 0);
    const again = await claim({ now: T0 + LEASE_MS });
    const next = again.find((one) => one.sourceEventId === event("q5"));
    assert.equal(Number(next?.lease.fence), 1 + Number(lost?.lease.fence));
  });

  it("is acknowledged once it is durable, with a claim by what records the call, or a write of its own [INT-3] [DEL-9]", async (t) => {
    const { pool } = await ledgerFixture(t);
    const statements: string[] = [];
    const { admit, delegations } = ledgerOn(
      interrupted(pool, (statement) => statements.push(statement)),
      ROOM_GATE_MS,
    );
    const slotFor = (begin: (claimed: ClaimedDelegation) => unknown) => () => ({
      ...{ holder: "one", leaseUntil: T0 + LEASE_MS },
      end: (claimed: ClaimedDelegation | undefined) => claimed && begin(claimed),
    });
    const written = async (name: string, begin: (claimed: ClaimedDelegation) => unknown) => {
      statements.length = 0;
      await admit([job(name, { room: room(name) })], { slotFor: slotFor(begin) });
      const committed = statements.lastIndexOf("COMMIT");
      return [statements[committed - 1], ...statements.slice(committed + 1)];
    };
    let isBegun = false;
    const begin = async ({ lease }: ClaimedDelegation) => {
      await delegations.beginDispatch(lease, BUCKET, T0);
      isBegun = true;
    };
    assert.deepEqual(await written("q1", begin), ["admit_and_claim", "begin_dispatches"]);
    assert.ok(isBegun);
    assert.deepEqual(await written("q2", () => {}), ["admit_and_claim", "make_durable"]);
    const lose = async ({ lease }: ClaimedDelegation) => {
      const begun = delegations.beginDispatch({ ...lease, holder: "two" }, BUCKET, T0);
      await assert.rejects(begun, { code: "lease_lost" });
    };
    assert.deepEqual(await written("q3", lose), ["admit_and_claim", "begin_dispatches", "make_durable"]);
    // It may have been committed by a process that ended before it was on disk.
    assert.deepEqual(await written("q2", () => {}), ["make_durable"]);
  });

  it("is acknowledged to another process once it is durable, though retention has deleted the row of its first event [INT-3]", async (t) => {
    const { pool, admit, rows } = await ledgerFixture(t);
    await admit([job("old", { room: room("old") })]);
    await pool.query("DELETE FROM bridge_handled_events");
    const ending = interrupted(pool, (statement) => {
      if (statement === "make_durable") throw new Error("the process has ended");
    });
    const slotFor = () => ({ holder: "one", leaseUntil: T0 + LEASE_MS, end: () => undefined });
    const both = ["old", "new"].map((name) => job(name, { room: room(name) }));
    await assert.rejects(ledgerOn(ending, ROOM_GATE_MS).admit(both, { slotFor }), /ended/);
    const [committed] = await rows("SELECT pg_current_wal_insert_lsn() AS at");
    assert.equal((await admit(both)).replayed, true);
    const flushed = "SELECT pg_current_wal_flush_lsn() >= $1 AS is";
    assert.deepEqual(await rows(flushed, [committed?.["at"]]), [{ is: true }]);
  });

  it("is not acknowledged where the server ended before the event was on disk [INT-3]", async (t) => {
    const { pool, admit } = await ledgerFixture(t, 1);
    let isLost: Promise<unknown> | undefined;
    const end = () => {
      isLost = pool.query("TRUNCATE bridge_delegations, bridge_handled_events, bridge_rooms CASCADE");
    };
    const slotFor = () => ({ holder: "one", leaseUntil: T0 + LEASE_MS, end });
    await assert.rejects(admit([job("q1")], { slotFor }), { code: "internal" });
    await isLost;
    assert.equal((await admit([job("q1")])).admitted, 1);
  });

  it("gives the slot for a question up when nothing was committed [DEL-1]", async (t) => {
    const { pool, admit } = await ledgerFixture(t);
    await pool.query("ALTER TABLE bridge_delegations ADD CHECK (state <> 'dispatching')");
    const ended: unknown[] = [];
    const slotFor = () => ({ holder: "one", leaseUntil: T0, end: (claimed: unknown) => ended.push(claimed) });
    await assert.rejects(admit([job("q1")], { slotFor }), { code: "23514" });
    assert.deepEqual(ended, [undefined]);
  });

  it("admissions of one room wait for one another, and those of other rooms do not [DEL-9]", async (t) => {
    const { pool, admit } = await ledgerFixture(t);
    const holder = await pool.connect();
    await holder.query(`${BEGIN_PATIENT}; SELECT pg_advisory_xact_lock(hashtextextended('!r', 0))`);
    let isAdmitted = false;
    const waiting = admit([job("q1")]).finally(() => {
      isAdmitted = true;
    });
    assert.equal((await admit([job("q2", { room: room("other") })])).admitted, 1);
    assert.equal(isAdmitted, false);
    await holder.query("COMMIT");
    holder.release();
    assert.equal((await waiting).admitted, 1);
  });
});

describe("events that a catchup found late", () => {
  const PLACES = `
    SELECT event FROM (
      SELECT matrix_event_id AS event, room_seq FROM bridge_delegations WHERE terminal_at IS NULL
      UNION ALL SELECT matrix_event_id, room_seq FROM bridge_encrypted_intake WHERE state = 'awaiting_key') placed
    ORDER BY room_seq`;
  const orderOf = (...names: readonly string[]) => new Map([[room("r"), names.map(event)]]);

  it("are placed in the order of their room among what waits there [INT-8]", async (t) => {
    const { ledger, admit, claimOne, rows } = await ledgerFixture(t);
    await admit([], arrivals(job("q2"), envelope("e4"), job("q5")));
    await admit([job("q6")]);
    const found = arrivals(job("q1"), job("q3"));
    const order = orderOf("q1", "q2", "q3", "e4", "q5");
    assert.equal((await admit([], { ...found, ingress: "recovered", order })).admitted, 2);
    const placed = async () => (await rows(PLACES)).map(({ event: name }) => name);
    assert.deepEqual(await placed(), ["q1", "q2", "q3", "e4", "q5", "q6"].map(event));
    const [waiting] = await claimEnvelopes(ledger);
    assert.ok(waiting);
    await ledger.envelopes.derive(waiting, asking(waiting, [job("e4")]), T0);
    const called: unknown[] = [];
    for (let n = 0; n < 6; n++) {
      const head = await claimOne();
      called.push(head.sourceEventId);
      await ledger.delegations.finish(head.lease, FAILED, T0);
    }
    assert.deepEqual(called, ["q1", "q2", "q3", "e4", "q5", "q6"].map(event));
    assert.deepEqual(
      await rows("SELECT head_seq = next_seq AS done, isempty(voids) AS closed FROM bridge_rooms"),
      [{ done: true, closed: true }],
    );
  });

  it("come after the head that was begun [INT-8]", async (t) => {
    const { admit, claimOne, ledger, rows } = await ledgerFixture(t);
    await admit([], arrivals(job("q2"), job("q3")));
    const head = await claimOne();
    await admit([], { ...arrivals(job("q1")), ingress: "recovered", order: orderOf("q1", "q2", "q3") });
    assert.deepEqual(
      (await rows(PLACES)).map(({ event: name }) => name),
      ["q2", "q1", "q3"].map(event),
    );
    await ledger.delegations.finish(head.lease, FAILED, T0);
    assert.equal((await claimOne()).sourceEventId, event("q1"));
  });

  it("put no room in order without its lock, also one of an event that cannot be read [INT-8]", async (t) => {
    const { pool, admit } = await ledgerFixture(t);
    const holder = await pool.connect();
    await holder.query(BEGIN_PATIENT);
    await holder.query("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", [room("other")]);
    const order = new Map([[room("other"), [event("q2")]]]);
    const admitted = admit([job("q1")], { ingress: "recovered", order });
    try {
      await untilWaiting(pool, 1, admitted);
    } finally {
      await holder.query("COMMIT");
      holder.release();
    }
    await admitted;
  });

  it("move all delegations of a later question, also one that was canceled meanwhile [INT-8]", async (t) => {
    const { admit, claim, claimOne, ledger, rows } = await ledgerFixture(t);
    await admit([job("q0")]);
    const called = [await claimOne()];
    const asked = ["a", "b", "c"].map((name) => job("q2", { ghost: ghost(name) }));
    await admit([], arrivals(...asked, job("q3")));
    const waiting = await rows(
      "SELECT id::text, ghost_mxid AS ghost FROM bridge_delegations WHERE state = 'queued'",
    );
    const canceled = waiting.filter((one) => one["ghost"] === ghost("a") || one["ghost"] === ghost("c"));
    const cancels = canceled.map(({ id }) => ({
      delegation: String(id),
      event: event("q4"),
      indexDigest: undefined,
    }));
    const command = arrivals(job("q4"));
    await admit([], {
      ...command,
      derive: (known) => ({ ...command.derive(known), delegations: [], cancels }),
    });
    await admit([], { ...arrivals(job("q1")), ingress: "recovered", order: orderOf("q1", "q2", "q3") });
    for (const one of called) {
      await ledger.delegations.finish(one.lease, FAILED, T0);
      called.push(...(await claim()));
    }
    assert.deepEqual(
      called.map(({ sourceEventId }) => sourceEventId),
      ["q0", "q1", "q2", "q3"].map(event),
    );
  });

  it("leave a question in its place that the room's turn came to meanwhile, for its further agents [INT-8]", async (t) => {
    const { pool, admit, claimOne, ledger } = await ledgerFixture(t);
    await admit([job("q2", { ghost: ghost("a") }), job("q2", { ghost: ghost("b") })]);
    const { lease } = await claimOne();
    const holder = await pool.connect();
    await holder.query(`${BEGIN_PATIENT}; SELECT FROM bridge_rooms FOR UPDATE`);
    const finished = ledger.delegations.finish(lease, FAILED, T0);
    await untilWaiting(pool, 1, finished);
    const found = admit([], { ...arrivals(job("q1")), ingress: "recovered", order: orderOf("q1", "q2") });
    await untilWaiting(pool, 2, Promise.race([finished, found]));
    await holder.query("COMMIT");
    holder.release();
    await Promise.all([finished, found]);
    const called: unknown[] = [];
    for (let n = 0; n < 2; n++) {
      const head = await claimOne();
      called.push(head.sourceEventId);
      await ledger.delegations.finish(head.lease, FAILED, T0);
    }
    assert.deepEqual(called, ["q2", "q1"].map(event));
  });
});
