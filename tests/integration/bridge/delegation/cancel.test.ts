// What people cancel by a command or a reaction; and conversations that are continued.
import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { conversation, DOCS, lastSent } from "../../../support/conversation.ts";
import { type DelegationSetUp, delegationSuite } from "../../../support/delegation.ts";

const ASKS = {
  kind: "asks",
  questions: ["Which size?"],
  options: ["small", { id: "2", label: "large" }],
} as const;
const SLOW = { kind: "slow", text: "at last" } as const;

function personOf({ fixture, harness }: DelegationSetUp) {
  const { directory, clock } = harness.deps;
  const said = conversation({ ledger: fixture.ledger, directory, clock });
  return { ...said, lastSent: (purpose: string) => lastSent(fixture, purpose) };
}

describe("a conversation", () => {
  const setUpDelegation = delegationSuite();
  async function setUp(t: TestContext, plan: typeof ASKS | typeof SLOW = ASKS) {
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
      await made.harness.until(() => row.state === "awaiting_input" && row.dueAt > made.harness.clock.now());
      return await person.lastSent("question");
    };
    return { ...made, ...person, row, worker, notices, asked };
  }

  const WAYS: readonly [
    string,
    (made: Awaited<ReturnType<typeof setUp>>, question: string) => Promise<unknown>,
  ][] = [
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
      worker.wake();
      await harness.until(() => row.outcome !== undefined);
      assert.partialDeepStrictEqual(row.outcome, {
        state: "canceled",
        stage: "follow",
        reason: "sender_canceled",
      });
      assert.equal(agent.behaviour.canceled.length, 1);
      assert.deepEqual(await notices(), ["delegation_canceled $q1"]);
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

  it("leaves a task that ended to its end when it is canceled too late [DEL-6]", async (t) => {
    const { agent, harness, row, worker, react, asked } = await setUp(t);
    const question = await asked();
    agent.fault("cancel", { kind: "status", status: 409 });
    await react("c", question, "❌");
    worker.wake();
    await harness.until(() => row.outcome !== undefined);
    assert.equal(row.outcome?.reason, "sender_canceled");
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
    assert.equal(await ask("bob", { sender: "@bob:a.test", thread: "$q1" }), first);
    assert.notEqual(await ask("elsewhere", { replyTo: answer ?? "", room: "!other" }), first);
    assert.equal(
      new Set(agent.behaviour.addressed.map(({ taskId }) => taskId)).size,
      6,
      "each is a task of its own",
    );
    await harness.clock.advance(86_400_001);
    assert.notEqual(await ask("late", { replyTo: answer ?? "" }), first);
  });
});
