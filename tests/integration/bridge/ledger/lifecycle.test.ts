import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { EventId } from "../../../../src/domain/identifiers.ts";
import { BUCKET, event, ghost, job, LEASE_MS, ledgerFixture, room, T0 } from "../../../support/ledger.ts";

const PART = { eventType: "m.room.message", content: { msgtype: "m.text", body: "the answer" } };
const SENT = "$sent" as EventId;

describe("lifecycle", () => {
  it("a delegation goes from admission to completed, and ends without content [DEL-1] [DEL-3]", async (t) => {
    const { ledger, admit, claim, rows } = await ledgerFixture(t);
    assert.equal((await admit([job("q1")])).admitted, 1);
    const [claimed] = await claim();
    assert.ok(claimed);
    assert.equal(claimed.prompt, "prompt of q1");
    assert.equal(claimed.resumedFrom, "queued");
    assert.equal(await ledger.delegations.beginDispatch(claimed.lease, BUCKET, T0), "begun");
    await ledger.delegations.recordAccepted(
      claimed.lease,
      { taskId: "task", contextId: "ctx", agentVersion: "1" },
      T0,
    );
    const recorded = await ledger.delegations.recordReply(
      claimed.lease,
      { parts: [PART], agentVersion: "1" },
      T0,
    );
    assert.ok(recorded !== "canceled");
    assert.deepEqual(await ledger.delegations.pendingReply(claimed.lease), recorded);
    const [pending] = recorded;
    assert.deepEqual(pending?.content, PART.content);
    await ledger.delegations.recordAttempt(pending?.sendId ?? "", T0 + 1);
    assert.equal((await ledger.delegations.pendingReply(claimed.lease))[0]?.firstAttemptedAt, T0 + 1);
    await ledger.delegations.finish(
      claimed.lease,
      {
        state: "completed",
        stage: "reply",
        reason: "answered",
        sent: { sendId: pending?.sendId ?? "", eventId: SENT },
      },
      T0 + 2,
    );
    const [row] = await rows("SELECT * FROM bridge_delegations");
    assert.equal(row?.["state"], "completed");
    assert.equal(row?.["prompt"], null);
    assert.equal(row?.["reply_event_id"], SENT);
    assert.deepEqual(await rows("SELECT state, content, event_id FROM bridge_sends"), [
      { state: "sent", content: null, event_id: SENT },
    ]);
    assert.deepEqual(await rows("SELECT open_count, head_at, next_seq, head_seq FROM bridge_rooms"), [
      { open_count: 0, head_at: null, next_seq: "2", head_seq: "2" },
    ]);
    assert.deepEqual(
      (await rows("SELECT record FROM bridge_audit")).map((audit) => audit["record"]),
      [
        {
          schema: "svc.delegation.v1",
          time: "2026-01-01T00:00:00.002Z",
          outcome: "completed",
          terminal_stage: "reply",
          terminal_reason: "answered",
          a2a_attempted: true,
          target: { agent: "docs", ghost: ghost(), fingerprint: "sha256:target", agent_version: "1" },
          room_id: room("r"),
          event_id: event("q1"),
          sender: "@alice:a.test",
          ingress: "transaction",
          admitted_at: "2026-01-01T00:00:00.000Z",
          accepted_at: "2026-01-01T00:00:00.000Z",
          reply_event_id: SENT,
        },
      ],
    );
  });

  it("a stale holder's every write is refused by the statement itself [DEL-9]", async (t) => {
    const { ledger, admit, claim, rows } = await ledgerFixture(t);
    await admit([job("q1")]);
    const [stale] = await claim({ holder: "one" });
    assert.ok(stale);
    assert.deepEqual(await claim({ holder: "two", now: T0 + LEASE_MS - 1 }), [], "the lease still holds");
    const [fresh] = await claim({ holder: "two", now: T0 + LEASE_MS });
    assert.ok(fresh);
    assert.equal(fresh.resumedFrom, "dispatching");
    const before = await rows("SELECT * FROM bridge_delegations");
    const lost = { code: "lease_lost" };
    await assert.rejects(ledger.delegations.beginDispatch(stale.lease, BUCKET, T0), lost);
    const accepted = { taskId: "x", contextId: undefined, agentVersion: undefined };
    await assert.rejects(ledger.delegations.recordAccepted(stale.lease, accepted, T0), lost);
    await assert.rejects(
      ledger.delegations.recordReply(stale.lease, { parts: [PART], agentVersion: undefined }, T0),
      lost,
    );
    await assert.rejects(ledger.delegations.pendingReply(stale.lease), lost);
    await assert.rejects(ledger.delegations.defer(stale.lease, T0), lost);
    const failed = {
      state: "failed",
      stage: "dispatch",
      reason: "agent_failed",
      notice: "delegation_failed",
    } as const;
    await assert.rejects(ledger.delegations.finish(stale.lease, failed, T0), lost);
    await ledger.delegations.release([stale.lease], T0);
    assert.equal((await ledger.delegations.renew([stale.lease], T0 + 2 * LEASE_MS)).held.size, 0);
    assert.deepEqual(await rows("SELECT * FROM bridge_delegations"), before);
    assert.deepEqual(await rows("SELECT * FROM bridge_limiter"), [], "no token was spent");
    assert.deepEqual(await rows("SELECT * FROM bridge_notices"), []);
    assert.deepEqual(await rows("SELECT * FROM bridge_audit"), []);
  });

  it("a room's delegations are dispatched in order; an accepted one lets the next go [DEL-1]", async (t) => {
    const { ledger, admit, claim } = await ledgerFixture(t);
    await admit([job("q1"), job("q2"), job("other", { room: room("s") })]);
    await admit([job("q3")]);
    const first = await claim();
    assert.deepEqual(first.map((one) => one.sourceEventId).sort(), [event("other"), event("q1")]);
    assert.deepEqual(await claim(), [], "q2 waits for q1");
    const q1 = first.find((one) => one.sourceEventId === event("q1"));
    assert.ok(q1);
    await ledger.delegations.beginDispatch(q1.lease, BUCKET, T0);
    await ledger.delegations.recordAccepted(
      q1.lease,
      { taskId: "t1", contextId: undefined, agentVersion: undefined },
      T0,
    );
    const [q2] = await claim();
    assert.equal(q2?.sourceEventId, event("q2"));
    assert.ok(q2);
    // Deferred, it keeps holding the room.
    await ledger.delegations.defer(q2.lease, T0 + 5_000);
    assert.deepEqual(await claim({ now: T0 + 4_999 }), []);
    const [again] = await claim({ now: T0 + 5_000 });
    assert.equal(again?.sourceEventId, event("q2"));
    assert.equal(again?.attempts, 1);
    assert.equal(again?.resumedFrom, "queued", "nothing was attempted yet");
    assert.ok(again);
    await ledger.delegations.finish(
      again.lease,
      { state: "denied", stage: "policy", reason: "sender_policy_rejected" },
      T0,
    );
    assert.equal((await claim({ now: T0 + 5_000 }))[0]?.sourceEventId, event("q3"));
  });

  it("several ghosts of one event share its place and are dispatched one after the other", async (t) => {
    const { ledger, admit, claim } = await ledgerFixture(t);
    await admit([job("q1", { ghost: ghost("a") }), job("q1", { ghost: ghost("b") }), job("q2")]);
    const order: string[] = [];
    for (let round = 0; round < 3; round++) {
      const [one, ...none] = await claim();
      assert.ok(one);
      assert.deepEqual(none, []);
      order.push(`${one.sourceEventId} ${one.ghost}`);
      await ledger.delegations.beginDispatch(one.lease, BUCKET, T0);
      await ledger.delegations.recordReply(one.lease, { parts: [PART], agentVersion: undefined }, T0);
    }
    assert.deepEqual(order, [
      `${event("q1")} ${ghost("a")}`,
      `${event("q1")} ${ghost("b")}`,
      `${event("q2")} ${ghost()}`,
    ]);
    assert.deepEqual(await claim(), []);
  });

  it("after a lost holder the claim says how far it had come, and spends no second token [DEL-7]", async (t) => {
    const { ledger, admit, claim, rows } = await ledgerFixture(t);
    await admit([job("q1")]);
    const [first] = await claim();
    assert.ok(first);
    await ledger.delegations.beginDispatch(first.lease, { ...BUCKET, burst: 1 }, T0);
    const [second] = await claim({ holder: "two", now: T0 + LEASE_MS });
    assert.ok(second);
    assert.equal(second.resumedFrom, "dispatching");
    assert.equal(second.a2aAttempted, true);
    assert.equal(second.a2aMessageId, first.a2aMessageId);
    assert.equal(await ledger.delegations.beginDispatch(second.lease, { ...BUCKET, burst: 1 }, T0), "begun");
    assert.deepEqual(await rows("SELECT tokens FROM bridge_limiter"), [{ tokens: 0 }]);
    await ledger.delegations.recordAccepted(
      second.lease,
      { taskId: "t", contextId: "c", agentVersion: undefined },
      T0,
    );
    const [third] = await claim({ holder: "three", now: T0 + 2 * LEASE_MS });
    assert.equal(third?.resumedFrom, "following");
    assert.equal(third?.a2aTaskId, "t");
    assert.equal(third?.prompt, undefined);
  });

  it("the limiter refuses when its bucket is empty and refills with time [DEL-2]", async (t) => {
    const { ledger, admit, claim, rows } = await ledgerFixture(t);
    const bucket = { key: "k", ratePerMinute: 60, burst: 2 };
    const results: string[] = [];
    await admit([1, 2, 3, 4].map((n) => job(`q${n}`, { room: room(`r${n}`) })));
    const claimed = await claim();
    for (const [index, one] of claimed.entries()) {
      results.push(await ledger.delegations.beginDispatch(one.lease, bucket, index === 3 ? T0 + 1_000 : T0));
    }
    assert.deepEqual(results, ["begun", "begun", "rate_limited", "begun"]);
    assert.deepEqual(
      await rows("SELECT count(*)::int AS attempted FROM bridge_delegations WHERE a2a_attempted"),
      [{ attempted: 3 }],
    );
  });

  it("a redaction ends a queued delegation at once and marks one under way [INT-6]", async (t) => {
    const { ledger, admit, claim, rows } = await ledgerFixture(t);
    await admit([job("q1"), job("q2"), job("q3")]);
    const [q1] = await claim();
    assert.ok(q1);
    const result = await admit([], {
      redacted: ["q1", "q2", "unknown"].map((name) => ({ room: room("r"), event: event(name) })),
    });
    assert.deepEqual(result.canceled, [q1.lease.delegationId]);
    assert.deepEqual(
      await rows(
        "SELECT state, prompt, terminal_reason FROM bridge_delegations WHERE matrix_event_id = '$q2'",
      ),
      [{ state: "canceled", prompt: null, terminal_reason: "source_redacted" }],
    );
    assert.equal(await ledger.delegations.beginDispatch(q1.lease, BUCKET, T0), "canceled");
    const renewed = await ledger.delegations.renew([q1.lease], T0 + LEASE_MS);
    assert.deepEqual([...renewed.canceled], [q1.lease.delegationId]);
    assert.equal(
      await ledger.delegations.recordReply(q1.lease, { parts: [PART], agentVersion: undefined }, T0),
      "canceled",
    );
    await ledger.delegations.finish(
      q1.lease,
      { state: "canceled", stage: "dispatch", reason: "source_redacted" },
      T0,
    );
    assert.equal((await claim())[0]?.sourceEventId, event("q3"), "the ended q2 is stepped over");
    assert.deepEqual(await rows("SELECT open_count FROM bridge_rooms"), [{ open_count: 1 }]);
  });

  it("that a call surely never arrived outlives the process; one of unknown outcome stays unsettled [DEL-7]", async (t) => {
    const { ledger, admit, claim, rows } = await ledgerFixture(t);
    await admit([job("q1")]);
    const [first] = await claim();
    assert.ok(first);
    await ledger.delegations.beginDispatch(first.lease, BUCKET, T0);
    await ledger.delegations.defer(first.lease, T0, { undelivered: true, reason: "agent_unavailable" });
    const [second] = await claim({ holder: "two" });
    assert.ok(second);
    const seen = (one: typeof second) => [
      one.resumedFrom,
      one.a2aAttempted,
      one.a2aUnsettled,
      one.retryReason,
    ];
    assert.deepEqual(seen(second), ["queued", true, false, "agent_unavailable"]);
    await ledger.delegations.beginDispatch(second.lease, BUCKET, T0);
    assert.deepEqual(await rows("SELECT tokens FROM bridge_limiter"), [{ tokens: BUCKET.burst - 1 }]);
    await ledger.delegations.defer(second.lease, T0, { undelivered: false, reason: "agent_unavailable" });
    const [third] = await claim({ holder: "three" });
    assert.ok(third);
    assert.deepEqual(seen(third), ["dispatching", true, true, "agent_unavailable"]);
  });
});
