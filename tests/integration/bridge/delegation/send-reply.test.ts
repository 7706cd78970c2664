import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { TaskState } from "@a2a-js/sdk";
import { replyTransactionId } from "../../../../src/bridge/ledger/transaction-ids.ts";
import { namedTarget } from "../../../support/agents.ts";
import { delegationSuite } from "../../../support/delegation-suite.ts";
import { completes } from "../../../support/fault-agent-behaviour.ts";

describe("replies", () => {
  const setUpDelegation = delegationSuite();

  for (const [binding, version] of [
    ["JSONRPC", "1.0"],
    ["JSONRPC", "0.3"],
    ["HTTP+JSON", "1.0"],
  ] as const) {
    for (const streaming of [true, false]) {
      const how = streaming ? "a stream" : "polling";
      it(`an answer arrives by ${binding} ${version} and ${how} [DEL-7]`, async (t) => {
        const { agent, harness, admit, limiterTokens } = await setUpDelegation(t, {
          streaming,
          card: { binding, version },
        });
        agent.behaviour.plan = streaming ? completes("the ", "answer") : completes("the answer");
        const row = await admit();
        harness.worker().start();
        await harness.until(() => row.outcome !== undefined);
        assert.deepEqual(row.outcome, {
          state: "completed",
          stage: "reply",
          reason: "answered",
        });
        assert.equal(row.replyEventId, "$sent1");
        assert.equal(harness.sent[0]?.content["body"], "the answer");
        assert.deepEqual(agent.behaviour.prompts, ["prompt of q1"]);
        assert.equal(agent.tasksOf(row.a2aMessageId), 1);
        assert.deepEqual(new Set(agent.requests.map((each) => each.version)), new Set([version]));
        assert.equal(await limiterTokens(), 19, "one of 20 was spent");
        assert.equal(row.agentVersion, "1.0.0");
      });
    }
  }

  for (const streaming of [true, false]) {
    it(`a message is the whole answer when the agent makes no task (streaming ${streaming})`, async (t) => {
      const { agent, harness, admit } = await setUpDelegation(t, { streaming });
      agent.behaviour.plan = { kind: "message", text: "at once" };
      const row = await admit();
      harness.worker().start();
      await harness.until(() => row.outcome !== undefined);
      assert.equal(row.outcome?.reason, "answered");
      assert.equal(harness.sent[0]?.content["body"], "at once");
      assert.equal(harness.calls.includes("recordAccepted"), false);
    });
  }

  it("an answer that cannot be delivered is given up at the reply deadline, with its reason [OPS-1]", async (t) => {
    const { agent, harness, admit } = await setUpDelegation(t, {
      harness: { limits: { replyDeadline: 300_000 } },
    });
    agent.behaviour.plan = completes("the answer");
    harness.sendResults.push(
      ...Array.from({ length: 1_000 }, () => ({ kind: "retry", afterMs: 60_000 }) as const),
    );
    const row = await admit();
    harness.worker().start();
    await harness.until(() => row.state === "reply_pending");
    const answeredAt = harness.clock.now();
    await harness.until(() => row.outcome !== undefined, 5_000);
    assert.deepEqual(row.outcome, {
      state: "failed",
      stage: "reply",
      reason: "reply_deadline_exceeded",
      notice: "delegation_failed",
    });
    assert.ok(harness.clock.now() - answeredAt <= 400_000);
  });

  it("an answer that no content key opens is given up at the reply deadline too [DEL-3] [OPS-1]", async (t) => {
    const { fixture, harness, admit } = await setUpDelegation(t, {
      harness: { limits: { replyDeadline: 300_000 } },
    });
    harness.sendResults.push({ kind: "retry", afterMs: 60_000 });
    const row = await admit();
    harness.worker().start();
    await harness.until(() => row.state === "reply_pending" && row.dueAt > harness.clock.now() + 40_000);
    const answeredAt = harness.clock.now();
    await fixture.rows("UPDATE bridge_sends SET content = '\\x00'");
    await harness.until(() => row.outcome !== undefined || harness.clock.now() > answeredAt + 400_000, 5_000);
    assert.equal(row.outcome?.reason, "reply_deadline_exceeded");
    assert.deepEqual(harness.sent, []);
  });

  it("every part of an answer is persisted before the first is sent [DEL-3]", async (t) => {
    const { agent, fixture, harness, admit } = await setUpDelegation(t, { streaming: true });
    const long = "A paragraph of the answer.\n\n".repeat(4_000);
    agent.behaviour.plan = completes(long);
    const row = await admit();
    harness.worker().start();
    await harness.until(() => row.outcome !== undefined);
    assert.ok(harness.sent.length > 2);
    const [, ...thread] = harness.sent;
    assert.equal(thread.map((send) => send.content["body"]).join(""), long, "behind its beginning");
    const sends = await fixture.rows("SELECT event_id FROM bridge_sends ORDER BY ordinal");
    assert.deepEqual(
      sends.map((send) => send["event_id"]),
      harness.sent.map((_, index) => `$sent${index + 1}`),
    );
    const { calls } = harness;
    assert.ok(calls.indexOf("recordReply") < calls.indexOf("recordSent"));
    assert.equal(calls.filter((call) => call === "recordSent").length, harness.sent.length - 1);
  });

  it("a delegation is answered even when the completed task has no text", async (t) => {
    const { agent, harness, admit } = await setUpDelegation(t, { streaming: true });
    agent.behaviour.plan = { kind: "status", state: TaskState.TASK_STATE_COMPLETED };
    const row = await admit();
    harness.worker().start();
    await harness.until(() => row.outcome !== undefined);
    assert.equal(row.outcome?.reason, "answered");
    assert.equal(harness.sent.length, 1);
  });

  for (const streaming of [true, false]) {
    for (const [state, reason] of [
      [TaskState.TASK_STATE_FAILED, "agent_failed"],
      [TaskState.TASK_STATE_CANCELED, "agent_failed"],
      [TaskState.TASK_STATE_REJECTED, "agent_rejected"],
      [TaskState.TASK_STATE_AUTH_REQUIRED, "auth_required"],
    ] as const) {
      it(`${TaskState[state]} ends as ${reason}, without the agent's text in the room (streaming ${streaming})`, async (t) => {
        const { agent, harness, admit } = await setUpDelegation(t, { streaming });
        agent.behaviour.plan = { kind: "status", state, text: "the agent's own words" };
        const row = await admit();
        harness.worker().start();
        await harness.until(() => row.outcome !== undefined);
        assert.equal(row.outcome?.state, "failed");
        assert.equal(row.outcome?.reason, reason);
        assert.equal(row.outcome?.notice, "delegation_failed");
        assert.deepEqual(harness.sent, []);
        assert.doesNotMatch(harness.logged.join(""), /own words/);
      });
    }
  }

  it("a reply is retried under the same transaction ID, without another call of the agent, when the homeserver is away [DEL-4]", async (t) => {
    const { agent, harness, admit } = await setUpDelegation(t, { streaming: true });
    harness.sendResults.push({ kind: "retry", afterMs: 5_000 }, { kind: "retry", afterMs: 5_000 });
    const row = await admit();
    harness.worker().start();
    await harness.until(() => row.outcome !== undefined);
    assert.equal(row.outcome?.reason, "answered");
    assert.equal(row.attempts, 2);
    assert.equal(
      harness.sent[0]?.transactionId,
      replyTransactionId(row.event, namedTarget("docs").ghost, "reply", 0),
    );
    assert.equal(agent.requests.length, 1);
  });

  it("a delegation ends without a notice when its room cannot be reached", async (t) => {
    const { harness, admit } = await setUpDelegation(t, { streaming: true });
    harness.sendResults.push({ kind: "refused", reason: "room_unreachable" });
    const row = await admit();
    harness.worker().start();
    await harness.until(() => row.outcome !== undefined);
    assert.deepEqual(row.outcome, { state: "failed", stage: "reply", reason: "room_unreachable" });
  });
});
