// What people cancel by a command or a reaction; and conversations that are continued.
import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { DelegationWorker } from "../../../../src/bridge/delegation/worker.ts";
import { createOperations } from "../../../../src/bridge/ledger/operator-commands.ts";
import { conversation, DOCS, lastSent } from "../../../support/conversation.ts";
import { type DelegationSetUp, delegationSuite } from "../../../support/delegation-suite.ts";
import { completes, type Plan } from "../../../support/fault-agent-behaviour.ts";

const INPUT_REQUIRED = {
  kind: "input_required",
  questions: ["Which size?"],
  options: ["small", { id: "2", label: "large" }],
} as const;
const SLOW = { kind: "slow", text: "at last" } as const;
const ANSWERS = completes("the answer");

function personOf({ fixture, harness }: DelegationSetUp) {
  const { directory, clock } = harness.deps;
  const said = conversation({ ledger: fixture.ledger, directory, clock });
  return { ...said, lastSent: (purpose: string) => lastSent(fixture, purpose) };
}

describe("a conversation", () => {
  const setUpDelegation = delegationSuite();
  async function setUp(t: TestContext, plan: Plan = INPUT_REQUIRED) {
    const made = await setUpDelegation(t);
    made.agent.behaviour.plan = plan;
    const row = await made.admit();
    const person = personOf(made);
    const worker = made.harness.worker();
    const notices = async () =>
      (
        await made.fixture.rows(
          "SELECT kind, reason, source_event_id AS source FROM bridge_notices ORDER BY id",
        )
      ).map(({ kind, reason, source }) => [kind, reason, source].filter((each) => each !== null).join(" "));
    const asked = async () => {
      worker.start();
      const { until, returned } = made.harness;
      await until(() => row.state === "awaiting_input" && returned.includes("recordAsked"));
      return await person.lastSent("question");
    };
    return { ...made, ...person, row, worker, notices, asked };
  }

  type Made = Awaited<ReturnType<typeof setUp>>;
  /** The homeserver does not answer the first request to send. */
  async function begun(t: TestContext, plan: Plan) {
    const made = await setUp(t, plan);
    const { deps } = made.harness;
    let requests = 0;
    const send: typeof deps.sender.send = async (event) => {
      requests += 1;
      if (requests > 1) return await deps.sender.send(event);
      await deps.ledger.recordAttempt(event.sendId, deps.clock.now());
      return { kind: "retry", afterMs: 1_000 };
    };
    return { ...made, deps: { ...deps, sender: { send } } };
  }

  const WAYS: readonly [string, (made: Made, question: string) => Promise<unknown>][] = [
    [
      "!cancel in reply to the agent's question",
      ({ say }, question) => say("c", "!cancel", { replyTo: question }),
    ],
    ["!cancel in reply to one's own question", ({ say }) => say("c", "!cancel", { replyTo: "$q1" })],
    ["!cancel in the thread of one's own question", ({ say }) => say("c", "!cancel", { thread: "$q1" })],
    [
      "!cancel after a mention",
      ({ say }, question) => say("c", `${DOCS}: !cancel`, { replyTo: question, mentions: [DOCS] }),
    ],
    ["the reaction ❌ to the agent's question", ({ react }, question) => react("c", question, "❌\u{fe0f}")],
  ];
  for (const [way, cancel] of WAYS) {
    it(`is canceled at the agent by ${way}, and the person is told once [DEL-6]`, async (t) => {
      const made = await setUp(t);
      const { agent, harness, row, worker, notices, asked } = made;
      const question = await asked();
      await cancel(made, question);
      assert.deepEqual(await notices(), [], "nothing is said before the end");
      worker.wake();
      await harness.until(() => row.outcome !== undefined);
      assert.partialDeepStrictEqual(row.outcome, {
        state: "canceled",
        stage: "follow",
        reason: "sender_canceled",
      });
      assert.equal(agent.behaviour.canceled.length, 1);
      assert.deepEqual(await notices(), ["delegation_canceled sender_canceled $q1"]);
    });
  }

  it("is canceled while the agent works, and while the question waits for its turn [DEL-6]", async (t) => {
    const { agent, harness, row, worker, admit, say } = await setUp(t, SLOW);
    const waiting = await admit("q2");
    await say("c2", "!cancel", { replyTo: "$q2" });
    worker.start();
    await harness.until(() => row.state === "following");
    const { canceled } = await say("c1", "!cancel", { replyTo: "$q1" });
    assert.deepEqual(canceled, [row.id]);
    for (const id of canceled) worker.cancel(id);
    await harness.until(() => row.outcome !== undefined && waiting.outcome !== undefined);
    assert.equal(row.outcome?.reason, "sender_canceled");
    assert.partialDeepStrictEqual(waiting.outcome, { stage: "intake", reason: "sender_canceled" });
    assert.equal(agent.behaviour.canceled.length, 1);
  });

  it("is canceled by a reply to it, and not a later one that stands in its thread [DEL-6]", async (t) => {
    const { harness, row, worker, say, fixture } = await setUp(t, SLOW);
    await say("later", "and more?", { thread: "$q1", mentions: [DOCS] });
    worker.start();
    await harness.until(() => row.state === "following");
    const { canceled } = await say("c1", "!cancel", { replyTo: "$q1" });
    assert.deepEqual(canceled, [row.id]);
    await harness.until(() => row.outcome !== undefined);
    const bob = { sender: "@bob:a.test" };
    await say("bobs", "and this?", { ...bob, thread: "$q1", mentions: [DOCS] });
    for (const [name, by] of [
      ["again", {}],
      ["not-his", bob],
    ] as const) {
      const said = await say(name, "!cancel", { ...by, replyTo: "$q1" });
      assert.deepEqual(said.canceled, [], "it has ended, and was not Bob's");
    }
    const waiting = "SELECT sender_mxid AS by FROM bridge_delegations WHERE terminal_at IS NULL ORDER BY id";
    assert.deepEqual(await fixture.rows(waiting), [{ by: "@alice:a.test" }, { by: bob.sender }]);
    assert.equal((await say("c2", "!cancel", { thread: "$q1" })).canceled.length, 1);
    const wishes = await fixture.rows(
      "SELECT 1 FROM bridge_delegations WHERE cancel_requested_at IS NOT NULL",
    );
    assert.equal(wishes.length, 2);
  });

  it("is canceled by the person who asked alone; others, and who comes too late, get one polite notice [DEL-6]", async (t) => {
    const { harness, row, worker, say, react, notices, asked } = await setUp(t);
    const question = await asked();
    await say("c1", "!cancel", { sender: "@bob:a.test", replyTo: question });
    await react("c2", question, "❌", "@bob:a.test");
    assert.deepEqual(await notices(), ["cancel_refused not_the_asker $c1"]);
    assert.equal(row.state, "awaiting_input");
    await say("answer", "large", { replyTo: question });
    worker.wake();
    await harness.until(() => row.outcome !== undefined);
    await harness.clock.advance(1_200_000);
    await say("c3", "!cancel", { replyTo: question });
    await say("c4", "!cancel", { replyTo: question });
    await react("c5", "$q1", "❌");
    assert.deepEqual((await notices()).slice(1), ["cancel_refused already_ended $c3"]);
    assert.equal(row.outcome?.reason, "answered");
  });

  it("is told of once when it is canceled while it waits for its turn [DEL-6] [NOT-1]", async (t) => {
    const { say, notices, fixture } = await setUp(t);
    await say("c", "!cancel", { replyTo: "$q1" });
    const ended = await fixture.rows("SELECT terminal_reason FROM bridge_delegations");
    assert.deepEqual(ended, [{ terminal_reason: "sender_canceled" }]);
    assert.deepEqual(await notices(), ["delegation_canceled sender_canceled $q1"]);
  });

  it("is announced in its thread when an operator cancels it, at work or waiting [DEL-6] [OPS-1]", async (t) => {
    const { fixture, harness, worker, say } = await setUp(t, SLOW);
    await fixture.rows("UPDATE bridge_delegations SET thread_root = '$root'");
    await say("q2", "another", { thread: "$root", mentions: [DOCS] });
    worker.start();
    const open = "SELECT id::text FROM bridge_delegations WHERE state = 'following'";
    await harness.until(async () => (await fixture.rows(open)).length === 2);
    await say("q3", "a third", { thread: "$root", mentions: [DOCS] });
    await worker.drain();
    const operations = createOperations(fixture.pool, 600_000);
    const all = await operations.delegations(harness.clock.now());
    const results = [];
    for (const { id } of all) results.push(await operations.cancelDelegation(id, harness.clock.now()));
    assert.deepEqual(results, ["requested", "requested", "ended"]);
    const said =
      "SELECT kind, reason, thread_root, source_event_id AS source FROM bridge_notices ORDER BY source";
    const notice = { kind: "delegation_stopped", reason: "operator_canceled", thread_root: "$root" };
    assert.deepEqual(await fixture.rows(said), [{ ...notice, source: "$q3" }]);
    harness.worker("two").start();
    await harness.until(async () => (await fixture.rows(said)).length === 3);
    assert.deepEqual(
      await fixture.rows(said),
      ["$q1", "$q2", "$q3"].map((source) => ({ ...notice, source })),
    );
  });

  for (const streaming of [true, false]) {
    it(`is canceled at the agent when its first call is in flight (${streaming ? "stream" : "request"}) [DEL-6] [INT-6]`, async (t) => {
      const { agent, harness, fixture, admit } = await setUpDelegation(t, { streaming });
      agent.behaviour.plan = SLOW;
      const row = await admit();
      const answered = Promise.withResolvers<void>();
      const { http } = harness.deps;
      const slow: typeof http.fetch = async (...request) => {
        const response = await http.fetch(...request);
        await answered.promise;
        return response;
      };
      const worker = new DelegationWorker({ ...harness.deps, http: { ...http, fetch: slow } });
      worker.start();
      await harness.until(() => agent.behaviour.started.length === 1, 0);
      const { say } = personOf({ agent, harness, fixture, admit } as DelegationSetUp);
      for (const id of (await say("c", "!cancel", { replyTo: "$q1" })).canceled) worker.cancel(id);
      answered.resolve();
      await harness.until(() => row.outcome !== undefined, 0);
      assert.equal(row.outcome?.reason, "sender_canceled");
      assert.equal(agent.behaviour.canceled.length, 1);
      assert.deepEqual(harness.sent, []);
      await worker.drain();
    });
  }

  it("ends within seconds when the agent does not answer its first call [DEL-6]", async (t) => {
    const { agent, harness, fixture, admit } = await setUpDelegation(t, {
      harness: { limits: { agentRequestTimeout: 60_000 } },
    });
    agent.fault("send", { kind: "hang" });
    const row = await admit();
    const worker = harness.worker();
    worker.start();
    await harness.until(() => agent.requestsOf("send").length === 1, 0);
    const since = harness.clock.now();
    const { say } = personOf({ agent, harness, fixture, admit } as DelegationSetUp);
    for (const id of (await say("c", "!cancel", { replyTo: "$q1" })).canceled) worker.cancel(id);
    await harness.until(() => row.outcome !== undefined);
    assert.equal(row.outcome?.reason, "sender_canceled");
    assert.ok(harness.clock.now() - since <= 20_000, `${harness.clock.now() - since} ms`);
  });

  for (const [sent, reason] of [
    [true, "answered"],
    [false, "sender_canceled"],
  ] as const) {
    it(`ends as ${reason} when it is canceled while its answer is sent, which ${sent ? "succeeds" : "fails"} [DEL-6]`, async (t) => {
      const made = await setUpDelegation(t);
      const { harness, admit, fixture } = made;
      const row = await admit();
      const inFlight = Promise.withResolvers<void>();
      let sends = 0;
      const { sender } = harness.deps;
      const send: typeof sender.send = async (event) => {
        sends += 1;
        await inFlight.promise;
        return sent ? await sender.send(event) : { kind: "retry", afterMs: 1_000 };
      };
      const worker = new DelegationWorker({ ...harness.deps, sender: { send } });
      worker.start();
      await harness.until(() => sends === 1);
      for (const id of (await personOf(made).say("c", "!cancel", { replyTo: "$q1" })).canceled)
        worker.cancel(id);
      await harness.until(() => true, 0);
      const early: unknown = row.outcome;
      assert.equal(early, undefined, "what is in flight could follow the notice");
      inFlight.resolve();
      await harness.until(() => row.outcome !== undefined, 0);
      assert.equal(row.outcome?.reason, reason);
      assert.equal(sends, 1);
      const notices = await fixture.rows("SELECT 1 FROM bridge_notices WHERE kind = 'delegation_canceled'");
      assert.equal(notices.length, sent ? 0 : 1);
      await worker.drain();
    });
  }

  for (const [way, cancel] of [
    ["canceled by the person", ({ say }: Made) => say("c", "!cancel", { replyTo: "$q1" })],
    ["redacted", ({ redact, row }: Made) => redact(row)],
  ] as const) {
    it(`ends as answered when its answer is in the room, the process died before it recorded that, and it was ${way} then [DEL-6] [DEL-4]`, async (t) => {
      const made = await setUp(t, ANSWERS);
      const { harness, row, notices, fixture } = made;
      const first = harness.mortal("first");
      first.onWrite = (method, when) => {
        if (method === "finish" && when === "before") void first.kill();
      };
      first.worker.start();
      await harness.until(() => harness.sent.length === 1);
      await cancel(made);
      harness.worker("two").start();
      await harness.until(() => row.outcome !== undefined, 1_000);
      assert.equal(row.outcome?.reason, "answered");
      assert.deepEqual(await notices(), []);
      const [before, again, ...more] = harness.sent;
      assert.equal(again?.transactionId, before?.transactionId);
      assert.deepEqual(more, []);
      assert.deepEqual(
        await fixture.rows("SELECT state, content FROM bridge_sends WHERE purpose = 'reply'"),
        [{ state: "sent", content: null }],
      );
    });
  }

  for (const [what, result, expected] of [
    ["the homeserver has it", undefined, "answered"],
    ["the homeserver refuses it", { kind: "refused", reason: "room_unreachable" }, "sender_canceled"],
  ] as const) {
    it(`tries an answer again that the homeserver did not answer, when it was canceled then: ${expected} when ${what} [DEL-6]`, async (t) => {
      const { harness, row, say, notices, deps } = await begun(t, ANSWERS);
      const worker = new DelegationWorker(deps);
      worker.start();
      await harness.until(() => row.state === "reply_pending" && row.dueAt > harness.clock.now());
      if (result !== undefined) harness.sendResults.push(result);
      await say("c", "!cancel", { replyTo: "$q1" });
      worker.wake();
      await harness.until(() => row.outcome !== undefined);
      assert.equal(row.outcome?.reason, expected);
      const notified = expected === "answered" ? [] : ["delegation_canceled sender_canceled $q1"];
      assert.deepEqual(await notices(), notified);
      await worker.drain();
    });
  }

  it("begins no further part of an answer when it was canceled, and waits for the one that was begun [DEL-6]", async (t) => {
    const long = "A paragraph of the answer.\n\n".repeat(4_000);
    const { harness, row, say, fixture, deps, notices } = await begun(t, completes(long));
    const worker = new DelegationWorker(deps);
    worker.start();
    await harness.until(() => row.state === "reply_pending" && row.dueAt > harness.clock.now());
    await say("c", "!cancel", { replyTo: "$q1" });
    worker.wake();
    await harness.until(() => row.outcome !== undefined);
    assert.equal(row.outcome?.reason, "sender_canceled");
    assert.deepEqual(await notices(), ["delegation_canceled sender_canceled $q1"]);
    const [first, ...others] = await fixture.rows("SELECT state, content FROM bridge_sends ORDER BY ordinal");
    assert.deepEqual(first, { state: "sent", content: null });
    assert.ok(others.length > 1);
    assert.ok(others.every(({ state, content }) => state === "abandoned" && content === null));
    assert.equal(row.replyEventId, "$sent1");
    await worker.drain();
  });

  it("is canceled at the agent when the process died before it knew the task [DEL-6] [DEL-7]", async (t) => {
    const { agent, harness, row, say } = await setUp(t, SLOW);
    const mortal = harness.mortal();
    let isDead = false;
    mortal.onWrite = (method, when) => {
      if (method !== "recordAccepted" || when !== "before" || isDead) return;
      isDead = true;
      void mortal.kill();
    };
    mortal.worker.start();
    await harness.until(() => isDead);
    await say("c", "!cancel", { replyTo: "$q1" });
    harness.worker("two").start();
    await harness.until(() => row.outcome !== undefined, 1_000);
    assert.equal(row.outcome?.reason, "sender_canceled");
    assert.equal(agent.behaviour.canceled.length, 1);
  });

  it("leaves a task that ended to its end when it is canceled too late [DEL-6]", async (t) => {
    const { agent, harness, row, worker, react, asked } = await setUp(t);
    const question = await asked();
    agent.fault("cancel", { kind: "status", status: 409 });
    await react("c", question, "❌");
    worker.wake();
    await harness.until(() => row.outcome !== undefined);
    assert.equal(row.outcome?.reason, "sender_canceled");
    assert.equal(agent.requestsOf("cancel").length, 1, "the refusal is no reason to try again");
  });

  for (const [key, chosen] of [
    ["1\u{fe0f}\u{20e3}", "small"],
    ["2\u{20e3}", "large"],
  ] as const) {
    it(`takes the reaction ${key} for the option with this key [DEL-6]`, async (t) => {
      const { harness, row, worker, react, asked } = await setUp(t);
      const question = await asked();
      assert.match(
        String(harness.sent[0]?.content["body"]),
        /- 1\u{fe0f}\u{20e3} small\n- 2\u{fe0f}\u{20e3} large/u,
      );
      assert.equal((await react("other", question, "👍")).answers, 0);
      assert.equal((await react("bob", question, key, "@bob:a.test")).answers, 0);
      assert.equal((await react("chosen", question, key)).answers, 1);
      worker.wake();
      await harness.until(() => row.outcome !== undefined);
      assert.equal(harness.sent.at(-1)?.content["body"], chosen);
    });
  }

  it("takes the reaction ❌ for the option with this key, where the question has one [DEL-6]", async (t) => {
    const options = [
      { key: "✅", label: "yes" },
      { key: "❌", label: "no" },
    ];
    const { harness, row, worker, react, asked } = await setUp(t, { ...INPUT_REQUIRED, options });
    const question = await asked();
    assert.equal((await react("bob", question, "❌", "@bob:a.test")).answers, 0);
    assert.equal((await react("no", question, "❌")).answers, 1);
    worker.wake();
    await harness.until(() => row.outcome !== undefined);
    assert.deepEqual([row.outcome?.reason, harness.sent.at(-1)?.content["body"]], ["answered", "no"]);
  });

  it("offers no options of which two have what counts as one key, and takes the text as it is [DEL-6]", async (t) => {
    const options = [
      { key: "a", label: "small" },
      { key: "A", label: "large" },
    ];
    const { harness, row, worker, say, asked } = await setUp(t, { ...INPUT_REQUIRED, options });
    const question = await asked();
    assert.doesNotMatch(String(harness.sent[0]?.content["body"]), /- A large/);
    await say("answer", "A", { replyTo: question });
    worker.wake();
    await harness.until(() => row.outcome !== undefined);
    assert.equal(harness.sent.at(-1)?.content["body"], "A");
  });

  it("takes a text that is the key of an option for the option, and any other text as it is [DEL-6]", async (t) => {
    for (const [text, chosen] of [
      ["1", "small"],
      ["neither", "neither"],
    ] as const) {
      const { harness, row, worker, say, asked } = await setUp(t);
      await say("answer", text, { replyTo: await asked() });
      worker.wake();
      await harness.until(() => row.outcome !== undefined);
      assert.equal(harness.sent.at(-1)?.content["body"], chosen);
      await worker.drain();
    }
  });

  it("goes on in the agent's context by a reply or in a thread, for a limited time, and nowhere else [DEL-6]", async (t) => {
    const { agent, harness, row, worker, say } = await setUp(t);
    agent.behaviour.plan = { kind: "complete", artifacts: [["the answer"]] };
    worker.start();
    await harness.until(() => row.outcome !== undefined);
    const [answer] = harness.sent.map((_, index) => `$sent${index + 1}`);
    const ask = async (name: string, said: Parameters<typeof say>[2]) => {
      const before = agent.behaviour.addressed.length;
      await say(name, "and then?", { ...said, mentions: [DOCS] });
      worker.wake();
      await harness.until(() => agent.behaviour.addressed.length > before);
      return agent.behaviour.addressed.at(-1)?.contextId;
    };
    const [first] = agent.behaviour.addressed.map(({ contextId }) => contextId);
    assert.ok(first);
    assert.notEqual(await ask("fresh", {}), first);
    assert.equal(await ask("reply", { replyTo: answer ?? "" }), first);
    assert.equal(await ask("thread", { thread: "$q1" }), first);
    const bob = { sender: "@bob:a.test" };
    // Whoever came later may not have read what was said before, and would be told it by the agent.
    const own = await ask("bob", { ...bob, thread: "$q1" });
    assert.notEqual(own, first, "the conversation of somebody else");
    assert.notEqual(await ask("bob2", { ...bob, replyTo: answer ?? "" }), first);
    assert.equal(await ask("bob3", { ...bob, thread: "$q1" }), own);
    assert.equal(await ask("thread2", { thread: "$q1" }), first, "though somebody else asked there last");
    assert.notEqual(await ask("elsewhere", { replyTo: answer ?? "", room: "!other" }), first);
    assert.equal(
      new Set(agent.behaviour.addressed.map(({ taskId }) => taskId)).size,
      9,
      "each is a task of its own",
    );
    await harness.clock.advance(86_400_001);
    assert.notEqual(await ask("late", { replyTo: answer ?? "" }), first);
  });
});
