import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { freePort } from "../../../../lab/ports.ts";
import type { TerminalReason } from "../../../../src/bridge/ledger/states.ts";
import { delegationSuite } from "../../../support/delegation-suite.ts";
import type { Fault } from "../../../support/fault-agent.ts";
import { T0 } from "../../../support/ledger.ts";

const status = (code: number, headers?: Record<string, string>): Fault => ({
  kind: "status",
  status: code,
  ...(headers !== undefined && { headers }),
});

/** Faults that end a delegation at once, whatever the agent offers. */
const FINAL: readonly [string, Fault, TerminalReason][] = [
  ["403", status(403), "agent_refused"],
  ["a redirect", status(302, { location: "http://127.0.0.1:1/" }), "agent_protocol_error"],
  ["400", status(400), "agent_protocol_error"],
  ["a page of HTML", { kind: "garbage" }, "agent_protocol_error"],
  [
    "JSON that is not JSON-RPC",
    { kind: "garbage", body: '{"hello":1}', type: "application/json" },
    "agent_protocol_error",
  ],
  [
    "an empty JSON-RPC result",
    { kind: "garbage", body: '{"jsonrpc":"2.0","id":1,"result":{}}', type: "application/json" },
    "agent_protocol_error",
  ],
  [
    "a task without an ID",
    {
      kind: "garbage",
      body: '{"jsonrpc":"2.0","id":1,"result":{"task":{"status":{}}}}',
      type: "application/json",
    },
    "agent_protocol_error",
  ],
  [
    "a JSON-RPC error of its own",
    {
      kind: "garbage",
      body: '{"jsonrpc":"2.0","id":1,"error":{"code":-32050,"message":"secret"}}',
      type: "application/json",
    },
    "agent_failed",
  ],
  ["50 MB", { kind: "huge" }, "answer_too_large"],
];

