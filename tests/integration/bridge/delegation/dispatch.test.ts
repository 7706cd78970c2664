import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { TerminalReason } from "../../../../src/bridge/ledger/states.ts";
import type { UserId } from "../../../../src/domain/identifiers.ts";
import type { Harness } from "../../../support/delegation.ts";
import { delegationSuite } from "../../../support/delegation-suite.ts";
import { startTestIssuer } from "../../../support/http-server.ts";
import { ghost, T0 } from "../../../support/ledger.ts";

process.env["DRAWBRIDGE_SECRET_DELEGATION_TEST"] = "s3cret:with/odd+signs";
const SECRET = { env: "DRAWBRIDGE_SECRET_DELEGATION_TEST" };

describe("dispatch", () => {
  const setUpDelegation = delegationSuite();

  it("a waiting question is denied, without a request to issuer or agent, when the sender policy has changed [DEL-2]", async (t) => {
    const issuer = await startTestIssuer(t);
    const credentials = { tokenEndpoint: issuer.tokenEndpoint, clientId: "a", clientSecret: SECRET };
    const { agent, harness, admit, limiterTokens } = await setUpDelegation(t, {
      harness: { entry: { credentials, allowedSenders: ["@bob:a.test"] } },
    });
    const row = await admit();
    harness.worker().start();
    await harness.until(() => row.outcome !== undefined);
    assert.deepEqual(row.outcome, {
      state: "denied",
      stage: "policy",
      reason: "sender_policy_rejected",
      notice: "policy_denied",
    });
    assert.equal(row.a2aAttempted, false);
    assert.deepEqual(
      [agent.requests.length, issuer.requests.length, await limiterTokens()],
      [0, 0, undefined],
    );
  });

  const SENDER = "@mallory:b.test" as UserId;
  const allowed = { allowedServers: ["a.test", "b.test"], allowedSenders: [SENDER, "@alice:a.test"] };
  const fromOutside = { harness: { entry: allowed } };

  it("a question from another server that the room does not accept is denied without a notice, and reaches no agent [DEL-2]", async (t) => {
    const { agent, harness, admit, fixture, limiterTokens } = await setUpDelegation(t, fromOutside);
    const asked: unknown[] = [];
    harness.isAccepted = async (...[who, where, what]) => {
      asked.push(who, where, what);
      return { kind: "ok", value: false };
    };
    const row = await admit("q1", "r", T0, SENDER);
    harness.worker().start();
    await harness.until(() => row.outcome !== undefined);
    assert.deepEqual(row.outcome, { state: "denied", stage: "policy", reason: "sender_policy_rejected" });
    assert.deepEqual(asked, [ghost(), row.room, { event: row.event, sender: SENDER }]);
    assert.deepEqual([agent.requests.length, await limiterTokens()], [0, undefined]);
    assert.deepEqual(await fixture.rows("SELECT * FROM bridge_notices"), []);
  });

  it("a question from another server waits while the homeserver does not say whether the room accepts it, and one of the own server does not ask [DEL-2]", async (t) => {
    const { agent, harness, admit } = await setUpDelegation(t, fromOutside);
    let tries = 0;
    harness.isAccepted = async () => {
      tries += 1;
      if (tries < 3) return { kind: "retry", cause: "network", afterMs: 1_000, errcode: undefined };
      return { kind: "ok", value: true };
    };
    const [outside, own] = [await admit("q1", "r", T0, SENDER), await admit("q2", "s")];
    harness.worker().start();
    await harness.until(() => outside.outcome !== undefined && own.outcome !== undefined);
    assert.deepEqual([outside.outcome?.reason, own.outcome?.reason, tries], ["answered", "answered", 3]);
    assert.equal(agent.requests.filter(({ operation }) => operation === "send").length, 2);
  });

  it("a question is denied, without a limiter token or a token request, when the card is untrusted [DEL-2]", async (t) => {
    const issuer = await startTestIssuer(t);
    const credentials = { tokenEndpoint: issuer.tokenEndpoint, clientId: "a", clientSecret: SECRET };
    const { agent, harness, admit, limiterTokens } = await setUpDelegation(t, {
      harness: { entry: { credentials } },
    });
    harness.trust = { trust: "quarantined", reason: "agent_card_untrusted" };
    const row = await admit();
    harness.worker().start();
    await harness.until(() => row.outcome !== undefined);
    assert.deepEqual(row.outcome, {
      state: "denied",
      stage: "agent_card",
      reason: "agent_card_untrusted",
      notice: "delegation_stopped",
    });
    assert.equal(row.a2aAttempted, false);
    assert.deepEqual(
      [agent.requests.length, issuer.requests.length, await limiterTokens()],
      [0, 0, undefined],
    );
  });

  it("a question stops before the limiter when trust is lost while the issuer answers [DEL-2]", async (t) => {
    const issuer = await startTestIssuer(t);
    const credentials = { tokenEndpoint: issuer.tokenEndpoint, clientId: "a", clientSecret: SECRET };
    const { agent, harness, admit, limiterTokens } = await setUpDelegation(t, {
      harness: { entry: { credentials } },
    });
    let answer = () => {};
    issuer.gate = new Promise((resolve) => {
      answer = resolve;
    });
    const row = await admit();
    harness.worker().start();
    await harness.until(() => issuer.requests.length === 1, 0);
    harness.trust = { trust: "quarantined", reason: "agent_card_untrusted" };
    answer();
    await harness.until(() => row.outcome !== undefined);
    assert.equal(row.outcome?.reason, "agent_card_untrusted");
    assert.deepEqual([agent.requests.length, await limiterTokens()], [0, undefined]);
  });

  it("the log tells that no token could be had, and that the card names no interface to call [DEL-2]", async (t) => {
    const credentials = { tokenEndpoint: "http://127.0.0.1:1", clientId: "a", clientSecret: SECRET };
    for (const [entry, failure] of [
      [
        { credentials: { ...credentials, clientSecret: { env: "DRAWBRIDGE_SECRET_ABSENT" } } },
        "unauthenticated",
      ],
      [{ allowedOrigins: [] as string[] }, "protocol"],
    ] as const) {
      const { harness, admit } = await setUpDelegation(t, { harness: { entry } });
      const row = await admit();
      harness.worker().start();
      await harness.until(() => row.attempts > 0 || row.outcome !== undefined);
      const lines = harness.logged.map((line) => JSON.parse(line) as { event?: string; failure?: string });
      assert.equal(lines.find(({ event }) => event === "agent_call_failed")?.failure, failure);
    }
  });

  const STOPS: readonly [string, TerminalReason, (harness: Harness) => void][] = [
    [
      "trust",
      "agent_card_untrusted",
      (harness) => {
        harness.trust = { trust: "quarantined", reason: "agent_card_untrusted" };
      },
    ],
    [
      "the agent",
      "agent_removed",
      (harness) => {
        harness.target = undefined;
      },
    ],
    [
      "the sender's right",
      "sender_policy_rejected",
      (harness) => {
        const { target } = harness;
        assert.ok(target);
        harness.target = { ...target, entry: { ...target.entry, allowedSenders: ["@bob:a.test"] } };
      },
    ],
  ];

  for (const [what, reason, stop] of STOPS) {
    it(`a question is not sent again when ${what} is lost while the agent's list is read [DEL-2]`, async (t) => {
      const { agent, harness, admit } = await setUpDelegation(t);
      agent.fault("send", { kind: "reset" });
      agent.fault("list", { kind: "skip", before: () => stop(harness) });
      const row = await admit();
      harness.worker().start();
      await harness.until(() => row.outcome !== undefined);
      assert.equal(row.outcome?.reason, reason);
      assert.deepEqual([agent.requestsOf("list").length, agent.requestsOf("send").length], [1, 1]);
    });
  }

  it("a question whose agent one process does not know yet is tried again, and asked once it does [DEL-2]", async (t) => {
    const { agent, harness, admit } = await setUpDelegation(t);
    const { target } = harness;
    harness.target = undefined;
    const row = await admit();
    harness.worker().start();
    await harness.until(() => row.attempts > 0 || row.outcome !== undefined);
    harness.target = target;
    await harness.until(() => row.outcome !== undefined);
    assert.deepEqual([row.outcome?.reason, agent.requestsOf("send").length], ["answered", 1]);
  });

  it("a question is not sent again when its deadline passes while the agent's list is read", async (t) => {
    const { agent, harness, admit } = await setUpDelegation(t, {
      harness: { limits: { dispatchDeadline: 30_000, agentRequestTimeout: 60_000 } },
    });
    agent.fault("send", { kind: "reset" });
    agent.fault("list", { kind: "skip", before: () => void harness.clock.advance(30_000) });
    const row = await admit();
    harness.worker().start();
    await harness.until(() => row.outcome !== undefined);
    assert.equal(row.outcome?.reason, "dispatch_deadline_exceeded");
    assert.equal(agent.requestsOf("send").length, 1);
  });

  it("no check stands between the limiter and the call [DEL-2]", async (t) => {
    const { agent, harness, admit } = await setUpDelegation(t, { streaming: true });
    await admit();
    const checksBefore: number[] = [];
    harness.onCall = (method) => {
      if (method === "beginDispatch") checksBefore.push(harness.trustChecks, agent.requests.length);
    };
    harness.worker().start();
    await harness.until(() => agent.requests.length > 0, 0);
    assert.deepEqual(checksBefore, [1, 0]);
    assert.deepEqual(harness.calls.slice(0, 2), ["claim", "beginDispatch"]);
  });

  it("a question is denied with rate_limited, without a call, when the bucket is empty", async (t) => {
    const { agent, fixture, harness, admit } = await setUpDelegation(t);
    await fixture.pool.query(
      "INSERT INTO bridge_limiter (bucket, tokens, refilled_at) VALUES ('agent:docs', 0, to_timestamp($1))",
      [T0 / 1_000],
    );
    const row = await admit();
    harness.worker().start();
    await harness.until(() => row.outcome !== undefined);
    assert.deepEqual(row.outcome, {
      state: "denied",
      stage: "limiter",
      reason: "rate_limited",
      notice: "rate_limited",
    });
    assert.equal(agent.requests.length, 0);
  });

  it("a question waits, until its deadline at most, while the card cannot be fetched", async (t) => {
    const { agent, harness, admit } = await setUpDelegation(t);
    const good = harness.trust;
    harness.trust = { trust: "unknown", retryAfterMs: 4_000 };
    const first = await admit("q1", "r1");
    const worker = harness.worker();
    worker.start();
    await harness.until(() => first.attempts === 2);
    harness.trust = good;
    await harness.until(() => first.outcome !== undefined);
    assert.equal(first.outcome?.reason, "answered");

    harness.trust = { trust: "unknown", retryAfterMs: 4_000 };
    const second = await admit("q2", "r2", harness.clock.now());
    worker.wake();
    await harness.until(() => second.outcome !== undefined, 2_000);
    assert.equal(second.outcome?.reason, "agent_unavailable");
    assert.equal(agent.tasksOf(second.a2aMessageId), 0);
  });

  it("a question that waited in its queue for longer than its deadline is tried [DEL-1]", async (t) => {
    const { harness, admit } = await setUpDelegation(t);
    const row = await admit("q1", "r", T0 - 900_000);
    harness.worker().start();
    await harness.until(() => row.outcome !== undefined);
    assert.equal(row.outcome?.reason, "answered");
  });

  it("a question past the deadline that began with its first claim is not sent to the agent", async (t) => {
    const { agent, fixture, harness, admit } = await setUpDelegation(t);
    const row = await admit();
    await fixture.claimOne({ holder: "dead" });
    await harness.clock.advance(600_000);
    harness.worker().start();
    await harness.until(() => row.outcome !== undefined);
    assert.deepEqual(row.outcome, {
      state: "failed",
      stage: "dispatch",
      reason: "dispatch_deadline_exceeded",
      notice: "delegation_failed",
    });
    assert.equal(agent.requests.length, 0);
  });

  it("a question redacted before its claim ends canceled, without a notice or a call [INT-6]", async (t) => {
    const { agent, fixture, harness, admit, redact } = await setUpDelegation(t);
    const row = await admit();
    const claimed = await fixture.claim({ holder: "dead" });
    await redact(row);
    await fixture.ledger.delegations.release(
      claimed.map(({ lease }) => lease),
      T0,
    );
    harness.worker().start();
    await harness.until(() => row.outcome !== undefined);
    assert.deepEqual(row.outcome, { state: "canceled", stage: "dispatch", reason: "source_redacted" });
    assert.equal(agent.requests.length, 0);
  });

  it("a sender, and the users of a server, are refused with a notice once their tokens are used up [DEL-2]", async (t) => {
    for (const [limit, reason] of [
      ["senderRate", "sender_rate_limited"],
      ["serverRate", "server_rate_limited"],
    ] as const) {
      const { agent, harness, admit } = await setUpDelegation(t, {
        harness: { limits: { [limit]: { perMinute: 1, burst: 1 } } },
      });
      const [first, second] = [await admit("q1"), await admit("q2")];
      const worker = harness.worker();
      worker.start();
      await harness.until(() => first.outcome !== undefined && second.outcome !== undefined);
      assert.equal(first.outcome?.reason, "answered");
      assert.deepEqual(second.outcome, { state: "denied", stage: "limiter", reason, notice: "rate_limited" });
      assert.equal(agent.behaviour.started.length, 1);
      await worker.drain();
    }
  });
});
