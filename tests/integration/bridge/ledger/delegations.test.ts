// A delegation from its admission to its end.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { EventId } from "../../../../src/domain/identifiers.ts";
import {
  ACCEPTED,
  BUCKET,
  event,
  ghost,
  job,
  LEASE_MS,
  ledgerFixture,
  PART,
  room,
  T0,
} from "../../../support/ledger.ts";

const SENT = "$sent" as EventId;

describe("delegations", () => {
  it("complete, and then hold no content [DEL-1] [DEL-3]", async (t) => {
    const { delegations, admit, claimOne, rows } = await ledgerFixture(t);
    assert.equal((await admit([job("q1")])).admitted, 1);
    const claimed = await claimOne();
    assert.equal(claimed.prompt?.text, "prompt of q1");
    assert.equal(claimed.resumedFrom, "queued");
    assert.equal(await delegations.beginDispatch(claimed.lease, BUCKET, T0), "begun");
    await delegations.recordAccepted(
      claimed.lease,
      { taskId: "task", contextId: "ctx", agentVersion: "1" },
      T0,
    );
    const recorded = await delegations.recordReply(claimed, { parts: [PART], agentVersion: "1" }, T0);
    assert.ok(recorded !== "canceled");
    assert.deepEqual(await delegations.pendingSends(claimed.lease, "reply"), recorded);
    const [pending] = recorded;
    assert.deepEqual(pending?.content, PART.content);
    await delegations.recordAttempt(pending?.sendId ?? "", T0 + 1);
    assert.equal((await delegations.pendingSends(claimed.lease, "reply"))[0]?.firstAttemptedAt, T0 + 1);
    await delegations.finish(
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

  it("refuse every write of a stale holder in the statement itself [DEL-9]", async (t) => {
    const { delegations, admit, claim, claimOne, rows } = await ledgerFixture(t);
    await admit([job("q1")]);
    const stale = await claimOne({ holder: "one" });
    assert.deepEqual(await claim({ holder: "two", now: T0 + LEASE_MS - 1 }), [], "the lease still holds");
    const fresh = await claimOne({ holder: "two", now: T0 + LEASE_MS });
    assert.equal(fresh.resumedFrom, "dispatching");
    const before = await rows("SELECT * FROM bridge_delegations");
    const lost = { code: "lease_lost" };
    await assert.rejects(delegations.beginDispatch(stale.lease, BUCKET, T0), lost);
    const accepted = ACCEPTED;
    await assert.rejects(delegations.recordAccepted(stale.lease, accepted, T0), lost);
    await assert.rejects(
      delegations.recordReply(stale, { parts: [PART], agentVersion: undefined }, T0),
      lost,
    );
    await assert.rejects(delegations.pendingSends(stale.lease, "reply"), lost);
    await assert.rejects(delegations.defer(stale.lease, T0), lost);
    const failed = {
      state: "failed",
      stage: "dispatch",
      reason: "agent_failed",
      notice: "delegation_failed",
    } as const;
    await assert.rejects(delegations.finish(stale.lease, failed, T0), lost);
    await delegations.release([stale.lease], T0);
    assert.equal((await delegations.renew([stale.lease], T0 + 2 * LEASE_MS)).held.size, 0);
    assert.deepEqual(await rows("SELECT * FROM bridge_delegations"), before);
    assert.deepEqual(await rows("SELECT * FROM bridge_limiter"), [], "no token was spent");
    assert.deepEqual(await rows("SELECT * FROM bridge_notices"), []);
    assert.deepEqual(await rows("SELECT * FROM bridge_audit"), []);
  });

  it("are dispatched in the room's order, the next one once the agent has accepted [DEL-1]", async (t) => {
    const { delegations, admit, claim } = await ledgerFixture(t);
    await admit([job("q1"), job("q2"), job("other", { room: room("s") })]);
    await admit([job("q3")]);
    const first = await claim();
    assert.deepEqual(first.map((one) => one.sourceEventId).sort(), [event("other"), event("q1")]);
    assert.deepEqual(await claim(), [], "q2 waits for q1");
    const q1 = first.find((one) => one.sourceEventId === event("q1"));
    assert.ok(q1);
    await delegations.beginDispatch(q1.lease, BUCKET, T0);
    await delegations.recordAccepted(q1.lease, ACCEPTED, T0);
    const [q2] = await claim();
    assert.equal(q2?.sourceEventId, event("q2"));
    assert.ok(q2);
    // Deferred, it keeps holding the room.
    await delegations.defer(q2.lease, T0 + 5_000);
    assert.deepEqual(await claim({ now: T0 + 4_999 }), []);
    const [again] = await claim({ now: T0 + 5_000 });
    assert.equal(again?.sourceEventId, event("q2"));
    assert.equal(again?.attempts, 1);
    assert.equal(again?.resumedFrom, "queued", "nothing was attempted yet");
    assert.ok(again);
    await delegations.finish(
      again.lease,
      { state: "denied", stage: "policy", reason: "sender_policy_rejected" },
      T0,
    );
    assert.equal((await claim({ now: T0 + 5_000 }))[0]?.sourceEventId, event("q3"));
  });

  it("of one event share its place and are dispatched one after the other", async (t) => {
    const { delegations, admit, claim } = await ledgerFixture(t);
    await admit([job("q1", { ghost: ghost("a") }), job("q1", { ghost: ghost("b") }), job("q2")]);
    const order: string[] = [];
    for (let round = 0; round < 3; round++) {
      const [one, ...none] = await claim();
      assert.ok(one);
      assert.deepEqual(none, []);
      order.push(`${one.sourceEventId} ${one.ghost}`);
      await delegations.beginDispatch(one.lease, BUCKET, T0);
      await delegations.recordReply(one, { parts: [PART], agentVersion: undefined }, T0);
    }
    assert.deepEqual(order, [
      `${event("q1")} ${ghost("a")}`,
      `${event("q1")} ${ghost("b")}`,
      `${event("q2")} ${ghost()}`,
    ]);
    assert.deepEqual(await claim(), []);
  });

  it("tell the next holder how far the last one came, and spend no second token [DEL-7]", async (t) => {
    const { delegations, admit, claim, claimOne, rows } = await ledgerFixture(t);
    await admit([job("q1")]);
    const first = await claimOne();
    await delegations.beginDispatch(first.lease, { ...BUCKET, burst: 1 }, T0);
    const second = await claimOne({ holder: "two", now: T0 + LEASE_MS });
    assert.equal(second.resumedFrom, "dispatching");
    assert.equal(second.a2aAttempted, true);
    assert.equal(second.a2aMessageId, first.a2aMessageId);
    assert.equal(await delegations.beginDispatch(second.lease, { ...BUCKET, burst: 1 }, T0), "begun");
    assert.deepEqual(await rows("SELECT tokens FROM bridge_limiter"), [{ tokens: 0 }]);
    await delegations.recordAccepted(
      second.lease,
      { taskId: "t", contextId: "c", agentVersion: undefined },
      T0,
    );
    const [third] = await claim({ holder: "three", now: T0 + 2 * LEASE_MS });
    assert.equal(third?.resumedFrom, "following");
    assert.equal(third?.a2aTaskId, "t");
    assert.equal(third?.prompt, undefined);
  });

  it("get tokens again after a clock that was far ahead was set back [DEL-2]", async (t) => {
    const { admit, claim, delegations } = await ledgerFixture(t);
    await admit(["one", "two", "three"].map((name) => job(name, { room: room(name) })));
    const bucket = { ...BUCKET, burst: 1 };
    const [one, two, three] = await claim();
    assert.ok(one && two && three);
    assert.equal(await delegations.beginDispatch(one.lease, bucket, T0 + 365 * 86_400_000), "begun");
    assert.equal(await delegations.beginDispatch(two.lease, bucket, T0), "rate_limited");
    assert.equal(await delegations.beginDispatch(three.lease, bucket, T0 + 60_000), "begun");
  });

  it("are refused while the limiter's bucket is empty, which refills with time [DEL-2]", async (t) => {
    const { delegations, admit, claim, rows } = await ledgerFixture(t);
    const bucket = { key: "k", ratePerMinute: 60, burst: 2 };
    const results: string[] = [];
    await admit([1, 2, 3, 4].map((n) => job(`q${n}`, { room: room(`r${n}`) })));
    const claimed = await claim();
    for (const [index, one] of claimed.entries()) {
      results.push(await delegations.beginDispatch(one.lease, bucket, index === 3 ? T0 + 1_000 : T0));
    }
    assert.deepEqual(results, ["begun", "begun", "rate_limited", "begun"]);
    assert.deepEqual(
      await rows("SELECT count(*)::int AS attempted FROM bridge_delegations WHERE a2a_attempted"),
      [{ attempted: 3 }],
    );
  });

  it("begun at the same time spend from their agents' buckets together, and those that lost their lease nothing [DEL-2]", async (t) => {
    const { delegations, admit, claim, rows } = await ledgerFixture(t);
    await admit([1, 2, 3, 4, 5, 6].map((n) => job(`q${n}`, { room: room(`r${n}`) })));
    const claimed = await claim();
    const bucketOf = (index: number) => ({ key: index === 4 ? "b" : "a", ratePerMinute: 60, burst: 2 });
    const begin = claimed.map(({ lease }, index) =>
      delegations.beginDispatch(
        index === 1 ? { ...lease, fence: `${Number(lease.fence) + 1}` } : lease,
        bucketOf(index),
        T0,
      ),
    );
    const outcomes = await Promise.allSettled(begin);
    assert.deepEqual(
      outcomes.map((one) => (one.status === "fulfilled" ? one.value : one.reason.code)),
      ["begun", "lease_lost", "begun", "rate_limited", "begun", "rate_limited"],
    );
    assert.deepEqual(await rows("SELECT bucket, tokens FROM bridge_limiter ORDER BY 1"), [
      { bucket: "a", tokens: 0 },
      { bucket: "b", tokens: 1 },
    ]);
  });

  it("spend a token of each bucket or of none, and name the first empty one [DEL-2]", async (t) => {
    const { delegations, admit, claim, rows } = await ledgerFixture(t);
    await admit([1, 2, 3, 4, 5].map((n) => job(`q${n}`, { room: room(`r${n}`) })));
    const claimed = await claim();
    const sender = (key: string) => ({
      ...{ key, ratePerMinute: 60, burst: 2 },
      refusal: "sender_rate_limited" as const,
    });
    const server = { key: "server", ratePerMinute: 60, burst: 3, refusal: "server_rate_limited" as const };
    const begun = await Promise.all(
      claimed.map(({ lease }, index) =>
        delegations.beginDispatch(lease, { ...BUCKET, key: "agent", burst: 9 }, T0, [
          sender(index < 3 ? "alice" : "bob"),
          server,
        ]),
      ),
    );
    assert.deepEqual(begun, ["begun", "begun", "sender_rate_limited", "begun", "server_rate_limited"]);
    assert.deepEqual(await rows("SELECT bucket, tokens FROM bridge_limiter ORDER BY 1"), [
      { bucket: "agent", tokens: 6 },
      { bucket: "alice", tokens: 0 },
      { bucket: "bob", tokens: 1 },
      { bucket: "server", tokens: 0 },
    ]);
  });

  it("remember across processes whether a call was undelivered or its outcome is unknown [DEL-7]", async (t) => {
    const { delegations, admit, claimOne, rows } = await ledgerFixture(t);
    await admit([job("q1")]);
    const first = await claimOne();
    await delegations.beginDispatch(first.lease, BUCKET, T0);
    await delegations.defer(first.lease, T0, { undelivered: true, reason: "agent_unavailable" });
    const second = await claimOne({ holder: "two" });
    const stateOf = (one: typeof second) => [
      one.resumedFrom,
      one.a2aAttempted,
      one.a2aUnsettled,
      one.retryReason,
    ];
    assert.deepEqual(stateOf(second), ["queued", true, false, "agent_unavailable"]);
    await delegations.beginDispatch(second.lease, BUCKET, T0);
    assert.deepEqual(await rows("SELECT tokens FROM bridge_limiter"), [{ tokens: BUCKET.burst - 1 }]);
    await delegations.defer(second.lease, T0, { undelivered: false, reason: "agent_unavailable" });
    const third = await claimOne({ holder: "three" });
    assert.deepEqual(stateOf(third), ["dispatching", true, true, "agent_unavailable"]);
  });
});
