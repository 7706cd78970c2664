import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { delegationSuite } from "../../../support/delegation-suite.ts";
import type { FaultAgentOptions } from "../../../support/fault-agent.ts";
import { completes } from "../../../support/fault-agent-behaviour.ts";

const LEASE_MS = 30_000;

/** The instants at which a process dies: just before or just after one of its writes. */
const BOUNDARIES = [
  ["claim", "after"],
  ["beginDispatch", "before"],
  ["beginDispatch", "after"],
  ["recordAccepted", "before"],
  ["recordAccepted", "after"],
  ["recordReply", "before"],
  ["recordReply", "after"],
  ["finish", "before"],
  ["finish", "after"],
] as const;

const AGENTS: readonly [string, FaultAgentOptions][] = [
  ["lists its tasks", { lists: true }],
  ["dedupes", { dedupe: true, lists: false }],
  ["streams and lists its tasks", { streaming: true, lists: true }],
  ["streams and dedupes", { streaming: true, dedupe: true, lists: false }],
];

describe("takeover of a dead worker's delegations", () => {
  const setUpDelegation = delegationSuite();

  async function setUp(t: TestContext, options: FaultAgentOptions = {}) {
    const made = await setUpDelegation(t, options);
    const row = async () => (await made.fixture.rows("SELECT * FROM bridge_delegations ORDER BY id"))[0];
    const isTerminal = async () => (await row())?.["terminal_at"] !== null;
    await made.admit();
    return { ...made, row, isTerminal };
  }

  for (const [what, options] of AGENTS) {
    for (const [method, when] of BOUNDARIES) {
      it(`one task and one answer result when a process is killed ${when} ${method} and the agent ${what} [DEL-7]`, async (t) => {
        const { agent, harness, row, isTerminal } = await setUp(t, options);
        agent.behaviour.plan = completes("the answer");
        const first = harness.mortal("first");
        const isKilled = first.killAt(method, when);
        first.worker.start();
        await harness.until(isKilled);
        const before = harness.clock.now();
        harness.worker("second").start();
        await harness.until(() => harness.clock.now() - before > LEASE_MS, 500);
        // Slowly from here, so that time does not run away from real requests and statements.
        await harness.until(isTerminal, 50);

        const ended = await row();
        assert.equal(ended?.["terminal_reason"], "answered");
        assert.equal(ended?.["prompt"], null);
        assert.equal(agent.behaviour.started.length, 1);
        assert.deepEqual(new Set(harness.sent.map((send) => send.content["body"])), new Set(["the answer"]));
        assert.equal(new Set(harness.sent.map((send) => send.transactionId)).size, 1);
        // A dead process's delegation is taken up when its lease has ended, not much later.
        assert.ok(harness.clock.now() - before <= 45_000, String(harness.clock.now() - before));
      });
    }
  }

  for (const [method, when, tasks] of [
    ["beginDispatch", "after", 0],
    ["recordAccepted", "before", 1],
  ] as const) {
    it(`a delegation ends outcome_unknown when its process is killed ${when} ${method} and the agent neither lists nor dedupes [DEL-7]`, async (t) => {
      const { agent, harness, row, isTerminal, fixture } = await setUp(t, { lists: false });
      const first = harness.mortal("first");
      const isKilled = first.killAt(method, when);
      first.worker.start();
      await harness.until(isKilled);
      harness.worker("second").start();
      await harness.until(isTerminal, 500);
      const ended = await row();
      assert.equal(ended?.["terminal_reason"], "outcome_unknown");
      assert.equal(ended?.["a2a_attempted"], true);
      assert.equal(agent.behaviour.started.length, tasks);
      assert.equal((await fixture.rows("SELECT kind FROM bridge_notices"))[0]?.["kind"], "delegation_failed");
    });
  }

  it("a holder that was paused past its lease is refused, and its answer is not sent [DEL-9]", async (t) => {
    const { agent, harness, isTerminal, row } = await setUp(t, { streaming: true });
    agent.behaviour.plan = { kind: "slow", text: "the answer" };
    const first = harness.mortal("first");
    first.worker.start();
    await harness.until(async () => (await row())?.["state"] === "following");
    const resume = first.pause();
    await harness.clock.advance(31_000);
    harness.worker("second").start();
    await harness.until(() => agent.requestsOf("subscribe").length === 1);
    agent.behaviour.releaseAll();
    await harness.until(isTerminal);
    assert.equal(harness.sent.length, 1);
    assert.equal(harness.metrics.count("leaseLost"), 0);

    resume();
    await harness.until(() => harness.metrics.count("leaseLost") === 1);
    assert.equal(harness.sent.length, 1);
    assert.equal(agent.behaviour.started.length, 1);
    assert.equal((await row())?.["terminal_reason"], "answered");
    assert.equal(harness.metrics.count("flowFailed:lease_lost"), 0);
    await first.kill();
  });

  it("a holder does not call the agent when its limiter write outlasted its lease [DEL-9]", async (t) => {
    const { agent, harness, isTerminal } = await setUp(t, { streaming: true });
    const first = harness.mortal("first");
    let resume = () => {};
    let resumeOthers = () => {};
    let isPaused = false;
    first.onWrite = (method, when) => {
      if (method !== "beginDispatch" || when !== "before" || isPaused) return;
      isPaused = true;
      resume = first.pause("beginDispatch");
      resumeOthers = first.pause("renew", "claim");
    };
    first.worker.start();
    await harness.until(() => isPaused);
    await harness.clock.advance(31_000);
    // Nobody has taken the row over, so the write succeeds; the lease is stale all the same.
    resume();
    await harness.until(() => harness.metrics.count("deferred:agent_unavailable") === 1, 0);
    assert.equal(agent.requests.length, 0);
    resumeOthers();
    await harness.until(isTerminal);
    assert.equal(agent.behaviour.started.length, 1);
    await first.worker.drain();
  });

  it("a holder that was stopped after its limiter write does not call the agent, because others took it for ended [DEL-9]", async (t) => {
    const { agent, harness, isTerminal } = await setUp(t);
    const first = harness.mortal("first");
    first.onWrite = (method, when) => {
      if (method === "beginDispatch" && when === "after") first.isAlive = false;
    };
    first.worker.start();
    await harness.until(() => harness.metrics.count("deferred:agent_unavailable") === 1, 0);
    assert.equal(agent.requests.length, 0);
    first.onWrite = () => {};
    first.isAlive = true;
    await harness.until(isTerminal);
    assert.equal(agent.behaviour.started.length, 1);
    await first.worker.drain();
  });

  it("the next process sends only the rest when one is killed between two parts of an answer [DEL-3]", async (t) => {
    const { agent, harness, isTerminal, fixture } = await setUp(t, { streaming: true });
    const long = "A paragraph of the answer.\n\n".repeat(3_000);
    agent.behaviour.plan = completes(long);
    const first = harness.mortal("first");
    let isKilled = false;
    first.onWrite = (method, when) => {
      if (method !== "recordSent" || when !== "after") return;
      isKilled = true;
      void first.kill();
    };
    first.worker.start();
    await harness.until(() => isKilled);
    assert.equal(harness.sent.length, 1);
    harness.worker("second").start();
    await harness.until(isTerminal, 500);
    // The room's message begins the answer; the thread has the whole of it.
    const [beginning, ...thread] = harness.sent.map((send) => String(send.content["body"]));
    assert.ok(beginning !== undefined && beginning.length < long.length);
    assert.equal(thread.join(""), long);
    const sends = await fixture.rows("SELECT state, content FROM bridge_sends");
    assert.ok(sends.length >= 3);
    assert.ok(sends.every((send) => send["state"] === "sent" && send["content"] === null));
  });

  it("a holder sends no further part once its lease has run out [DEL-9]", async (t) => {
    const { agent, harness, isTerminal, row } = await setUp(t, { streaming: true });
    const long = "A paragraph of the answer.\n\n".repeat(3_000);
    agent.behaviour.plan = completes(long);
    const first = harness.mortal("first");
    let resume = () => {};
    let resumeOthers = () => {};
    first.onWrite = (method, when) => {
      if (method !== "recordSent" || when !== "before" || harness.sent.length > 1) return;
      resume = first.pause("recordSent");
      resumeOthers = first.pause("renew", "claim");
    };
    first.worker.start();
    await harness.until(() => harness.sent.length === 1);
    await harness.clock.advance(31_000);
    // The second part's turn comes, and the ledger has not yet said that the lease is another's.
    resume();
    await harness.until(() => harness.metrics.count("leaseLost") === 1, 0);
    assert.equal(harness.sent.length, 1);
    assert.equal((await row())?.["state"], "reply_pending");
    harness.worker("second").start();
    await harness.until(isTerminal);
    // The room's message begins the answer; the thread has the whole of it.
    const [beginning, ...thread] = harness.sent.map((send) => String(send.content["body"]));
    assert.ok(beginning !== undefined && beginning.length < long.length);
    assert.equal(thread.join(""), long);
    resumeOthers();
    await first.kill();
  });

  it("a bridge that was down for an hour still delivers the agent's answer", async (t) => {
    const { agent, harness, isTerminal, row } = await setUp(t, { lists: true });
    const first = harness.mortal("first");
    let isKilled = false;
    first.onWrite = (method, when) => {
      if (method !== "recordAccepted" || when !== "before") return;
      isKilled = true;
      void first.kill();
    };
    first.worker.start();
    await harness.until(() => isKilled);
    await harness.clock.advance(3_600_000);
    agent.fault("list", { kind: "status", status: 503 }, 2);
    harness.worker("second").start();
    await harness.until(isTerminal);
    assert.equal((await row())?.["terminal_reason"], "answered");
    assert.equal(agent.behaviour.started.length, 1);
  });
});