describe("retries of a dispatch", () => {
  const setUpDelegation = delegationSuite();

  it("every request of a delegation carries its own trace context, a retried one the same [OPS-1]", async (t) => {
    const { agent, harness, admit, fixture } = await setUpDelegation(t, {});
    agent.fault("send", { kind: "reset" });
    const [first, second] = [await admit("q1", "r"), await admit("q2", "s")];
    harness.worker().start();
    await harness.until(() => first.outcome !== undefined && second.outcome !== undefined);
    const sent = agent.requests.filter(({ operation }) => operation === "send");
    assert.ok(sent.length >= 3);
    const stored = await fixture.rows("SELECT traceparent FROM bridge_delegations");
    assert.deepEqual(
      new Set(agent.requests.map(({ traceparent }) => traceparent)),
      new Set(stored.map((row) => row["traceparent"])),
    );
    assert.equal(new Set(stored.map((row) => row["traceparent"])).size, 2);
    for (const row of stored) assert.match(String(row["traceparent"]), /^00-[0-9a-f]{32}-[0-9a-f]{16}-01$/);
  });

  for (const streaming of [true, false]) {
    for (const [name, fault, reason] of FINAL) {
      it(`a delegation ends as ${reason} at once when the agent answers ${name} (streaming ${streaming})`, async (t) => {
        const { agent, harness, admit } = await setUpDelegation(t, { streaming });
        agent.fault(streaming ? "stream" : "send", fault, 100);
        const row = await admit();
        harness.worker().start();
        await harness.until(() => row.outcome !== undefined);
        assert.deepEqual(row.outcome, {
          state: "failed",
          stage: "dispatch",
          reason,
          notice: "delegation_failed",
        });
        assert.equal(agent.requests.length, 1);
        assert.equal(row.hasPrompt, false);
        assert.doesNotMatch(harness.logged.join(""), /secret|prompt of/);
      });
    }
  }

  it("the connection is dropped soon after the bound when the agent sends 50 MB", async (t) => {
    const { agent, harness, admit } = await setUpDelegation(t);
    agent.fault("send", { kind: "huge" });
    const row = await admit();
    harness.worker().start();
    await harness.until(() => row.outcome !== undefined);
    assert.ok(agent.hugeBytes < 10 * 1024 * 1024, String(agent.hugeBytes));
  });

  /** Faults after which the agent surely has nothing: the question is sent again, and no task is looked for. */
  const UNDELIVERED: readonly [string, Fault, TerminalReason, string][] = [
    ["429", status(429), "rate_limited", "rate_limited"],
    ["503 with Retry-After", status(503, { "retry-after": "1" }), "agent_unavailable", "delegation_failed"],
    ["404", status(404), "agent_unavailable", "delegation_failed"],
  ];

  for (const [name, fault, reason, notice] of UNDELIVERED) {
    it(`a question is sent again, and makes one task, after a passing ${name}`, async (t) => {
      const { agent, harness, admit } = await setUpDelegation(t, { lists: false });
      agent.fault("send", fault, 3);
      const row = await admit();
      harness.worker().start();
      await harness.until(() => row.outcome !== undefined);
      assert.equal(row.outcome?.reason, "answered");
      assert.equal(agent.requestsOf("send").length, 4);
      assert.equal(agent.requestsOf("list").length, 0);
      assert.equal(agent.tasksOf(row.a2aMessageId), 1);
    });

    it(`a question is given up as ${reason} by its deadline, after few requests, when ${name} persists`, async (t) => {
      const { agent, harness, admit } = await setUpDelegation(t);
      agent.fault("send", fault, 1_000);
      const row = await admit();
      harness.worker().start();
      await harness.until(() => row.outcome !== undefined, 2_000);
      assert.deepEqual(row.outcome, { state: "failed", stage: "dispatch", reason, notice });
      assert.ok(harness.clock.now() <= T0 + 600_000);
      // Doubling from half a second to half a minute: ten minutes hold some thirty tries.
      assert.ok(agent.requestsOf("send").length < 45, String(agent.requestsOf("send").length));
      assert.equal(agent.tasksOf(row.a2aMessageId), 0);
    });
  }

  it("a question waits while the agent refuses connections, and is sent when it is back", async (t) => {
    const { agent, harness, admit } = await setUpDelegation(t, { lists: false });
    const good = harness.trust;
    assert.ok(good.trust === "verified");
    const port = await freePort();
    const nowhere = good.card.supportedInterfaces.map((each) => ({
      ...each,
      url: `http://127.0.0.1:${port}/rpc`,
    }));
    assert.ok(harness.target !== undefined);
    const { entry } = harness.target;
    const allowedOrigins = [...entry.allowedOrigins, `http://127.0.0.1:${port}`];
    harness.target = { ...harness.target, entry: { ...entry, allowedOrigins } };
    harness.trust = { ...good, card: { ...good.card, supportedInterfaces: nowhere } };
    const row = await admit();
    harness.worker().start();
    await harness.until(() => row.attempts === 3);
    harness.trust = good;
    await harness.until(() => row.outcome !== undefined);
    assert.equal(row.outcome?.reason, "answered");
    assert.equal(agent.requests.filter(({ operation }) => operation === "send").length, 1);
  });

  it("a Retry-After is honoured to the second", async (t) => {
    const { agent, harness, admit } = await setUpDelegation(t);
    agent.fault("send", status(429, { "retry-after": "90" }));
    const row = await admit();
    harness.worker().start();
    await harness.until(() => row.attempts === 1);
    const askedAt = harness.clock.now();
    await harness.until(() => agent.requestsOf("send").length === 2);
    assert.ok(harness.clock.now() - askedAt >= 90_000 - 100, String(harness.clock.now() - askedAt));
  });

  it("a question is given up at once when Retry-After is beyond its deadline", async (t) => {
    const { agent, harness, admit } = await setUpDelegation(t);
    agent.fault("send", status(429, { "retry-after": "86400" }), 10);
    const row = await admit();
    harness.worker().start();
    await harness.until(() => row.outcome !== undefined);
    assert.equal(row.outcome?.reason, "rate_limited");
    assert.equal(agent.requests.length, 1);
  });

  for (const [code, wait] of [
    [500, "999999999"],
    [502, "3600"],
  ] as const) {
    it(`an ambiguous ${code} with Retry-After ${wait} is followed by a search for the task within five minutes`, async (t) => {
      const { agent, harness, admit } = await setUpDelegation(t);
      agent.fault("send", status(code, { "retry-after": wait }));
      const row = await admit();
      const next = await admit("q2");
      harness.worker().start();
      await harness.until(() => row.attempts === 1);
      assert.ok(row.dueAt - harness.clock.now() <= 300_000, String(row.dueAt - T0));
      await harness.until(() => row.outcome !== undefined && next.outcome !== undefined, 1_000);
      assert.equal(row.outcome?.reason, "answered");
      assert.equal(agent.tasksOf(row.a2aMessageId), 1);
    });
  }

  it("a wait ends at the deadline, when the task is searched for once more", async (t) => {
    const { agent, harness, admit } = await setUpDelegation(t, {
      harness: { limits: { dispatchDeadline: 100_000 } },
    });
    agent.fault("send", status(500, { "retry-after": "250" }));
    const row = await admit();
    harness.worker().start();
    await harness.until(() => row.attempts === 1);
    assert.equal(row.dueAt, T0 + 100_000);
    await harness.until(() => row.outcome !== undefined, 1_000);
    assert.equal(row.outcome?.reason, "dispatch_deadline_exceeded");
    assert.equal(agent.requestsOf("list").length, 1);
  });

  it("a Retry-After of seven minutes is cut to five", async (t) => {
    const { agent, harness, admit } = await setUpDelegation(t);
    agent.fault("send", status(429, { "retry-after": "420" }));
    const row = await admit();
    harness.worker().start();
    await harness.until(() => row.attempts === 1);
    assert.ok(row.dueAt >= T0 + 300_000 && row.dueAt <= harness.clock.now() + 300_000);
    await harness.until(() => row.outcome !== undefined, 1_000);
    assert.equal(row.outcome?.reason, "answered");
  });

  /** Faults after which nobody knows whether the agent has the question; the first two it surely has not. */
  const AMBIGUOUS: readonly [string, Fault, number][] = [
    ["500", status(500), 0],
    ["502", status(502), 0],
    ["503", status(503), 0],
    ["504", status(504), 0],
    ["a connection closed unanswered", { kind: "reset" }, 0],
    ["silence", { kind: "hang" }, 0],
    ["a connection closed after the task was made", { kind: "accept_then_drop" }, 1],
  ];

  for (const streaming of [true, false]) {
    const operation = streaming ? "stream" : "send";
    for (const [name, fault, tasksMade] of AMBIGUOUS) {
      it(`the task is searched for, and one task is made, after ${name} (streaming ${streaming}) [DEL-7]`, async (t) => {
        const { agent, harness, admit } = await setUpDelegation(t, { streaming });
        agent.fault(operation, fault);
        const row = await admit();
        harness.worker().start();
        await harness.until(() => row.attempts === 1);
        assert.ok(row.dueAt >= T0 + 2_000, "the agent may still be storing it");
        await harness.until(() => row.outcome !== undefined);
        assert.equal(row.outcome?.reason, "answered");
        assert.equal(agent.tasksOf(row.a2aMessageId), 1);
        assert.equal(agent.requestsOf("list").length, 1);
        assert.equal(agent.requestsOf(operation).length, tasksMade === 1 ? 1 : 2);
      });

      it(`a deduping agent gets the same messageId again after ${name} (streaming ${streaming}) [DEL-7]`, async (t) => {
        const { agent, harness, admit } = await setUpDelegation(t, { streaming, dedupe: true });
        agent.fault(operation, fault);
        const row = await admit();
        harness.worker().start();
        await harness.until(() => row.outcome !== undefined);
        assert.equal(row.outcome?.reason, "answered");
        assert.equal(agent.tasksOf(row.a2aMessageId), 1);
        assert.equal(agent.requestsOf("list").length, 0);
        assert.deepEqual(
          agent.requestsOf(operation).map(({ messageId }) => messageId),
          [row.a2aMessageId, row.a2aMessageId],
        );
      });

      it(`a delegation ends outcome_unknown after ${name} when the agent neither lists nor dedupes (streaming ${streaming}) [DEL-7]`, async (t) => {
        const { agent, harness, admit } = await setUpDelegation(t, { streaming, lists: false });
        agent.fault(operation, fault);
        const row = await admit();
        harness.worker().start();
        await harness.until(() => row.outcome !== undefined);
        assert.deepEqual(row.outcome, {
          state: "failed",
          stage: "dispatch",
          reason: "outcome_unknown",
          notice: "delegation_failed",
        });
        assert.equal(row.a2aAttempted, true);
        assert.equal(agent.requestsOf(operation).length, 1);
        assert.equal(agent.tasksOf(row.a2aMessageId), tasksMade);
      });
    }
  }

  it("a first request still counts as possibly delivered after a 404 to its repetition [DEL-7]", async (t) => {
    const { agent, harness, admit } = await setUpDelegation(t, { dedupe: true });
    agent.fault("send", { kind: "accept_then_drop" });
    agent.fault("send", status(404));
    const row = await admit();
    harness.worker().start();
    await harness.until(() => row.attempts === 2);
    assert.equal(agent.tasksOf(row.a2aMessageId), 1);
    assert.equal(row.a2aUnsettled, true);
    const lines = harness.logged.map((line) => JSON.parse(line) as { event?: string; failure?: string });
    const failures = lines.filter(({ event }) => event === "agent_call_failed").map(({ failure }) => failure);
    assert.deepEqual(failures, ["ambiguous", "not_found"], "the log says how each call failed");
    harness.trust = { trust: "quarantined", reason: "agent_card_untrusted" };
    await harness.until(() => row.outcome !== undefined);
    assert.equal(row.outcome?.state, "failed");
    assert.equal(row.outcome?.reason, "agent_card_untrusted");
  });

  it("the task is searched for at the deadline when the agent answers only 404 after an unanswered request [DEL-7]", async (t) => {
    const { agent, harness, admit } = await setUpDelegation(t, { dedupe: true });
    agent.fault("send", { kind: "accept_then_drop" });
    agent.fault("send", status(404), 1_000);
    const row = await admit();
    harness.worker().start();
    await harness.until(() => row.outcome !== undefined, 1_000);
    assert.equal(row.outcome?.reason, "answered");
    assert.equal(agent.tasksOf(row.a2aMessageId), 1);
  });

  it("a 404 counts as undelivered again once the list has shown that there is no task [DEL-7]", async (t) => {
    const { agent, harness, admit } = await setUpDelegation(t);
    agent.fault("send", { kind: "reset" });
    agent.fault("send", status(404));
    const row = await admit();
    harness.worker().start();
    await harness.until(() => row.attempts === 2);
    assert.equal(row.a2aUnsettled, false);
    await harness.until(() => row.outcome !== undefined);
    assert.equal(row.outcome?.reason, "answered");
    assert.equal(agent.requestsOf("list").length, 1);
  });

  it("a question is given up after a few dozen tries when the agent answers 500 for ever", async (t) => {
    const { agent, harness, admit } = await setUpDelegation(t, { dedupe: true });
    agent.fault("send", status(500), 1_000);
    const row = await admit();
    harness.worker().start();
    await harness.until(() => row.outcome !== undefined, 2_000);
    assert.equal(row.outcome?.state, "failed");
    assert.equal(row.outcome?.reason, "dispatch_deadline_exceeded");
    assert.ok(agent.requestsOf("send").length < 45);
  });

  it("a question that the agent may have ends outcome_unknown at its deadline when the list cannot be read all the time [DEL-7]", async (t) => {
    const { agent, harness, admit } = await setUpDelegation(t, { lists: true });
    agent.fault("send", { kind: "reset" });
    agent.fault("list", status(500), 1_000);
    const row = await admit();
    harness.worker().start();
    await harness.until(() => row.outcome !== undefined, 5_000);
    assert.equal(row.outcome?.reason, "outcome_unknown");
    assert.equal(agent.requestsOf("send").length, 1);
    const late = harness.clock.now() - T0 - 600_000;
    assert.ok(late >= 0 && late < 60_000, String(late));
  });

  it("a delegation to a 0.3 agent, which cannot list tasks, ends outcome_unknown after an unanswered request", async (t) => {
    const { agent, harness, admit } = await setUpDelegation(t, { card: { version: "0.3" } });
    agent.fault("send", { kind: "accept_then_drop" });
    const row = await admit();
    harness.worker().start();
    await harness.until(() => row.outcome !== undefined);
    assert.equal(row.outcome?.reason, "outcome_unknown");
    assert.equal(agent.tasksOf(row.a2aMessageId), 1);
  });

  it("a delegation ends without a call when the card has no interface that the bridge speaks", async (t) => {
    const { agent, harness, admit, limiterTokens } = await setUpDelegation(t);
    assert.ok(harness.trust.trust === "verified");
    const grpc = [{ url: agent.url, protocolBinding: "GRPC", protocolVersion: "1.0" }];
    harness.trust = { ...harness.trust, card: { ...harness.trust.card, supportedInterfaces: grpc } };
    const row = await admit();
    harness.worker().start();
    await harness.until(() => row.outcome !== undefined);
    assert.equal(row.outcome?.reason, "agent_protocol_error");
    assert.equal(row.a2aAttempted, false);
    assert.equal(await limiterTokens(), undefined);
  });

  it("an unexpected error puts the delegation back, is logged by its code alone, and loses nothing", async (t) => {
    const { harness, admit } = await setUpDelegation(t, { streaming: true });
    const row = await admit();
    let faults = 3;
    harness.onCall = (method) => {
      if (method !== "beginDispatch" || faults-- <= 0) return;
      throw Object.assign(new Error("prompt of q1 in a message"), { code: "23514" });
    };
    harness.worker().start();
    await harness.until(() => row.outcome !== undefined);
    assert.equal(row.outcome?.reason, "answered");
    assert.equal(harness.metrics.count("flowFailed:23514"), 3);
    assert.doesNotMatch(harness.logged.join(""), /prompt of/);
  });
});
