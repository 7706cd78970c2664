// A person edits a question: before the agent has it the new text counts, and after that nothing changes.
import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { conversation, DOCS } from "../../../support/conversation.ts";
import { delegationSuite } from "../../../support/delegation-suite.ts";
import { T0 } from "../../../support/ledger.ts";

interface Edit {
  readonly of?: string;
  readonly sender?: string;
  readonly room?: string;
}

/** An edit as clients send it (Matrix client-server API, "Event replacements"). */
function editEvent(
  name: string,
  body: string,
  { of = "$q", sender = "@alice:a.test", room = "!r" }: Edit = {},
) {
  return {
    type: "m.room.message",
    ...{ event_id: `$${name}`, room_id: room, sender, origin_server_ts: T0 },
    content: {
      ...{ msgtype: "m.text", body: `* ${body}` },
      "m.new_content": { msgtype: "m.text", body },
      "m.relates_to": { rel_type: "m.replace", event_id: of },
    },
  };
}

const QUESTION = {
  type: "m.room.message",
  ...{ event_id: "$q", room_id: "!r", sender: "@alice:a.test", origin_server_ts: T0 },
  content: { msgtype: "m.text", body: `${DOCS}: what?`, "m.mentions": { user_ids: [DOCS] } },
};

describe("an edit of a question", () => {
  const setUpDelegation = delegationSuite();
  async function setUp(t: TestContext) {
    const made = await setUpDelegation(t);
    const { fixture, harness, agent } = made;
    const { directory, clock } = harness.deps;
    const { events } = conversation({ ledger: fixture.ledger, directory, clock });
    const edit = (name: string, body: string, which?: Edit) => events(editEvent(name, body, which));
    const answered = async () => {
      await harness.until(async () => {
        const open = await fixture.rows("SELECT 1 FROM bridge_delegations WHERE terminal_at IS NULL");
        return open.length === 0;
      });
      return agent.behaviour.prompts;
    };
    return { ...made, events, edit, answered };
  }

  it("before it is dispatched gives the agent the last text, without the mention [DEL-6]", async (t) => {
    const { events, edit, harness, answered, fixture } = await setUp(t);
    await events(QUESTION);
    const { admitted } = await edit("e1", "which?");
    await edit("e2", `${DOCS}: where?`);
    assert.equal(admitted, 0, "an edit asks nothing by itself");
    harness.worker().start();
    assert.deepEqual(await answered(), ["where?"]);
    assert.deepEqual(await fixture.rows("SELECT matrix_event_id AS event FROM bridge_delegations"), [
      { event: "$q" },
    ]);
  });

  it("an edit that is older than one which came before it changes nothing [DEL-6] [INT-3]", async (t) => {
    const { events, harness, answered } = await setUp(t);
    await events(QUESTION);
    await events({ ...editEvent("e2", "where?"), origin_server_ts: T0 + 2 });
    await events({ ...editEvent("e1", "which?"), origin_server_ts: T0 + 1 });
    harness.worker().start();
    assert.deepEqual(await answered(), ["where?"]);
  });

  it("an edit that is older than one which came with its question changes nothing [DEL-6] [INT-3]", async (t) => {
    const { events, harness, answered } = await setUp(t);
    await events(QUESTION, { ...editEvent("e2", "where?"), origin_server_ts: T0 + 2 });
    await events({ ...editEvent("e1", "which?"), origin_server_ts: T0 + 1 });
    harness.worker().start();
    assert.deepEqual(await answered(), ["where?"]);
  });

  it("an edit that comes with its question in one transaction counts [DEL-6]", async (t) => {
    const { events, harness, answered } = await setUp(t);
    await events(QUESTION, editEvent("e", "which?"), editEvent("bob", "mine", { sender: "@bob:a.test" }));
    harness.worker().start();
    assert.deepEqual(await answered(), ["which?"]);
  });

  it("an edit that comes while a worker is about to hand the old text over takes the question from it [DEL-6] [DEL-9]", async (t) => {
    const { events, edit, harness, answered, agent } = await setUp(t);
    await events(QUESTION);
    const { worker, pause } = harness.mortal();
    const goOn = pause("beginDispatch");
    worker.start();
    await harness.until(() => harness.trustChecks > 0, 0);
    await edit("e", "which?");
    goOn();
    assert.deepEqual(await answered(), ["which?"]);
    assert.equal(agent.behaviour.started.length, 1);
    await worker.drain();
  });

  it("counts while the agent is away, once the agent is back [DEL-6]", async (t) => {
    const { events, edit, harness, answered, agent } = await setUp(t);
    agent.fault("send", { kind: "status", status: 503, headers: { "retry-after": "3" } });
    await events(QUESTION);
    harness.worker().start();
    await harness.until(() => harness.metrics.count("deferred:agent_unavailable") === 1, 0);
    await edit("e", "which?");
    assert.deepEqual(await answered(), ["which?"]);
  });

  for (const [seconds, where] of [
    ["3", "at the head of its room"],
    ["300", "set aside"],
  ] as const) {
    it(`does not shorten a wait that the agent asked for: ${where} [DEL-6]`, async (t) => {
      const { events, edit, harness, agent, fixture } = await setUp(t);
      agent.fault("send", { kind: "status", status: 503, headers: { "retry-after": seconds } });
      await events(QUESTION);
      const worker = harness.worker();
      worker.start();
      await harness.until(() => harness.metrics.count("deferred:agent_unavailable") === 1, 0);
      await worker.drain();
      const wait = () =>
        fixture.rows(
          "SELECT d.due_at, r.head_at FROM bridge_delegations d JOIN bridge_rooms r USING (room_id)",
        );
      const before = await wait();
      assert.equal(before[0]?.["due_at"] !== null, where === "set aside");
      await edit("e", "which?");
      assert.deepEqual(await wait(), before);
    });
  }

  it("by another sender, for another room or of another event changes nothing [DEL-6]", async (t) => {
    const { events, edit, harness, answered } = await setUp(t);
    await events(QUESTION);
    await edit("bob", "mine", { sender: "@bob:a.test" });
    await edit("elsewhere", "there", { room: "!other" });
    await edit("unknown", "nothing", { of: "$unknown" });
    harness.worker().start();
    assert.deepEqual(await answered(), ["what?"]);
  });

  it("after the dispatch or the end changes nothing and asks nothing [DEL-6]", async (t) => {
    const { events, edit, harness, answered, agent, fixture } = await setUp(t);
    const rows = () => fixture.rows("SELECT prompt, fence, state FROM bridge_delegations");
    agent.behaviour.plan = { kind: "slow", text: "at last" };
    await events(QUESTION);
    harness.worker().start();
    await harness.until(async () => (await rows())[0]?.["state"] === "following");
    const { admitted } = await edit("late", "which?");
    assert.deepEqual([admitted, (await rows())[0]?.["prompt"]], [0, null]);
    agent.behaviour.releaseAll();
    assert.deepEqual(await answered(), ["what?"]);
    const before = await rows();
    await edit("later", "which?");
    assert.deepEqual(await rows(), before);
  });

  it("of a question whose delivery is uncertain changes nothing: it is repeated as it was [DEL-6] [DEL-7]", async (t) => {
    const { events, edit, harness, answered, agent, fixture } = await setUp(t);
    agent.fault("send", { kind: "accept_then_drop" });
    await events(QUESTION);
    harness.worker().start();
    await harness.until(() => harness.metrics.count("deferred:agent_unavailable") === 1, 0);
    const rows = () => fixture.rows("SELECT prompt, fence, state FROM bridge_delegations");
    const before = await rows();
    await edit("e", "which?");
    assert.deepEqual(await rows(), before);
    assert.deepEqual(await answered(), ["what?"]);
  });
});
