// Questions from the agent, and the answers of the people who asked it.

import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { DelegationWorker } from "../../../../src/bridge/delegation/worker.ts";
import { aboutOf, interpretMessages } from "../../../../src/bridge/intake/interpret-messages.ts";
import type { MessageEvent } from "../../../../src/bridge/intake/read-events.ts";
import type { PendingSend } from "../../../../src/bridge/ledger/replies.ts";
import { TRANSACTION_KEY } from "../../../../src/bridge/ledger/transaction-ids.ts";
import type { AgentId, EventId } from "../../../../src/domain/identifiers.ts";
import { DOCS, NAMESPACE } from "../../../support/conversation.ts";
import { databaseText } from "../../../support/database.ts";
import { delegationSuite } from "../../../support/delegation-suite.ts";
import { T0 } from "../../../support/ledger.ts";
import { agentQuestions, INPUT_REQUIRED, personOf } from "./asking-agent.ts";

describe("a question from the agent", () => {
  const setUpDelegation = delegationSuite();
  const setUp = agentQuestions(setUpDelegation);

  for (const streaming of [true, false]) {
    const how = streaming ? "streamed" : "polled";

    it(`is posted to the person who asked, and the answer goes on in the same task, in two rounds (${how}) [DEL-6]`, async (t) => {
      const { agent, harness, row, say, lastSent, bodies, fixture } = await setUp(t, { streaming });
      const arePosted = async (count: number) =>
        (await fixture.rows("SELECT 1 FROM bridge_sends WHERE event_id IS NOT NULL")).length === count;
      const worker = harness.worker();
      worker.start();
      await harness.until(() => arePosted(1));
      assert.match(bodies()[0] ?? "", /^Which size\?\n\nReply to this message/);
      assert.deepEqual(harness.sent[0]?.content["m.mentions"], { user_ids: ["@alice:a.test"] });
      const answered = await say("size", "large", { replyTo: await lastSent("question") });
      assert.deepEqual([answered.answers, answered.admitted], [1, 0]);
      worker.wake();
      await harness.until(() => arePosted(2));
      assert.match(bodies()[1] ?? "", /^Which colour\?/);
      await say("colour", "blue", { replyTo: await lastSent("question") });
      worker.wake();
      await harness.until(() => row.outcome !== undefined);
      assert.deepEqual(row.outcome, { state: "completed", stage: "reply", reason: "answered" });
      assert.equal(bodies()[2], "large and blue");
      const [, second, third] = agent.behaviour.addressed;
      assert.ok(second?.taskId);
      assert.equal(third?.taskId, second.taskId);
      const [kept] = await fixture.rows(
        "SELECT a2a_task_id AS task, question_key AS key FROM bridge_delegations",
      );
      assert.deepEqual(kept, { task: null, key: null }, "what the agent named is cleared");
      assert.equal(new Set(agent.behaviour.started).size, 3);
    });
  }

  it("a question that the homeserver brings and the person answers while it is sent again goes on at once [DEL-6]", async (t) => {
    const { harness, row, events, say, bodies } = await setUp(t);
    const { deps } = harness;
    let requests = 0;
    const send: typeof deps.sender.send = async (event) => {
      requests += 1;
      if (requests === 1) {
        await deps.ledger.recordAttempt(event.sendId, deps.clock.now());
        return { kind: "retry", afterMs: 1_000 };
      }
      if (requests === 2) {
        const content = { ...event.content, [TRANSACTION_KEY]: event.transactionId };
        const common = { type: "m.room.message", room_id: "!r", origin_server_ts: T0 };
        await events({ ...common, event_id: "$posted", sender: DOCS, content });
        await say("size", "large", { replyTo: "$posted" });
      }
      return await deps.sender.send(event);
    };
    const worker = new DelegationWorker({
      ...deps,
      sender: { send: (event) => harness.during(send(event)) },
    });
    worker.start();
    await harness.until(() => requests === 1);
    const from = harness.clock.now();
    await harness.until(() => bodies().some((body) => body.startsWith("Which colour?")));
    assert.ok(
      harness.clock.now() - from < 10_000,
      `${harness.clock.now() - from} ms: no lease had to run out`,
    );
    assert.equal(harness.metrics.count("leaseLost"), 0);
    assert.equal(bodies().length, 1, "the first one was not sent again");
    assert.equal(row.state, "awaiting_input");
    await worker.drain();
  });

  it("says which files of the agent are not shown [DEL-6]", async (t) => {
    const { agent, harness, row, bodies, isPosted } = await setUp(t);
    const file = { raw: "JVBERi0=", mediaType: "application/pdf", filename: "plan.pdf" };
    const message = { messageId: "m", role: "ROLE_AGENT", parts: [{ text: "Is it this one?" }, file] };
    const task = { id: "t", contextId: "c", status: { state: "TASK_STATE_INPUT_REQUIRED", message } };
    const body = JSON.stringify({ jsonrpc: "2.0", id: 1, result: { task } });
    agent.fault("send", { kind: "garbage", type: "application/json", body });
    harness.worker().start();
    await harness.until(isPosted);
    assert.equal(row.state, "awaiting_input");
    assert.match(
      bodies()[0] ?? "",
      /^Is it this one\?\n\nplan\.pdf \(application\/pdf\), 5 bytes: sent as a file/,
    );
  });

  it("holds neither its room nor a worker, and several stay separate [DEL-6]", async (t) => {
    const { harness, row, admit, say, fixture, bodies } = await setUp(t);
    const other = await admit("q2");
    const worker = harness.worker("one", { concurrency: 1 });
    worker.start();
    await harness.until(() => [row, other].every(({ state }) => state === "awaiting_input"));
    await harness.until(
      async () => (await fixture.rows("SELECT 1 FROM bridge_sends WHERE event_id IS NOT NULL")).length === 2,
    );
    const asked = await fixture.rows(
      `SELECT s.event_id AS event FROM bridge_sends s JOIN bridge_delegations d ON d.id = s.delegation_id ORDER BY d.id`,
    );
    await say("a2", "second", { replyTo: String(asked[1]?.["event"]) });
    await say("a1", "first", { replyTo: String(asked[0]?.["event"]) });
    await harness.until(
      async () => (await fixture.rows("SELECT 1 FROM bridge_sends WHERE event_id IS NOT NULL")).length === 4,
    );
    const next = await fixture.rows(
      `SELECT d.matrix_event_id AS source, s.event_id AS event FROM bridge_sends s
       JOIN bridge_delegations d ON d.id = s.delegation_id WHERE s.ordinal = 1 ORDER BY d.id`,
    );
    assert.deepEqual(
      next.map((one) => one["source"]),
      ["$q1", "$q2"],
    );
    for (const one of next) await say(`again-${one["source"]}`, "x", { replyTo: String(one["event"]) });
    await harness.until(() => row.outcome !== undefined && other.outcome !== undefined);
    assert.deepEqual(bodies().slice(4).sort(), ["first and x", "second and x"]);
  });

  it("is answered by the person who asked the agent alone, and once [DEL-6]", async (t) => {
    const { harness, row, say, lastSent, fixture } = await setUp(t);
    harness.worker().start();
    await harness.until(() => row.state === "awaiting_input" && harness.sent.length === 1);
    await harness.until(
      async () => (await fixture.rows("SELECT 1 FROM bridge_sends WHERE event_id IS NOT NULL")).length === 1,
    );
    const question = await lastSent("question");
    const others = await say("bob", "mine", { sender: "@bob:a.test", replyTo: question });
    assert.deepEqual([others.answers, others.admitted], [0, 1]);
    assert.equal((await say("elsewhere", "no", { room: "!other", replyTo: question })).answers, 0);
    assert.equal((await say("first", "large", { replyTo: question })).answers, 1);
    assert.equal((await say("second", "small", { replyTo: question })).answers, 0);
  });

  it("is answered by the first of a reply and a reaction that come together [DEL-6]", async (t) => {
    const { agent, harness, isPosted, events, lastSent, fixture, row } = await setUp(t);
    agent.behaviour.plan = { ...INPUT_REQUIRED, options: ["small", "large"] };
    harness.worker().start();
    await harness.until(isPosted);
    const event_id = await lastSent("question");
    const common = { room_id: "!r", origin_server_ts: T0, sender: "@alice:a.test" };
    const replied = { msgtype: "m.text", body: "medium", "m.relates_to": { "m.in_reply_to": { event_id } } };
    const reacted = { "m.relates_to": { rel_type: "m.annotation", event_id, key: "1️⃣" } };
    await events(
      { ...common, type: "m.room.message", event_id: "$reply", content: replied },
      { ...common, type: "m.reaction", event_id: "$reaction", content: reacted },
    );
    const answers = await fixture.rows(
      "SELECT answer_event_id AS event FROM bridge_delegations WHERE id = $1",
      [row.id],
    );
    assert.deepEqual(answers, [{ event: "$reply" }]);
  });

  it("is answered neither by what is said to an earlier one, nor in its thread before it was posted [DEL-6]", async (t) => {
    const { agent, harness, fixture, events, say, react, lastSent } = await setUp(t);
    agent.behaviour.plan = { ...INPUT_REQUIRED, options: ["small", "large"] };
    const { deps } = harness;
    const { send } = deps.sender;
    const held: PendingSend[] = [];
    deps.sender.send = async (event) => {
      if (event.ordinal === 0) return await send(event);
      await deps.ledger.recordAttempt(event.sendId, deps.clock.now());
      held.push(event);
      return { kind: "retry", afterMs: 60_000 };
    };
    const worker = harness.worker();
    worker.start();
    await harness.until(
      async () => (await fixture.rows("SELECT 1 FROM bridge_sends WHERE event_id IS NOT NULL")).length === 1,
    );
    const first = await lastSent("question");
    assert.equal((await react("chosen", first, "2️⃣")).answers, 1);
    worker.wake();
    await harness.until(() => held.length === 1);
    assert.equal((await react("corrected", first, "1️⃣")).answers, 0);
    const others = [
      await say("reply", "no, small", { replyTo: first }),
      await say("in-thread", "and soon", { thread: "$q1" }),
    ];
    const common = { type: "m.room.message", room_id: "!r", origin_server_ts: T0 };
    const inThread = (name: string, body: string, reply = {}) => ({
      ...{ ...common, event_id: `$${name}`, sender: "@alice:a.test" },
      content: {
        msgtype: "m.text",
        body,
        "m.relates_to": { rel_type: "m.thread", event_id: first, ...reply },
      },
    });
    const toFirst = inThread("to-first", "no, small", { "m.in_reply_to": { event_id: first } });
    const long = { ...inThread("long-before", "thanks"), origin_server_ts: T0 - 600_000 };
    const content = { msgtype: "m.text", body: "Which colour?", [TRANSACTION_KEY]: held[0]?.transactionId };
    const second = { ...common, event_id: "$second", sender: DOCS, content };
    others.push(await events(inThread("before", "thanks"), second, toFirst, long));
    others.push(await events(inThread("after", "blue")));
    assert.deepEqual(
      others.map(({ answers, admitted }) => [answers, admitted]),
      [
        [0, 1],
        [0, 1],
        [0, 3],
        [1, 0],
      ],
    );
  });

  it("is answered by nothing that comes after its cancellation, in the same transaction too [DEL-6] [INT-2]", async (t) => {
    const { harness, events, lastSent, fixture, isPosted } = await setUp(t);
    harness.worker().start();
    await harness.until(isPosted);
    const event_id = await lastSent("question");
    const common = { room_id: "!r", origin_server_ts: T0, sender: "@alice:a.test" };
    const said = (name: string, relation: object) => ({
      ...{ ...common, type: "m.room.message", event_id: `$${name}` },
      content: { msgtype: "m.text", body: name, "m.relates_to": relation },
    });
    const reacted = { "m.relates_to": { rel_type: "m.annotation", event_id, key: "❌" } };
    const done = await events(
      { ...common, type: "m.reaction", event_id: "$cancel", content: reacted },
      said("other", { rel_type: "m.thread", event_id: "$q1" }),
      said("late", { "m.in_reply_to": { event_id } }),
    );
    assert.deepEqual([done.answers, done.admitted, done.canceled.length], [0, 1, 1]);
    const asked = await fixture.rows(
      "SELECT matrix_event_id AS event FROM bridge_delegations WHERE matrix_event_id <> '$q1'",
    );
    assert.deepEqual(asked, [{ event: "$other" }]);
    const told = await fixture.rows("SELECT kind FROM bridge_notices WHERE kind = 'answer_refused'");
    assert.equal(told.length, 1);
  });

  it("is answered in its thread by what was said while no bridge ran, since it died as the question was posted [DEL-6]", async (t) => {
    const { harness, say, isPosted } = await setUp(t);
    const posted = { kind: "sent", eventId: "$asked" as EventId } as const;
    harness.sendResults.push(posted, posted);
    const mortal = harness.mortal();
    let diedAt: number | undefined;
    mortal.onWrite = (method, when) => {
      if (method !== "recordAsked" || when !== "before") return;
      diedAt ??= harness.clock.now();
      void mortal.kill();
    };
    mortal.worker.start();
    await harness.until(() => diedAt !== undefined);
    await harness.clock.advance(600_000);
    harness.worker("next").start();
    await harness.until(isPosted);
    const answer = await say("answer", "large", { thread: "$q1", sentAt: Number(diedAt) + 60_000 });
    assert.deepEqual([answer.answers, answer.admitted], [1, 0]);
  });

  it("goes on waiting where the agents.yaml of a process lacks the agent for a moment, however long it has waited [DEL-9]", async (t) => {
    const { harness, row, isPosted, polls } = await setUp(t);
    harness.worker().start();
    await harness.until(isPosted);
    await harness.until(() => polls() >= 6);
    const { target } = harness;
    harness.target = undefined;
    await harness.until(() => row.attempts === 1 || row.outcome !== undefined);
    assert.equal(row.outcome, undefined);
    harness.target = target;
    const before = polls();
    await harness.until(() => polls() > before);
    assert.equal(row.outcome, undefined);
  });

  it("in a thread is answered in the thread, but not by what mentions another agent [DEL-6]", async (t) => {
    const made = await setUpDelegation(t);
    made.agent.behaviour.plan = INPUT_REQUIRED;
    const { harness, fixture } = made;
    const { say } = personOf(made);
    await say("q", "a question", { thread: "$root", mentions: [DOCS] });
    harness.worker().start();
    await harness.until(() => harness.sent.length === 1);
    assert.partialDeepStrictEqual(harness.sent[0]?.content["m.relates_to"], {
      rel_type: "m.thread",
      event_id: "$root",
    });
    await harness.until(
      async () => (await fixture.rows("SELECT 1 FROM bridge_sends WHERE event_id IS NOT NULL")).length === 1,
    );
    assert.equal(
      (await say("other", "you?", { thread: "$root", mentions: ["@agent_other:a.test"] })).answers,
      0,
    );
    assert.equal((await say("answer", "large", { thread: "$root" })).answers, 1);
  });

  it("is answered by an encrypted event whose key comes late [DEL-6] [ENC-5]", async (t) => {
    const { harness, fixture, bodies, lastSent, admitEnvelope, isPosted } = await setUp(t);
    const worker = harness.worker();
    worker.start();
    await harness.until(isPosted);
    const held = await admitEnvelope("late");
    await harness.clock.advance(60_000);
    const message: MessageEvent = {
      type: "message",
      ...{ event: held.event, room: held.room, sender: held.sender, originServerTs: T0, position: 0 },
      ...{
        msgtype: "m.text",
        body: "large",
        attachment: undefined,
        mentions: [],
        isAutomated: false,
      },
      ...{ threadRoot: undefined, inReplyTo: (await lastSent("question")) as EventId, sentAs: undefined },
      replaces: undefined,
      indexDigest: Buffer.alloc(32, 1),
    };
    const { byGhost } = await harness.deps.directory.current();
    const asked = {
      ...{ candidates: [message], reactions: [], waiting: [], deadline: 0 },
      ...{ plainInEncrypted: false, contextSince: 0 },
    };
    const { answers, admitted } = await fixture.ledger.envelopes.derive(
      held,
      {
        about: aboutOf([message]),
        derive: (known) => interpretMessages(asked, known, byGhost, NAMESPACE),
        capacity: { roomQueue: 64, globalQueue: 4_096 },
      },
      harness.clock.now(),
    );
    assert.deepEqual([answers, admitted], [1, 0]);
    worker.wake();
    await harness.until(() => harness.sent.length === 2);
    assert.match(bodies()[1] ?? "", /^Which colour\?/);
    assert.deepEqual(await fixture.rows("SELECT matrix_event_id AS event FROM bridge_megolm_indices"), [
      { event: held.event },
    ]);
    assert.deepEqual(await fixture.rows("SELECT state, jobs FROM bridge_encrypted_intake"), [
      { state: "derived", jobs: 0 },
    ]);
  });

  const STEPS: readonly [
    string,
    (method: string, when: "before" | "after", isAnswered: boolean) => boolean,
  ][] = [
    [
      "recording the question and sending it",
      (method, when) => method === "recordQuestion" && when === "after",
    ],
    ["the answer's admission and its claim", (method, _, isAnswered) => isAnswered && method === "claim"],
    [
      "beginning the dispatch and continuing the task",
      (method, when, isAnswered) => isAnswered && method === "beginDispatch" && when === "after",
    ],
    ["recording the reply and sending it", (method, when) => method === "recordReply" && when === "after"],
    ["sending the reply and ending", (method, when) => method === "finish" && when === "before"],
  ];
  for (const [step, isHere] of STEPS) {
    it(`loses and repeats nothing when its process is killed between ${step} [DEL-6] [DEL-9]`, async (t) => {
      const { agent, fixture, harness, row, say, lastSent, bodies } = await setUp(t);
      agent.behaviour.plan = { kind: "input_required", questions: ["Which size?"] };
      let [isAnswered, isDead] = [false, false];
      const mortal = harness.mortal();
      mortal.onWrite = (method, when) => {
        if (isDead || !isHere(method, when, isAnswered)) return;
        isDead = true;
        void mortal.kill();
      };
      mortal.worker.start();
      const next = harness.worker("next");
      const until = (holds: () => boolean | Promise<boolean>) =>
        harness.until(() => {
          if (isDead) next.start();
          return holds();
        });
      const posted = `SELECT 1 FROM bridge_sends s JOIN bridge_delegations d ON d.id = s.delegation_id
        WHERE s.event_id IS NOT NULL AND d.lease_holder IS NULL`;
      await until(async () => (await fixture.rows(posted)).length === 1);
      const question = await lastSent("question");
      isAnswered = true;
      assert.equal((await say("answer", "large", { replyTo: question })).answers, 1);
      await until(() => row.outcome !== undefined);
      assert.deepEqual([row.outcome?.reason, isDead], ["answered", true]);
      assert.equal(agent.behaviour.started.length, 2, "the agent got the question and the answer once");
      assert.equal(new Set(harness.sent.map(({ transactionId }) => transactionId)).size, 2);
      assert.deepEqual([...new Set(bodies().map((body) => body.split("\n")[0]))], ["Which size?", "large"]);
    });
  }

  it("is not repeated for ever: an agent that asks too often is canceled, and the asker is told [DEL-6]", async (t) => {
    const { agent, harness, row, fixture } = await setUp(t);
    await fixture.rows("UPDATE bridge_delegations SET asked = 64");
    harness.worker().start();
    await harness.until(() => row.outcome !== undefined);
    assert.deepEqual(row.outcome, {
      state: "failed",
      stage: "follow",
      reason: "questions_exceeded",
      notice: "delegation_failed",
    });
    assert.equal(agent.behaviour.canceled.length, 1);
    assert.deepEqual(harness.sent, []);
  });

  it("gets no answer once trust in the agent is lost, and the asker is told once [DEL-5]", async (t) => {
    const { agent, harness, row, say, lastSent, fixture, isPosted } = await setUp(t);
    const worker = harness.worker();
    worker.start();
    await harness.until(isPosted);
    const before = agent.requests.length;
    harness.trust = { trust: "quarantined", reason: "agent_card_untrusted" };
    await say("answer", "large", { replyTo: await lastSent("question") });
    worker.wake();
    await harness.until(() => row.outcome !== undefined);
    const outcome = {
      state: "failed",
      stage: "follow",
      reason: "agent_card_untrusted",
      notice: "delegation_stopped",
    };
    assert.deepEqual(row.outcome, outcome);
    await harness.clock.advance(60_000);
    assert.equal(agent.requests.length, before);
    assert.equal((await fixture.rows("SELECT 1 FROM bridge_notices")).length, 1);
  });

  it("ends with a notice when trust is lost while nobody answers, however much the agent has sent before [DEL-5]", async (t) => {
    const { agent, harness, row, isPosted } = await setUp(t);
    const worker = harness.worker();
    worker.start();
    await harness.until(isPosted);
    const before = agent.requests.length;
    worker.pace.read("docs" as AgentId, Number.MAX_SAFE_INTEGER);
    harness.trust = { trust: "quarantined", reason: "agent_card_untrusted" };
    const lostAt = harness.clock.now();
    await harness.until(() => row.outcome !== undefined);
    assert.ok(harness.clock.now() - lostAt <= 60_000);
    assert.equal(row.outcome?.reason, "agent_card_untrusted");
    assert.equal(row.outcome?.notice, "delegation_stopped");
    assert.equal(agent.requests.length, before);
  });

  it("waits for an answer from when it was posted, however long the homeserver was away [DEL-6]", async (t) => {
    const { harness, row, say, lastSent } = await setUp(t);
    for (let tries = 0; tries < 40; tries++) harness.sendResults.push({ kind: "retry", afterMs: 60_000 });
    harness.worker().start();
    await harness.until(() => harness.sent.length === 1, 10_000);
    assert.equal(row.state, "awaiting_input");
    assert.equal((await say("answer", "large", { replyTo: await lastSent("question") })).answers, 1);
  });

  it("is not tried without a pause when the homeserver is away for longer than the wait for an answer [DEL-6]", async (t) => {
    const { harness } = await setUp(t);
    harness.worker().start();
    const isAway = { kind: "retry", afterMs: 1_000 } as const;
    for (let tries = 0; tries < 2_000; tries++) harness.sendResults.push(isAway);
    const end = harness.clock.now() + 1_800_000;
    await harness.until(() => harness.clock.now() >= end, 5_000);
    const tries = 2_000 - harness.sendResults.length;
    assert.ok(tries > 30 && tries < 150, `${tries} tries in half an hour`);
    harness.sendResults.length = 0;
  });

  it("is answered by text when no key opens its options, and the intake goes on [INT-5]", async (t) => {
    const { agent, harness, row, say, lastSent, fixture } = await setUp(t);
    agent.behaviour.plan = { kind: "input_required", questions: ["Which?"], options: ["one", "two"] };
    harness.worker().start();
    await harness.until(() => row.state === "awaiting_input" && harness.sent.length === 1);
    await fixture.rows("UPDATE bridge_delegations SET options = '\\x00'");
    assert.equal((await say("answer", "one", { replyTo: await lastSent("question") })).answers, 1);
  });

  it("is sealed while it is open, and no table holds it, its options or its answer afterwards [AUD-2]", async (t) => {
    const { agent, harness, row, say, lastSent, fixture, isPosted } = await setUp(t);
    agent.behaviour.plan = {
      kind: "input_required",
      questions: ["canary-question"],
      options: ["canary-one", "canary-two"],
    };
    harness.sendResults.push({ kind: "retry", afterMs: 1_000 });
    const worker = harness.worker();
    worker.start();
    const dump = async () =>
      [...(await databaseText(async (query) => (await fixture.rows(query)) as never[])).values()].join("\n");
    await harness.until(() => row.state === "awaiting_input", 0);
    assert.doesNotMatch(await dump(), /canary/);
    await harness.until(isPosted);
    await say("answer", "canary-answer", { replyTo: await lastSent("question") });
    assert.doesNotMatch(await dump(), /canary/);
    worker.wake();
    await harness.until(() => row.outcome !== undefined);
    assert.equal(row.outcome?.reason, "answered");
    assert.deepEqual(await fixture.rows("SELECT prompt, options FROM bridge_delegations"), [
      { prompt: null, options: null },
    ]);
    assert.deepEqual(await fixture.rows("SELECT 1 FROM bridge_sends WHERE content IS NOT NULL"), []);
  });
});
