import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { FAULTS_MAX } from "../../../../src/bridge/delegation/follow-task.ts";
import { delegationSuite } from "../../../support/delegation-suite.ts";
import { completes } from "../../../support/fault-agent-behaviour.ts";
import { BUCKET, T0 } from "../../../support/ledger.ts";
import { ROOT } from "../../../support/temporary.ts";

const SLOW = { kind: "slow", text: "at last" } as const;
const NOT_A2A = { kind: "garbage", body: '{"hello":1}', type: "application/json" } as const;

describe("following a task", () => {
  const setUpDelegation = delegationSuite();

  for (const streaming of [true, false]) {
    const how = streaming ? "a stream" : "polling";

    it(`following by ${how} stops with agent_card_untrusted when trust is lost [DEL-5]`, async (t) => {
      const { agent, harness, admit } = await setUpDelegation(t, { streaming });
      agent.behaviour.plan = SLOW;
      const row = await admit();
      harness.worker().start();
      await harness.until(() => row.state === "following");
      harness.trust = { trust: "quarantined", reason: "agent_card_untrusted" };
      const lostAt = harness.clock.now();
      await harness.until(() => row.outcome !== undefined);
      assert.deepEqual(row.outcome, {
        state: "failed",
        stage: "follow",
        reason: "agent_card_untrusted",
        notice: "delegation_stopped",
      });
      assert.ok(harness.clock.now() - lostAt <= 6_000);
      const before = agent.requests.length;
      agent.behaviour.releaseAll();
      await harness.clock.advance(60_000);
      assert.equal(agent.requests.length, before);
      assert.deepEqual(harness.sent, []);
    });

    it(`following by ${how} stops with agent_card_untrusted when the agent is removed [DEL-5]`, async (t) => {
      const { agent, harness, admit } = await setUpDelegation(t, { streaming });
      agent.behaviour.plan = SLOW;
      const row = await admit();
      harness.worker().start();
      await harness.until(() => row.state === "following");
      harness.target = undefined;
      await harness.until(() => row.outcome !== undefined);
      assert.equal(row.outcome?.reason, "agent_card_untrusted");
      assert.equal(row.outcome?.notice, "delegation_stopped");
    });

    it(`following by ${how} goes on when a process takes the task whose agents.yaml lacks the agent for a moment [DEL-9]`, async (t) => {
      const { agent, harness, admit } = await setUpDelegation(t, { streaming });
      agent.behaviour.plan = SLOW;
      const row = await admit();
      const first = harness.worker("one");
      first.start();
      await harness.until(() => row.state === "following");
      let isDrained = false;
      void first.drain().then(() => {
        isDrained = true;
      });
      await harness.until(() => isDrained);
      const { target } = harness;
      harness.target = undefined;
      harness.worker("two").start();
      await harness.until(() => row.attempts > 0 || row.outcome !== undefined);
      harness.target = target;
      agent.behaviour.releaseAll();
      await harness.until(() => row.outcome !== undefined);
      assert.equal(row.outcome?.reason, "answered");
    });

    it(`a sender gets no answer when the policy excludes them while the task is followed by ${how}`, async (t) => {
      const { agent, harness, admit } = await setUpDelegation(t, { streaming });
      agent.behaviour.plan = SLOW;
      const row = await admit();
      harness.worker().start();
      await harness.until(() => row.state === "following");
      const { target } = harness;
      assert.ok(target);
      harness.target = { ...target, entry: { ...target.entry, allowedSenders: ["@bob:a.test"] } };
      await harness.until(() => row.outcome !== undefined);
      assert.equal(row.outcome?.reason, "sender_policy_rejected");
      assert.deepEqual(harness.sent, []);
    });

    it(`a task is canceled, and the answer given up, when it takes too long (${how})`, async (t) => {
      const { agent, harness, admit } = await setUpDelegation(t, {
        streaming,
        harness: { limits: { answerDeadline: 60_000 } },
      });
      agent.behaviour.plan = SLOW;
      const row = await admit();
      harness.worker().start();
      await harness.until(() => row.outcome !== undefined, 500);
      assert.deepEqual(row.outcome, {
        state: "failed",
        stage: "follow",
        reason: "answer_deadline_exceeded",
        notice: "delegation_failed",
      });
      assert.equal(agent.behaviour.canceled.length, 1);
    });

    it(`a redaction while the task is followed by ${how} cancels it at the agent, without a notice [INT-6]`, async (t) => {
      const { agent, harness, admit, redact } = await setUpDelegation(t, { streaming });
      agent.behaviour.plan = SLOW;
      const row = await admit();
      const worker = harness.worker();
      worker.start();
      await harness.until(() => row.state === "following");
      await redact(row);
      worker.cancel(row.id);
      await harness.until(() => row.outcome !== undefined);
      assert.deepEqual(row.outcome, { state: "canceled", stage: "follow", reason: "source_redacted" });
      assert.equal(agent.behaviour.canceled.length, 1);
      assert.deepEqual(harness.sent, []);
    });
  }

  it("a redaction that the lease's renewal reports cancels the task as well", async (t) => {
    const { agent, harness, admit, redact } = await setUpDelegation(t, { streaming: true });
    agent.behaviour.plan = SLOW;
    const row = await admit();
    harness.worker().start();
    await harness.until(() => row.state === "following");
    await redact(row);
    await harness.until(() => row.outcome !== undefined);
    assert.equal(row.outcome?.reason, "source_redacted");
    assert.equal(agent.behaviour.canceled.length, 1);
  });

  for (const afterEvents of [1, 2, 3]) {
    it(`a stream cut after ${afterEvents} events costs no answer and no second task [DEL-7]`, async (t) => {
      const { agent, harness, admit } = await setUpDelegation(t, { streaming: true });
      agent.behaviour.plan = completes("one ", "two ", "three");
      agent.fault("stream", { kind: "cut", afterEvents });
      const row = await admit();
      harness.worker().start();
      await harness.until(() => row.outcome !== undefined);
      assert.equal(row.outcome?.reason, "answered");
      assert.equal(harness.sent[0]?.content["body"], "one two three");
      assert.equal(agent.tasksOf(row.a2aMessageId), 1);
    });
  }

  it("a task that still runs when its stream is cut is subscribed to, and its whole answer is read [DEL-7]", async (t) => {
    const { agent, harness, admit } = await setUpDelegation(t, { streaming: true });
    agent.behaviour.plan = SLOW;
    agent.fault("stream", { kind: "cut", afterEvents: 1 });
    const row = await admit();
    harness.worker().start();
    await harness.until(() => agent.requestsOf("subscribe").length === 1);
    agent.behaviour.releaseAll();
    await harness.until(() => row.outcome !== undefined);
    assert.equal(row.outcome?.reason, "answered");
    assert.equal(harness.sent[0]?.content["body"], "at last");
  });

  it("an answer contains what the agent produced between a cut stream and the next [DEL-7]", async (t) => {
    const { agent, harness, admit } = await setUpDelegation(t, { streaming: true });
    agent.behaviour.plan = SLOW;
    agent.fault("stream", { kind: "cut", afterEvents: 1 });
    agent.fault("subscribe", { kind: "skip", before: () => agent.behaviour.sendAhead("first of all") });
    const row = await admit();
    harness.worker().start();
    await harness.until(() => agent.requestsOf("subscribe").length === 1);
    agent.behaviour.releaseAll();
    await harness.until(() => row.outcome !== undefined);
    assert.equal(harness.sent[0]?.content["body"], "first of all\n\nat last");
  });

  it("a task is polled, without a busy loop, when the agent cuts every stream", async (t) => {
    const { agent, harness, admit } = await setUpDelegation(t, { streaming: true });
    agent.behaviour.plan = SLOW;
    agent.fault("stream", { kind: "cut", afterEvents: 1 });
    agent.fault("subscribe", { kind: "reset" }, 1_000);
    const row = await admit();
    harness.worker().start();
    const startedAt = harness.clock.now();
    await harness.until(() => harness.clock.now() - startedAt > 60_000);
    assert.ok(agent.requestsOf("subscribe").length <= 3);
    assert.ok(agent.requestsOf("get").length <= 33, String(agent.requestsOf("get").length));
    agent.behaviour.releaseAll();
    await harness.until(() => row.outcome !== undefined);
    assert.equal(row.outcome?.reason, "answered");
  });

  it("a task is polled at first every two seconds, and at the end of half an hour every thirty [DEL-5]", async (t) => {
    const { agent, harness, admit } = await setUpDelegation(t);
    agent.behaviour.plan = SLOW;
    const row = await admit();
    harness.worker().start();
    await harness.until(() => row.state === "following");
    const pollsWithin = async (seconds: number) => {
      const [before, since] = [agent.requestsOf("get").length, harness.clock.now()];
      await harness.until(() => harness.clock.now() - since >= seconds * 1_000);
      return agent.requestsOf("get").length - before;
    };
    const first = await pollsWithin(30);
    assert.ok(first >= 13 && first <= 16, `${first} polls in the first 30 s`);
    await harness.clock.advance(1_770_000);
    const last = await pollsWithin(120);
    assert.ok(last >= 3 && last <= 5, `${last} polls in 120 s after half an hour`);
    agent.behaviour.releaseAll();
    await harness.until(() => row.outcome !== undefined);
    assert.equal(row.outcome?.reason, "answered");
  });

  it("a task is polled on whole seconds, with all others, once its polls are a second apart [DEL-5]", async (t) => {
    const { agent, harness, admit } = await setUpDelegation(t);
    agent.behaviour.plan = SLOW;
    await harness.clock.advance(370);
    const row = await admit();
    harness.worker().start();
    await harness.until(() => row.state === "following");
    const polls = agent.requestsOf("get").length;
    await harness.until(() => agent.requestsOf("get").length > polls + 3);
    await harness.until(() => row.dueAt < harness.clock.now() + 10_000);
    assert.equal(row.dueAt % 1_000, 0);
    agent.behaviour.releaseAll();
    await harness.until(() => row.outcome !== undefined);
  });

  it("a poll that fails is repeated with a back-off, and the task is answered when the agent is back", async (t) => {
    const { agent, harness, admit } = await setUpDelegation(t);
    agent.behaviour.plan = SLOW;
    const row = await admit();
    harness.worker().start();
    await harness.until(() => row.state === "following");
    agent.fault("get", { kind: "status", status: 503 }, 4);
    agent.fault("get", { kind: "status", status: 429, headers: { "retry-after": "250" } });
    agent.fault("get", { kind: "status", status: 404 });
    agent.fault("get", { kind: "garbage" }, 2);
    agent.behaviour.releaseAll();
    const from = harness.clock.now();
    await harness.until(() => row.outcome !== undefined, 200);
    assert.equal(row.outcome?.reason, "answered");
    assert.ok(harness.clock.now() - from >= 250_000, "not before the agent wants to be asked again");
  });

  it("an outage and a proxy's pages never count as failures of the agent, until the deadline [DEL-5] [DEL-7]", async (t) => {
    const { agent, harness, admit } = await setUpDelegation(t);
    agent.behaviour.plan = SLOW;
    const row = await admit();
    harness.worker().start();
    await harness.until(() => row.state === "following");
    agent.fault("get", { kind: "status", status: 503 }, 9);
    agent.fault("get", { kind: "garbage" }, 20);
    agent.fault("get", { kind: "status", status: 302, headers: { location: "/login" } }, 3);
    agent.fault("get", { kind: "reset" }, 3);
    agent.fault("get", NOT_A2A, 4);
    const polls = agent.requestsOf("get").length;
    await harness.until(() => agent.requestsOf("get").length >= polls + 39, 1_000);
    agent.behaviour.releaseAll();
    await harness.until(() => row.outcome !== undefined);
    assert.equal(row.outcome?.reason, "answered");
  });

  it("an agent that breaks the rules of A2A is given up after the documented number of polls in a row [DEL-5]", async (t) => {
    const { agent, harness, admit } = await setUpDelegation(t);
    const page = readFileSync(`${ROOT}docs/reference/delegation-outcomes.md`, "utf8");
    const documented = Number(/JSON that is not A2A, .*, in (\d+) polls in a row/.exec(page)?.[1]);
    agent.behaviour.plan = SLOW;
    const row = await admit();
    harness.worker().start();
    await harness.until(() => row.state === "following");
    for (let n = 1; n < documented; n++) {
      agent.fault("get", NOT_A2A);
      agent.fault("get", { kind: "status", status: 503 });
    }
    const polls = agent.requestsOf("get").length;
    await harness.until(() => agent.requestsOf("get").length >= polls + 2 * (documented - 1));
    assert.equal(row.state, "following");
    agent.fault("get", NOT_A2A);
    await harness.until(() => row.outcome !== undefined);
    assert.equal(row.outcome?.reason, "agent_protocol_error");
    assert.equal(documented, FAULTS_MAX);
  });

  for (const [name, fault, reason] of [
    ["403", { kind: "status", status: 403 }, "agent_refused"],
    ["JSON that is not A2A again and again", NOT_A2A, "agent_protocol_error"],
    ["50 MB", { kind: "huge" }, "answer_too_large"],
  ] as const) {
    it(`a delegation ends as ${reason} when a poll is answered with ${name}`, async (t) => {
      const { agent, harness, admit } = await setUpDelegation(t);
      agent.behaviour.plan = SLOW;
      const row = await admit();
      harness.worker().start();
      await harness.until(() => row.state === "following");
      agent.fault("get", fault, 100);
      await harness.until(() => row.outcome !== undefined);
      assert.deepEqual(row.outcome, {
        state: "failed",
        stage: "follow",
        reason,
        notice: "delegation_failed",
      });
    });
  }

  it("a delegation ends as agent_failed when the agent has forgotten the task", async (t) => {
    const { fixture, harness, admit } = await setUpDelegation(t);
    const row = await admit();
    const { delegations } = fixture.ledger;
    for (const { lease } of await fixture.claim({ holder: "earlier" })) {
      await delegations.beginDispatch(lease, BUCKET, T0);
      await delegations.recordAccepted(
        lease,
        { taskId: "never-was", contextId: undefined, agentVersion: undefined },
        T0,
      );
      await delegations.release([lease], T0);
    }
    harness.worker().start();
    await harness.until(() => row.outcome !== undefined);
    assert.equal(row.outcome?.reason, "agent_failed");
    assert.equal(row.outcome?.stage, "follow");
  });

  it("a streamed answer is refused as soon as it exceeds the bound", async (t) => {
    const { agent, harness, admit } = await setUpDelegation(t, {
      streaming: true,
      harness: { limits: { answerBytes: 4_096 } },
    });
    agent.behaviour.plan = completes(...Array.from({ length: 10 }, () => "x".repeat(1_000)));
    const row = await admit();
    harness.worker().start();
    await harness.until(() => row.outcome !== undefined);
    assert.equal(row.outcome?.reason, "answer_too_large");
    assert.deepEqual(harness.sent, []);
  });
});
