// How often notices are sent, and by which worker.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { DelegationOutcome } from "../../../../src/bridge/ledger/delegation-transitions.ts";
import { writeNotices } from "../../../../src/bridge/ledger/notices.ts";
import { createOperations } from "../../../../src/bridge/ledger/operator-commands.ts";
import { STATUS_AFTER_MS } from "../../../../src/bridge/ledger/status-messages.ts";
import type { EventId } from "../../../../src/domain/identifiers.ts";
import {
  ACCEPTED,
  BUCKET,
  event,
  ghost,
  job,
  LEASE_MS,
  ledgerFixture,
  NOTICE_INTERVAL_MS,
  room,
  T0,
} from "../../../support/ledger.ts";

describe("notices", () => {
  it("writes one notice for twenty simultaneous refusals in one room [NOT-1]", async (t) => {
    const { delegations, admit, claimOne, rows } = await ledgerFixture(t, 20);
    await admit(Array.from({ length: 20 }, (_, n) => job(`q${n}`)));
    const following = [];
    for (let n = 0; n < 20; n++) {
      const one = await claimOne();
      await delegations.beginDispatch(one.lease, BUCKET, T0);
      await delegations.recordAccepted(one.lease, ACCEPTED, T0);
      following.push(one);
    }
    const outcome = {
      state: "failed",
      stage: "follow",
      reason: "sender_policy_rejected",
      notice: "policy_denied",
    } as const;
    await Promise.all(following.map((one) => delegations.finish(one.lease, outcome, T0 + 1)));
    assert.equal((await rows("SELECT 1 FROM bridge_notices")).length, 1);
  });

  it("writes no second notice within the interval, also across the edge of two intervals, and one after it [NOT-1]", async (t) => {
    const { admit, rows } = await ledgerFixture(t);
    const interval = NOTICE_INTERVAL_MS;
    // Just before an edge, just after it, and a whole interval after the first one.
    const edge = Math.ceil(T0 / interval) * interval + interval;
    const refusedAt = (name: string, receivedAt: number) =>
      admit([job(name)], { receivedAt, capacity: { roomQueue: 0, globalQueue: 0 } });
    await refusedAt("q1", edge - 1);
    await refusedAt("q2", edge + 1);
    const written = () => rows("SELECT source_event_id AS event FROM bridge_notices ORDER BY id");
    assert.deepEqual(await written(), [{ event: event("q1") }]);
    await refusedAt("q3", edge - 1 + interval);
    assert.deepEqual(await written(), [{ event: event("q1") }, { event: event("q3") }]);
  });

  it("writes every notice where the interval is zero [NOT-1]", async (t) => {
    const { pool, rows } = await ledgerFixture(t);
    const told = { kind: "policy_denied", room: room("r"), ghost: ghost(), threadRoot: undefined } as const;
    await writeNotices(pool, [{ ...told, source: event("q1") }], T0, 0);
    await writeNotices(pool, [{ ...told, source: event("q2") }], T0 + 1, 0);
    const written = await rows("SELECT source_event_id AS event FROM bridge_notices ORDER BY id");
    assert.deepEqual(written, [{ event: event("q1") }, { event: event("q2") }]);
  });

  it("tells of an agent whose card is not trusted, once, though an operator has just canceled a question to it [NOT-1] [OPS-1]", async (t) => {
    const { pool, delegations, admit, claimOne, rows } = await ledgerFixture(t);
    await admit(["q1", "q2", "q3"].map((name) => job(name)));
    const finishNext = async (outcome: DelegationOutcome, now: number) =>
      delegations.finish((await claimOne({ now })).lease, outcome, now);
    const { cancelDelegation } = createOperations(pool, NOTICE_INTERVAL_MS);
    const untrusted = {
      state: "denied",
      stage: "agent_card",
      reason: "agent_card_untrusted",
      notice: "delegation_stopped",
    } as const;
    const first = await claimOne();
    assert.equal(await cancelDelegation(first.lease.delegationId, T0), "requested");
    await delegations.finish(first.lease, { ...untrusted, state: "canceled", stage: "dispatch" }, T0);
    for (const now of [T0 + 1, T0 + 2]) await finishNext(untrusted, now);
    const told = await rows("SELECT source_event_id AS event, reason FROM bridge_notices ORDER BY id");
    assert.deepEqual(told, [
      { event: event("q1"), reason: "operator_canceled" },
      { event: event("q2"), reason: "agent_card_untrusted" },
    ]);
  });

  it("refuses an attempt to send an abandoned event, and a notice that another worker has claimed [DEL-4]", async (t) => {
    const { ledger, delegations, admit, claimOne } = await ledgerFixture(t);
    await admit([job("q1")]);
    const one = await claimOne();
    await delegations.beginDispatch(one.lease, BUCKET, T0);
    const part = { eventType: "m.room.message", content: {} };
    const sends = await delegations.recordReply(one, { parts: [part], agentVersion: undefined }, T0);
    assert.ok(sends !== "canceled" && sends[0] !== undefined);
    await delegations.finish(
      one.lease,
      { state: "failed", stage: "reply", reason: "reply_refused", notice: "delegation_failed" },
      T0,
    );
    await assert.rejects(delegations.recordAttempt(sends[0].sendId, T0), { code: "lease_lost" });
    const claimNotices = (now: number) => ledger.notices.claim({ limit: 1, now, leaseUntil: now + LEASE_MS });
    const [stale] = await claimNotices(T0);
    const [fresh] = await claimNotices(T0 + LEASE_MS);
    assert.ok(stale && fresh);
    await assert.rejects(ledger.notices.recordAttempt(stale, T0), { code: "lease_lost" });
    await ledger.notices.recordAttempt(fresh, T0);
    await ledger.notices.recordSent(fresh, "$said" as EventId);
  });
});

describe("status messages in the ledger", () => {
  it("are written by the worker alone that has claimed them last [DEL-6]", async (t) => {
    const { ledger, admit } = await ledgerFixture(t);
    await admit([job("q1")]);
    const claim = (now: number) => ledger.statuses.claim({ limit: 1, now, leaseUntil: now + LEASE_MS });
    const due = T0 + STATUS_AFTER_MS;
    const [[stale], [fresh]] = [await claim(due), await claim(due + LEASE_MS)];
    assert.ok(stale && fresh);
    // The first message, and an edit of it.
    for (const eventId of [undefined, "$shown" as EventId]) {
      await assert.rejects(ledger.statuses.recordAttempt({ ...stale, eventId }, due), { code: "lease_lost" });
    }
    await ledger.statuses.end(stale);
    await ledger.statuses.recordAttempt(fresh, due);
  });
});
