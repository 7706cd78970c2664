// Questions from the agent that nobody answers, or that end while they are answered.

import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { DelegationWorker } from "../../../../src/bridge/delegation/worker.ts";
import { createOperations } from "../../../../src/bridge/ledger/operator-commands.ts";
import { DrawbridgeError } from "../../../../src/domain/errors.ts";
import { DOCS } from "../../../support/conversation.ts";
import { delegationSuite } from "../../../support/delegation-suite.ts";
import { arrivals, envelope } from "../../../support/ledger.ts";
import { agentQuestions } from "./asking-agent.ts";

describe("a question from the agent", () => {
  const setUp = agentQuestions(delegationSuite());

  it("a question that nobody answers in time is canceled at the agent, and the asker is told [DEL-6]", async (t) => {
    const { agent, harness, row, say, lastSent } = await setUp(t);
    harness.worker().start();
    await harness.until(() => row.state === "awaiting_input" && harness.sent.length === 1);
    const askedAt = harness.clock.now();
    await harness.until(() => row.outcome !== undefined, 10_000);
    assert.deepEqual(row.outcome, {
      state: "failed",
      stage: "follow",
      reason: "input_wait_elapsed",
      notice: "delegation_failed",
    });
    assert.ok(harness.clock.now() - askedAt >= 900_000);
    assert.equal(agent.behaviour.canceled.length, 1);
    assert.equal((await say("late", "large", { replyTo: await lastSent("question") })).answers, 0);
  });

  for (const [method, when] of [
    ["endWait", "after"],
    ["finish", "before"],
  ] as const) {
    it(`that nobody answered ends once when the process is killed ${when} ${method} [DEL-6] [DEL-9]`, async (t) => {
      const { agent, harness, row, fixture } = await setUp(t);
      const first = harness.mortal("first");
      const isKilled = first.killAt(method, when);
      first.worker.start();
      await harness.until(isKilled, 10_000);
      harness.worker("second").start();
      await harness.until(() => row.outcome !== undefined, 10_000);
      assert.deepEqual([row.outcome?.reason, harness.sent.length], ["input_wait_elapsed", 1]);
      assert.equal(new Set(agent.behaviour.canceled).size, 1);
      assert.equal((await fixture.rows("SELECT 1 FROM bridge_notices")).length, 1);
    });
  }

  it("is canceled at the agent when its task asks for a sign-in instead, and the asker is told [DEL-6]", async (t) => {
    const { agent, harness, row, fixture, isPosted } = await setUp(t);
    harness.worker().start();
    await harness.until(isPosted);
    const [named] = await fixture.rows("SELECT a2a_task_id AS id FROM bridge_delegations");
    const task = { id: named?.["id"], contextId: "c", status: { state: "TASK_STATE_AUTH_REQUIRED" } };
    const body = JSON.stringify({ jsonrpc: "2.0", id: 1, result: task });
    agent.fault("get", { kind: "garbage", type: "application/json", body });
    await harness.until(() => row.outcome !== undefined);
    assert.equal(row.outcome?.reason, "auth_required");
    assert.deepEqual(agent.behaviour.canceled, [task.id]);
  });

  it("is answered by what is recorded at the instant at which the wait ends [DEL-6]", async (t) => {
    const { agent, harness, row, say, lastSent, bodies } = await setUp(t);
    const { worker, pause, kill } = harness.mortal();
    t.after(kill);
    const goOn = pause("endWait", "finish");
    worker.start();
    await harness.until(() => row.state === "awaiting_input" && harness.sent.length === 1);
    const question = await lastSent("question");
    await harness.clock.advance(900_000);
    await harness.until(() => row.dueAt > harness.clock.now(), 0);
    assert.equal((await say("answer", "large", { replyTo: question })).answers, 1);
    goOn();
    await harness.until(() => harness.sent.length === 2);
    assert.match(bodies()[1] ?? "", /^Which colour\?/);
    assert.deepEqual(agent.behaviour.canceled, []);
    await worker.drain();
  });

  it("goes on after the bridge was down for longer than the wait: the answer that was sent meanwhile counts [DEL-6] [INT-3]", async (t) => {
    const { agent, harness, row, say, lastSent, bodies, isPosted, polls } = await setUp(t);
    const before = harness.worker();
    before.start();
    await harness.until(isPosted);
    const question = await lastSent("question");
    await before.drain();
    await harness.clock.advance(3_600_000);
    const after = harness.worker("two");
    const polled = polls();
    after.start();
    await harness.until(() => polls() > polled);
    const outcome: unknown = row.outcome;
    assert.equal(outcome, undefined, "the homeserver has yet to bring what was said meanwhile");
    const { answers, admitted } = await say("answer", "large", { replyTo: question });
    assert.deepEqual([answers, admitted], [1, 0]);
    after.wake();
    await harness.until(() => harness.sent.length === 2);
    assert.match(bodies()[1] ?? "", /^Which colour\?/);
    assert.deepEqual(agent.behaviour.canceled, []);
  });

  it("ends after a downtime too, once its wait has passed again without an answer [DEL-6]", async (t) => {
    const { harness, row, isPosted } = await setUp(t);
    const before = harness.worker();
    before.start();
    await harness.until(isPosted);
    await before.drain();
    await harness.clock.advance(3_600_000);
    const backAt = harness.clock.now();
    harness.worker("two").start();
    await harness.until(() => row.outcome !== undefined, 10_000);
    assert.equal(row.outcome?.reason, "input_wait_elapsed");
    assert.ok(harness.clock.now() - backAt >= 900_000);
  });

  it("has its wait begun anew after the process could not claim for a while, its database being away [DEL-6]", async (t) => {
    const { harness, row, say, lastSent, isPosted, polls } = await setUp(t);
    let isAway = false;
    const { ledger } = harness.deps;
    const claim: typeof ledger.claim = async (request) => (isAway ? [] : await ledger.claim(request));
    const worker = new DelegationWorker({
      ...harness.deps,
      ledger: { ...ledger, claim },
      mayClaim: () => !isAway,
    });
    t.after(() => worker.drain());
    worker.start();
    await harness.until(isPosted);
    isAway = true;
    const backAt = harness.clock.now() + 1_200_000;
    await harness.until(() => harness.clock.now() >= backAt, 20_000);
    const polled = polls();
    isAway = false;
    await harness.until(() => row.outcome !== undefined || polls() > polled);
    assert.equal((await say("answer", "large", { replyTo: await lastSent("question") })).answers, 1);
  });

  it("has no longer wait because one claim failed [DEL-6]", async (t) => {
    const { harness, row, isPosted } = await setUp(t);
    harness.worker().start();
    await harness.until(isPosted);
    const askedAt = harness.clock.now();
    await harness.until(() => harness.clock.now() >= askedAt + 600_000, 10_000);
    let fails = 1;
    harness.onCall = (method) => {
      if (method === "claim" && fails-- > 0) throw new DrawbridgeError("database_unavailable", "away");
    };
    await harness.until(() => row.outcome !== undefined, 10_000);
    assert.equal(row.outcome?.reason, "input_wait_elapsed");
    assert.ok(harness.clock.now() - askedAt < 1_200_000);
  });

  it("whose wait is ending, or that is to be canceled, is answered by one notice, and by no new task [DEL-6] [NOT-1]", async (t) => {
    for (const way of ["elapsed", "canceled"]) {
      const { harness, row, say, lastSent, fixture, isPosted } = await setUp(t);
      const { worker, pause, kill } = harness.mortal();
      t.after(kill);
      pause("finish");
      worker.start();
      await harness.until(isPosted);
      const replyTo = await lastSent("question");
      if (way === "canceled") await say("c", "!cancel", { replyTo });
      else await harness.until(() => harness.calls.includes("endWait"), 10_000);
      const late = { replyTo, mentions: [DOCS] };
      const { answers, admitted } = await say("late", "large", late);
      assert.deepEqual([answers, admitted, row.outcome], [0, 0, undefined], way);
      assert.equal((await say("later", "large", late)).admitted, 0);
      if (way === "elapsed") {
        assert.equal((await say("inthread", "large", { thread: "$q1", mentions: [DOCS] })).admitted, 0);
      }
      assert.deepEqual(await fixture.rows("SELECT kind, reason FROM bridge_notices"), [
        { kind: "answer_refused", reason: "already_ended" },
      ]);
    }
  });

  it("a question that no content key opens is given up at the reply deadline [DEL-3]", async (t) => {
    const { agent, harness, row, fixture, polls } = await setUp(t, {
      harness: { limits: { replyDeadline: 300_000, inputWait: 200_000 } },
    });
    harness.sendResults.push({ kind: "retry", afterMs: 10_000 });
    harness.worker().start();
    await harness.until(() => polls() === 1);
    const askedAt = harness.clock.now();
    await fixture.rows("UPDATE bridge_sends SET content = '\\x00'");
    await harness.until(() => row.outcome !== undefined || harness.clock.now() > askedAt + 400_000, 5_000);
    assert.equal(row.outcome?.reason, "reply_deadline_exceeded");
    assert.equal(agent.behaviour.canceled.length, 1);
  });

  it("is not ended while an encrypted event of the asker waits for its key: it may be the answer, unless it came after the wait [DEL-6] [ENC-5]", async (t) => {
    const { harness, row, fixture, admitEnvelope, isPosted } = await setUp(t);
    harness.worker().start();
    await harness.until(isPosted);
    const { event } = await admitEnvelope("unread");
    await harness.until(() => harness.calls.filter((call) => call === "endWait").length > 1, 10_000);
    const stillWaits: unknown = row.outcome;
    assert.equal(stillWaits, undefined);
    await fixture.admit([], { ...arrivals(envelope("later")), receivedAt: harness.clock.now() });
    const operations = createOperations(fixture.pool, 600_000);
    await operations.cancelEnvelope(event, harness.clock.now());
    await harness.until(() => row.outcome !== undefined);
    assert.equal(row.outcome?.reason, "input_wait_elapsed");
  });

  it("a question that has ended is answered by one notice, and by no new task [DEL-6] [NOT-1]", async (t) => {
    const { harness, row, say, lastSent, fixture } = await setUp(t);
    harness.worker().start();
    await harness.until(() => row.outcome !== undefined, 10_000);
    assert.equal(row.outcome?.reason, "input_wait_elapsed");
    const endedAt = harness.clock.now();
    const replyTo = await lastSent("question");
    const late = { replyTo, mentions: [DOCS], sentAt: endedAt + 60_000 };
    assert.equal((await say("late", "large", late)).admitted, 0);
    assert.equal((await say("later", "large", late)).admitted, 0);
    const inThread = { thread: "$q1", mentions: [DOCS] };
    assert.equal((await say("sent-before", "large", { ...inThread, sentAt: endedAt - 1_000 })).admitted, 0);
    const refused = "SELECT kind, reason, source_event_id FROM bridge_notices WHERE kind = 'answer_refused'";
    assert.deepEqual(await fixture.rows(refused), [
      { kind: "answer_refused", reason: "already_ended", source_event_id: "$q1" },
    ]);
    assert.equal((await say("anew", "what?", { ...inThread, sentAt: endedAt + 60_000 })).admitted, 1);
    assert.equal((await say("bob", "I ask", { ...late, sender: "@bob:a.test" })).admitted, 1);
  });
});
