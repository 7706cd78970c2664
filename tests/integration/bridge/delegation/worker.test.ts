import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { DelegationWorker } from "../../../../src/bridge/delegation/worker.ts";
import type { AgentId } from "../../../../src/domain/identifiers.ts";
import { namedTarget } from "../../../support/agents.ts";
import { delegationSuite } from "../../../support/delegation-suite.ts";
import { completes } from "../../../support/fault-agent-behaviour.ts";
import { ghost, job, room } from "../../../support/ledger.ts";

describe("delegation worker", () => {
  const setUpDelegation = delegationSuite();

  async function setUp(t: TestContext, options: { streaming?: boolean; concurrency?: number } = {}) {
    const { streaming = false, concurrency = 8 } = options;
    const made = await setUpDelegation(t, {
      streaming,
      harness: { limits: { concurrency }, entry: { rate: { perMinute: 6_000, burst: 1_000 } } },
    });
    const count = async (where: string) =>
      Number(
        (await made.fixture.rows(`SELECT count(*) FROM bridge_delegations WHERE ${where}`))[0]?.["count"],
      );
    return { ...made, count };
  }

  it("questions of one room reach the agent in order, and those of other rooms meanwhile [DEL-1]", async (t) => {
    const { agent, harness, admit, count } = await setUp(t);
    agent.behaviour.plan = completes("ok");
    for (let index = 0; index < 8; index++) {
      await admit(`a${index}`, "one");
      await admit(`b${index}`, "two");
    }
    harness.worker("first").start();
    harness.worker("second").start();
    await harness.until(async () => (await count("terminal_reason = 'answered'")) === 16);
    for (const name of ["a", "b"]) {
      const asked = agent.behaviour.prompts.filter((prompt) => prompt.startsWith(`prompt of ${name}`));
      assert.deepEqual(
        asked,
        Array.from({ length: 8 }, (_, index) => `prompt of ${name}${index}`),
      );
    }
  });

  it("a long task does not hold its room", async (t) => {
    const { agent, harness, admit, count } = await setUp(t);
    agent.behaviour.plan = { kind: "slow", text: "late" };
    await admit("slow");
    harness.worker().start();
    await harness.until(async () => (await count("state = 'following'")) === 1);
    agent.behaviour.plan = completes("quick");
    await admit("quick");
    await harness.until(async () => (await count("terminal_reason = 'answered'")) === 1);
    assert.equal(harness.sent[0]?.content["body"], "quick");
    agent.behaviour.releaseAll();
    await harness.until(async () => (await count("terminal_reason = 'answered'")) === 2);
  });

  it("two processes share the work, and each question makes one task [DEL-9]", async (t) => {
    const { agent, harness, fixture, admit, count } = await setUp(t);
    agent.behaviour.plan = completes("ok");
    for (let index = 0; index < 40; index++) await admit(`q${index}`, `room ${index % 13}`);
    harness.worker("first").start();
    harness.worker("second").start();
    await harness.until(async () => (await count("terminal_reason = 'answered'")) === 40);
    assert.equal(agent.behaviour.started.length, 40);
    assert.equal(new Set(agent.behaviour.started).size, 40);
    assert.equal(new Set(harness.sent.map((send) => send.transactionId)).size, 40);
    assert.deepEqual(await fixture.rows("SELECT count(*)::int AS n FROM bridge_audit"), [{ n: 40 }]);
  });

  it("no more delegations are in progress than the concurrency allows", async (t) => {
    const { agent, harness, admit, count } = await setUp(t, { concurrency: 3 });
    agent.fault("send", { kind: "hang" }, 9);
    for (let index = 0; index < 9; index++) await admit(`q${index}`, `room ${index}`);
    harness.worker().start();
    await harness.until(() => agent.requestsOf("send").length === 3);
    await harness.clock.advance(5_000);
    assert.equal(agent.requestsOf("send").length, 3);
    assert.equal(await count("lease_holder IS NOT NULL"), 3);
  });

  it("an agent that hangs takes its share of the slots, and another agent's question is claimed at once [DEL-7]", async (t) => {
    const { agent, fixture, harness, admit, count } = await setUp(t);
    agent.fault("send", { kind: "hang" }, 1_000);
    for (let index = 0; index < 96; index++) await admit(`hang${index}`, `room ${index}`);
    const worker = harness.worker("one", { agentConcurrency: 2 });
    worker.start();
    await harness.until(() => agent.requestsOf("send").length === 2, 0);
    const other = { ghost: ghost("other"), agent: "other" as AgentId, room: room("another room") };
    await fixture.admit([job("other", other)]);
    worker.wake();
    // It is put off without a call, because agents.yaml has no such agent; no request of the other agent's has ended meanwhile.
    await harness.until(
      async () => (await count("agent_id = 'other' AND retry_reason IS NOT NULL")) === 1,
      0,
    );
    assert.equal(agent.requestsOf("send").length, 2);
    assert.equal(await count("agent_id = 'docs' AND lease_holder IS NOT NULL"), 2);
  });

  it("a room goes on after a minute though the slots of its head's agent are all in use, and another agent's question there is asked [DEL-1] [DEL-10]", async (t) => {
    const { agent, fixture, harness, admit, count } = await setUp(t);
    agent.fault("send", { kind: "hang" }, 1_000);
    for (let index = 0; index < 12; index++) await admit(`hang${index}`, `room ${index}`);
    const other = { ghost: ghost("other"), agent: "other" as AgentId, room: room("room 11") };
    await fixture.admit([job("other", other)]);
    const askedAt = harness.clock.now();
    const tried = async () => (await count("agent_id = 'other' AND retry_reason IS NOT NULL")) === 1;
    harness.worker("one", { agentConcurrency: 2, agentRequestTimeout: 3_600_000 }).start();
    await harness.until(() => agent.requestsOf("send").length === 2, 0);
    await harness.clock.advance(50_000);
    assert.equal(await tried(), false, "the head may still get on");
    await harness.until(tried);
    assert.ok(harness.clock.now() - askedAt <= 75_000, String(harness.clock.now() - askedAt));
    assert.equal(agent.requestsOf("send").length, 2);
  });

  it("a question that is claimed as it is admitted takes a slot, as long as half of its agent's share is left", async (t) => {
    const { agent, fixture, harness, count } = await setUp(t);
    agent.fault("send", { kind: "hang" }, 100);
    const worker = harness.worker("one", { agentConcurrency: 4 });
    assert.equal(worker.reserve("docs" as AgentId, "one"), undefined, "it does not run yet");
    worker.start();
    await harness.until(() => harness.returned.includes("claim"), 0);
    const ask = (name: string) =>
      fixture.admit([job(name, { room: room(name), targetFingerprint: namedTarget("docs").fingerprint })], {
        slotFor: ({ agent: of }) => worker.reserve(of, "one"),
      });
    const claimed = await harness.during(Promise.all([ask("q1"), ask("q2"), ask("q3")]));
    assert.deepEqual(claimed.map((one) => one.claimed !== undefined).sort(), [false, true, true]);
    await harness.until(() => agent.requestsOf("send").length === 2, 0);
    assert.equal(worker.slots.free, 6);
    assert.equal(await count("lease_holder = 'one' AND a2a_attempted"), 2);
  });

  it("one agent takes a quarter of the slots when nothing is said", async (t) => {
    const { agent, harness, admit } = await setUp(t);
    agent.fault("send", { kind: "hang" }, 100);
    for (let index = 0; index < 9; index++) await admit(`q${index}`, `room ${index}`);
    harness.worker("one", { concurrency: 12, agentConcurrency: undefined }).start();
    await harness.until(() => agent.requestsOf("send").length === 3);
    await harness.clock.advance(5_000);
    assert.equal(agent.requestsOf("send").length, 3);
  });

  it("one agent streams in half of its share, and its other tasks are polled [AGT-4]", async (t) => {
    const { agent, harness, admit, count } = await setUp(t, { streaming: true });
    agent.behaviour.plan = { kind: "slow", text: "late" };
    for (let index = 0; index < 4; index++) await admit(`q${index}`, `room ${index}`);
    const worker = harness.worker("one", { agentConcurrency: 4 });
    worker.start();
    await harness.until(async () => (await count("state = 'following'")) === 4);
    await harness.until(() => worker.slots.request === 0);
    assert.deepEqual(worker.slots, { request: 0, stream: 2, free: 6 });
    agent.behaviour.releaseAll();
  });

  /** A worker with sixteen slots, and agents that hang and have eight questions each. */
  async function setUpHanging(t: TestContext, names: readonly string[]) {
    const made = await setUp(t);
    const { agent, fixture, harness, count } = made;
    agent.fault("send", { kind: "hang" }, 1_000);
    const hanging = names.map((name) => {
      const target = namedTarget(name);
      return { ...target, entry: { ...target.entry, ...harness.target?.entry } };
    });
    const byGhost = new Map(hanging.map((target) => [target.ghost, target]));
    for (const { ghost: asked, agentId, fingerprint } of hanging)
      for (let index = 0; index < 8; index++) {
        const name = `${agentId}${index}`;
        const of = { ghost: asked, agent: agentId, targetFingerprint: fingerprint };
        await fixture.admit([job(name, { ...of, room: room(name) })]);
      }
    const { deps } = harness;
    const worker = new DelegationWorker({
      ...deps,
      directory: { current: async () => ({ byGhost, partnerGhosts: [] }) },
      limits: { ...deps.limits, concurrency: 16, agentConcurrency: undefined },
    });
    t.after(() => harness.during(worker.drain()));
    worker.start();
    const askOther = async () => {
      const other = { ghost: ghost("other"), agent: "other" as AgentId, room: room("another room") };
      await fixture.admit([job("other", other)]);
      const askedAt = harness.clock.now();
      worker.wake();
      // It is put off without a call, because agents.yaml has no such agent.
      await harness.until(async () => (await count("agent_id = 'other' AND retry_reason IS NOT NULL")) === 1);
      assert.ok(harness.clock.now() - askedAt <= 1_000, String(harness.clock.now() - askedAt));
    };
    return { ...made, worker, askOther };
  }

  it("agents that hang, however many questions they have, leave slots to the others [DEL-7]", async (t) => {
    const names = ["one", "two", "three", "four", "five"];
    const { agent, harness, worker, askOther } = await setUpHanging(t, names);
    await harness.until(() => agent.requestsOf("send").length >= 12, 0);
    await askOther();
    assert.equal(worker.reserve("one" as AgentId, "one"), undefined);
    const slot = worker.reserve("other" as AgentId, "one");
    assert.ok(slot !== undefined);
    slot.end(undefined);
  });

  it("agents that hang, however many they are, leave a quarter of the slots to the others once a call to each has ended [DEL-7]", async (t) => {
    const names = ["one", "two", "three", "four", "five", "six", "seven", "eight"];
    const { agent, harness, worker, askOther } = await setUpHanging(t, names);
    await harness.until(() => worker.slots.free === 0 && agent.requestsOf("send").length === 16, 0);
    await harness.clock.advance(harness.deps.limits.agentRequestTimeout);
    await harness.until(() => agent.requestsOf("send").length >= 28, 0);
    await askOther();
    assert.equal(worker.slots.free, 4);
    assert.equal(worker.reserve("eight" as AgentId, "one"), undefined, "it hung before");
    const slot = worker.reserve("other" as AgentId, "one");
    assert.ok(slot !== undefined);
    slot.end(undefined);
  });

  for (const streaming of [false, true]) {
    const how = streaming ? "streamed" : "polled";
    it(`a quick question is asked at once while forty ${how} tasks run and there are eight slots [DEL-7]`, async (t) => {
      const { agent, harness, admit, count } = await setUp(t, { streaming });
      agent.behaviour.plan = { kind: "slow", text: "late" };
      for (let index = 0; index < 40; index++) await admit(`slow${index}`, `room ${index}`);
      const worker = harness.worker();
      worker.start();
      await harness.until(async () => (await count("state = 'following'")) === 40);
      agent.behaviour.plan = completes("quick");
      const quick = await admit("quick", "another room");
      const askedAt = harness.clock.now();
      worker.wake();
      await harness.until(() => quick.outcome !== undefined);
      assert.ok(harness.clock.now() - askedAt <= 5_000, String(harness.clock.now() - askedAt));
      assert.ok((await count("state = 'following' AND lease_holder IS NOT NULL")) <= 8);
      agent.behaviour.releaseAll();
      await harness.until(async () => (await count("terminal_reason = 'answered'")) === 41);
      assert.equal(agent.behaviour.started.length, 41);
    });
  }

  it("a drain lets a call end, releases tasks that are only polled, and loses nothing", async (t) => {
    const { agent, harness, admit, count } = await setUp(t);
    agent.behaviour.plan = { kind: "slow", text: "late" };
    await admit("polled", "one");
    const first = harness.worker("first");
    first.start();
    await harness.until(async () => (await count("state = 'following'")) === 1);
    await first.drain();
    assert.equal(await count("lease_holder IS NOT NULL"), 0);
    assert.equal(await count("state = 'following'"), 1);

    // Its lease would have run for half a minute more: the next process need not wait for it.
    const before = harness.clock.now();
    harness.worker("second").start();
    agent.behaviour.releaseAll();
    await harness.until(async () => (await count("terminal_reason = 'answered'")) === 1);
    assert.ok(harness.clock.now() - before < 10_000);
    assert.equal(agent.behaviour.started.length, 1);
  });

  it("a drain lets a task on a stream come to its end", async (t) => {
    const { agent, harness, admit, count } = await setUp(t, { streaming: true });
    agent.behaviour.plan = { kind: "slow", text: "late" };
    await admit("streamed");
    const worker = harness.worker();
    worker.start();
    await harness.until(() => worker.slots.stream === 1, 0);
    const drained = worker.drain();
    await harness.clock.advance(1_000);
    assert.equal(await count("state = 'following' AND lease_holder IS NOT NULL"), 1);
    agent.behaviour.releaseAll();
    await harness.during(drained);
    assert.equal(await count("terminal_reason = 'answered'"), 1);
  });

  it("a drain releases a polled task while the call of another still runs", async (t) => {
    const { agent, harness, admit, count } = await setUp(t);
    agent.behaviour.plan = { kind: "slow", text: "late" };
    const polled = await admit("polled", "one");
    const first = harness.worker("first", { agentRequestTimeout: 60_000 });
    first.start();
    await harness.until(async () => (await count("state = 'following'")) === 1);
    agent.fault("send", { kind: "hang" });
    await admit("called", "two");
    await harness.until(() => agent.requestsOf("send").length === 2);
    agent.fault("get", { kind: "hang" });
    const polls = agent.requestsOf("get").length;
    await harness.until(() => agent.requestsOf("get").length > polls);
    assert.equal(await count("lease_holder IS NOT NULL"), 2);
    let isDrained = false;
    const drained = first.drain().then(() => {
      isDrained = true;
    });
    await harness.until(async () => (await count("state = 'following' AND lease_holder IS NULL")) === 1, 0);
    assert.equal(isDrained, false);
    // Another process loses nothing when it goes on at once.
    await harness.until(() => polled.dueAt === harness.clock.now(), 0);
    assert.equal(await count("lease_holder IS NOT NULL"), 1);
    await harness.clock.advance(harness.deps.limits.drain);
    await harness.until(() => isDrained, 0);
    await drained;
    assert.equal(await count("lease_holder IS NOT NULL"), 0);
  });

  for (const method of ["claim", "release", "finish"]) {
    it(`a drain ends in its time even when the database never answers a ${method}`, async (t) => {
      const { agent, harness, admit, count } = await setUp(t, { streaming: method === "finish" });
      agent.behaviour.plan = method === "finish" ? completes("ok") : { kind: "slow", text: "late" };
      await admit("one", "one");
      const first = harness.mortal("first");
      let isReached = false;
      first.onWrite = (each, when) => {
        if (each === method && when === "before") isReached = true;
      };
      if (method !== "claim") first.pause(method);
      first.worker.start();
      await harness.until(async () =>
        method === "finish" ? isReached : (await count("state = 'following'")) === 1,
      );
      if (method === "claim") {
        first.pause(method);
        isReached = false;
        first.worker.wake();
        await harness.until(() => isReached, 0);
      }
      const startedAt = harness.clock.now();
      let isDrained = false;
      void first.worker.drain().then(() => {
        isDrained = true;
      });
      await harness.until(() => isDrained, 1_000);
      assert.ok(harness.clock.now() - startedAt <= 25_000, String(harness.clock.now() - startedAt));
      await first.kill();
    });
  }

  it("a drain ends a hanging call when its time is up, and the next process searches for the task", async (t) => {
    const { agent, harness, admit, count } = await setUp(t);
    agent.fault("send", { kind: "hang" });
    const question = await admit("q1");
    const first = harness.worker("first", { agentRequestTimeout: 60_000 });
    first.start();
    await harness.until(() => agent.requestsOf("send").length === 1, 0);
    let isDrained = false;
    void first.drain().then(() => {
      isDrained = true;
    });
    const { drain } = harness.deps.limits;
    await harness.clock.advance(drain - 1);
    assert.equal(await count("lease_holder IS NOT NULL"), 1);
    assert.equal(isDrained, false);
    await harness.clock.advance(1);
    // From here on time stands still: what is left to do needs none of the grace, however slow the machine is.
    await harness.until(() => isDrained, 0);
    assert.equal(await count("lease_holder IS NOT NULL"), 0);
    const drainedAt = harness.clock.now();
    assert.equal(question.dueAt, drainedAt);
    harness.worker("second").start();
    await harness.until(async () => (await count("terminal_reason = 'answered'")) === 1);
    assert.equal(agent.requestsOf("list").length, 2);
    const waited = harness.clock.now() - drainedAt;
    assert.ok(waited >= 2_000, `after ${waited} ms the agent may still be storing the task`);
    assert.equal(agent.behaviour.started.length, 1);
  });

  it("what runs ends at once when the process lost its leases, and its slots are free [DEL-9]", async (t) => {
    const { agent, harness, admit } = await setUp(t, { concurrency: 1 });
    agent.behaviour.plan = completes("ok");
    await admit("q1");
    harness.onCall = (method) => {
      if (method !== "claim" && method !== "beginDispatch") throw new Error("the database is away");
    };
    const worker = harness.worker();
    worker.start();
    await harness.until(() => agent.behaviour.started.length === 1);
    assert.equal(worker.slots.free, 0, "it tries again to record what the agent said");
    worker.lost();
    await harness.until(() => worker.slots.free === 1, 0);
    assert.equal(harness.metrics.count("leaseLost"), 1);
    harness.onCall = () => {};
  });

  it("nothing is lost or sent twice when the database is away while the agent accepts", async (t) => {
    const { agent, harness, admit } = await setUpDelegation(t, { lists: false });
    const row = await admit();
    let isAway = false;
    harness.onCall = (method) => {
      if (method === "recordAccepted") isAway = harness.clock.now() < awayUntil;
      if (isAway && harness.clock.now() < awayUntil) {
        throw Object.assign(new Error("connect ECONNREFUSED"), { code: "ECONNREFUSED" });
      }
    };
    const awayUntil = harness.clock.now() + 120_000;
    harness.worker().start();
    await harness.until(() => row.outcome !== undefined, 500);
    assert.equal(row.outcome?.reason, "answered");
    assert.equal(agent.tasksOf(row.a2aMessageId), 1);
    assert.equal(agent.requestsOf("send").length, 1);
  });

  it("an answer is sent at once whose record was committed though the connection broke [DEL-4]", async (t) => {
    const { agent, harness, admit } = await setUpDelegation(t);
    agent.behaviour.plan = completes("ok");
    const question = await admit();
    const one = harness.mortal("one");
    let isBroken = false;
    one.onWrite = (method, when) => {
      if (method !== "recordReply" || when === "before" || isBroken) return;
      isBroken = true;
      throw Object.assign(new Error("read ECONNRESET"), { code: "ECONNRESET" });
    };
    const askedAt = harness.clock.now();
    one.worker.start();
    await harness.until(() => question.outcome !== undefined);
    assert.equal(question.outcome?.reason, "answered");
    assert.ok(harness.clock.now() - askedAt < 10_000, `${harness.clock.now() - askedAt} ms`);
    assert.deepEqual([harness.sent.length, agent.requestsOf("send").length], [1, 1]);
  });

  for (const binding of ["JSONRPC", "HTTP+JSON"] as const) {
    it(`no text of a question, an answer or an agent is logged (${binding}) [AUD-2]`, async (t) => {
      const { agent, harness, admit } = await setUpDelegation(t, { streaming: true, card: { binding } });
      agent.behaviour.plan = completes("canary-answer");
      const undecodable = '{"task":{"id":"canary-garbage","artifacts":[{"parts":[null]}]}}';
      for (const data of ['{"canary-garbage', undecodable]) {
        agent.fault("stream", { kind: "garbage", body: `data: ${data}\n\n`, type: "text/event-stream" });
      }
      const rows = await Promise.all(["one", "two", "three"].map((room) => admit(`canary-${room}`, room)));
      const printed: unknown[] = [];
      for (const method of ["error", "warn", "log"] as const) {
        t.mock.method(console, method, (...args: unknown[]) => printed.push(...args));
      }
      harness.worker().start();
      await harness.until(() => rows.every((row) => row.outcome !== undefined));
      assert.deepEqual(rows.map((row) => row.outcome?.reason).sort(), [
        "agent_protocol_error",
        "agent_protocol_error",
        "answered",
      ]);
      assert.doesNotMatch(harness.logged.join("") + JSON.stringify(printed), /canary/);
    });
  }
});
