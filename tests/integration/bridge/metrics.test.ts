// The gauges of what waits, read from a real database at a scrape.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createMetrics, waitingGauges } from "../../../src/bridge/metrics.ts";
import { arrivals, envelope, ghost, job, ledgerFixture, room, T0 } from "../../support/ledger.ts";
import { ManualClock } from "../../support/manual-clock.ts";

const FAILED = { state: "failed", stage: "dispatch", reason: "agent_failed" } as const;

describe("gauges of what waits", () => {
  it("say what is open, how old it is and what is quarantined, with one query in five seconds [OPS-2]", async (t) => {
    const { ledger, delegations, admit, claimOne, pool } = await ledgerFixture(t);
    await admit([job("done", { room: room("s") })]);
    await delegations.finish((await claimOne()).lease, FAILED, T0);
    await admit([], arrivals(job("q1"), envelope("e1"), job("q2")));
    await pool.query(
      `INSERT INTO bridge_targets (ghost_mxid, agent_id, trust, target_fingerprint, checked_at)
       VALUES ($1, 'docs', 'quarantined', 'f', now()), ('@agent_removed:a.test', 'removed', 'quarantined', 'f', now())`,
      [ghost()],
    );
    const metrics = createMetrics();
    const clock = new ManualClock(T0 + 90_000);
    let queries = 0;
    let isAway = false;
    const read = async () => {
      queries += 1;
      if (isAway) throw new Error("the database is away");
      return ledger.waiting([ghost()]);
    };
    const record = waitingGauges(metrics, read, clock);
    const gauges = async () => {
      const names =
        /^drawbridge_((?:delegations_open|question|intake_env|encrypted_events_[wo]|audit_export|agents_q)\S*) (.+)$/gm;
      const text = await metrics.registry.metrics();
      return Object.fromEntries([...text.matchAll(names)].map(([, name, value]) => [name, Number(value)]));
    };
    await Promise.all([record(), record()]);
    const expected = {
      'delegations_open{state="queued"}': 2,
      'delegations_open{state="dispatching"}': 0,
      'delegations_open{state="following"}': 0,
      'delegations_open{state="awaiting_input"}': 0,
      'delegations_open{state="reply_pending"}': 0,
      question_oldest_wait_seconds: 90,
      'intake_envelopes{reason="key_missing"}': 1,
      'intake_envelopes{reason="key_late"}': 0,
      encrypted_events_oldest_wait_seconds: 90,
      audit_export_lag_seconds: 90,
      agents_quarantined: 1,
    };
    assert.deepEqual(await gauges(), expected);
    clock.advance(4_999);
    await record();
    assert.equal(queries, 1);
    isAway = true;
    clock.advance(1);
    await record();
    assert.equal(queries, 2);
    assert.deepEqual(new Set(Object.values(await gauges())), new Set([Number.NaN]), "unknown is not zero");
  });

  it("a scrape waits no longer than a moment for a database that does not answer [OPS-2]", async () => {
    const clock = new ManualClock(T0);
    let isOver = false;
    const record = waitingGauges(createMetrics(), () => new Promise(() => {}), clock);
    void record().then(() => {
      isOver = true;
    });
    await clock.advance(5_000);
    assert.equal(isOver, true);
  });
});
