// An agent that means harm to the people in a room, or to other rooms, by what it sends and how often. What it writes into
// answers, questions, progress and files is in tests/unit/bridge/matrix and tests/unit/bridge/status-messages.
import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { FAULTS_MAX } from "../../../../src/bridge/delegation/follow-task.ts";
import { conversation, lastSent } from "../../../support/conversation.ts";
import { type DelegationSetUp, delegationSuite, type Question } from "../../../support/delegation-suite.ts";
import { completes } from "../../../support/fault-agent-behaviour.ts";

const OWN = "task-1";
const MiB = 1024 * 1024;
const ANSWERED = { state: "completed", stage: "reply", reason: "answered" };

const status = (state: string, text = "", taskId = OWN, messageId = `m-${text}`) => ({
  statusUpdate: {
    taskId,
    contextId: "c",
    status: {
      state: `TASK_STATE_${state}`,
      ...(text !== "" && { message: { messageId, role: "ROLE_AGENT", parts: [{ text }] } }),
    },
  },
});
const artifact = (text: string, taskId = OWN) => ({
  artifactUpdate: { taskId, contextId: "c", artifact: { artifactId: "a", parts: [{ text }] } },
});
const task = (state: string, id = OWN, text = "", messageId = "m") => ({
  id,
  contextId: "c",
  status: {
    state: `TASK_STATE_${state}`,
    ...(text !== "" && { message: { messageId, role: "ROLE_AGENT", parts: [{ text }] } }),
  },
});

/** An answer in place of the agent's own. */
const instead = (body: object) =>
  ({ kind: "garbage", type: "application/json", body: JSON.stringify(body) }) as const;
const streamed = (...events: readonly object[]) =>
  ({
    kind: "garbage",
    type: "text/event-stream",
    body: events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join(""),
  }) as const;

describe("a hostile agent", () => {
  const setUpDelegation = delegationSuite();
  const setUp = async (t: TestContext, streaming: boolean) => {
    const made = await setUpDelegation(t, { streaming, card: { binding: "HTTP+JSON" } });
    made.agent.behaviour.plan = completes("the answer of another room");
    return made;
  };
  const bodies = ({ harness }: DelegationSetUp, { room }: Question) =>
    harness.sent.filter(({ roomId }) => roomId === room).map(({ content }) => String(content["body"]));
  /** A question in another room is answered as if nothing were. */
  const othersAreServed = async (made: DelegationSetUp) => {
    const other = await made.admit("other", "another");
    await made.harness.until(() => other.outcome !== undefined);
    assert.deepEqual(other.outcome, ANSWERED);
    assert.deepEqual(bodies(made, other), ["the answer of another room"]);
  };

  it("an agent that reports thousands of times a second costs a write every two seconds, and delays no other room [AGT-4] [DEL-6]", async (t) => {
    const made = await setUp(t, true);
    const { agent, harness } = made;
    const reports = Array.from({ length: 5_000 }, (_, count) => status("WORKING", `step ${count}`));
    const events = [{ task: task("WORKING") }, ...reports, artifact("done"), status("COMPLETED")];
    agent.fault("stream", streamed(...events));
    const row = await made.admit();
    const since = harness.clock.now();
    harness.worker().start();
    await harness.until(() => agent.requestsOf("stream").length === 1, 0);
    await othersAreServed(made);
    await harness.until(() => row.outcome !== undefined);
    assert.deepEqual(row.outcome, ANSWERED);
    assert.deepEqual(bodies(made, row), ["done"]);
    const written = harness.calls.filter((call) => call === "recordReport").length;
    assert.ok(written >= 1 && written <= 1 + (harness.clock.now() - since) / 2_000, `${written} writes`);
  });

  const text = "1".repeat(0.9 * MiB);
  for (const [streaming, fill] of [
    [false, text],
    [true, text],
    // A sixth of the bytes, which take as much time.
    [false, Array.from({ length: 60_000 }, () => [])],
  ] as const) {
    const where = streaming ? "streams" : "the views of its tasks";
    const what = fill === text ? where : `${where} with values`;
    const mostMiB = fill === text ? 130 : 25;
    it(`an agent that fills ${what} is read at a pace of its own, and its answers come all the same [AGT-4] [DEL-10]`, async (t) => {
      const entry = { rate: { perMinute: 6_000, burst: 100 } };
      const card = { binding: "HTTP+JSON" } as const;
      const made = await setUpDelegation(t, { streaming, card, harness: { entry } });
      const { agent, harness } = made;
      let taken = 0;
      const count = async function* (body: ReadableStream<Uint8Array>) {
        for await (const chunk of body) {
          taken += chunk.length;
          yield chunk;
        }
      };
      const { http } = harness.deps;
      const counting: typeof http = {
        ...http,
        fetch: async (...asked) => {
          const response = await http.fetch(...asked);
          const body = response.body && ReadableStream.from<Uint8Array>(count(response.body));
          return { ...response, body };
        },
      };
      Object.assign(harness.deps, { http: counting });
      const full = { metadata: { fill } };
      const update = { statusUpdate: { ...status("WORKING").statusUpdate, ...full } };
      const events = streamed({ task: task("WORKING") }, ...Array.from({ length: 16 }, () => update));
      agent.fault("send", instead({ task: task("WORKING") }), 100);
      for (const operation of ["stream", "subscribe"] as const) agent.fault(operation, events, 100);
      agent.fault("get", instead({ ...task("WORKING"), ...full }), 1_000);
      const rows = await Promise.all(Array.from({ length: 40 }, (_, n) => made.admit(`q${n}`, `!r${n}`)));
      const begunAt = harness.clock.now();
      harness.worker().start();
      await harness.until(() => harness.clock.now() >= begunAt + 10_000);
      assert.ok(taken < mostMiB * MiB, `${taken / MiB} MiB in 10 s`);
      agent.clearFaults();
      agent.fault("get", instead(task("COMPLETED", OWN, "done")), 1_000);
      await harness.until(() => rows.every(({ outcome }) => outcome !== undefined));
      for (const { outcome } of rows) assert.deepEqual(outcome, ANSWERED);
    });
  }

  it("an agent that begins a stream with what is no update, and says nothing more, is given up in its time [AGT-4] [DEL-10]", async (t) => {
    const made = await setUp(t, true);
    const { agent, harness } = made;
    agent.fault("stream", { kind: "stall", body: 'data: {"unknown":{}}\n\n' });
    const row = await made.admit();
    harness.worker().start();
    await harness.until(() => agent.requestsOf("stream").length === 1, 0);
    const since = harness.clock.now();
    // The search for the task of that call, after which it is called again.
    await harness.until(() => row.outcome !== undefined);
    assert.deepEqual(row.outcome, ANSWERED);
    const { agentRequestTimeout } = harness.deps.limits;
    assert.ok(harness.clock.now() - since < 2 * agentRequestTimeout);
  });

  it("whose states go backwards after the end has given its one answer [AGT-4] [DEL-7]", async (t) => {
    const made = await setUp(t, true);
    const backwards = ["WORKING", "SUBMITTED", "INPUT_REQUIRED", "FAILED", "COMPLETED"].map((state) =>
      status(state, "again"),
    );
    made.agent.fault(
      "stream",
      streamed(
        { task: task("WORKING") },
        status("SUBMITTED"),
        artifact("first"),
        status("COMPLETED"),
        ...backwards,
        artifact("second"),
      ),
    );
    const row = await made.admit();
    made.harness.worker().start();
    await made.harness.until(() => row.outcome !== undefined);
    await othersAreServed(made);
    assert.deepEqual(row.outcome, ANSWERED);
    assert.deepEqual(bodies(made, row), ["first"]);
  });

  it("an agent that streams updates of another task has none of them shown [AGT-4] [DEL-7]", async (t) => {
    const made = await setUp(t, true);
    const others = [
      artifact("of another", "task-2"),
      status("FAILED", "of another", "task-2"),
      {
        task: {
          ...task("COMPLETED", "task-2"),
          artifacts: [{ artifactId: "a", parts: [{ text: "of another" }] }],
        },
      },
    ];
    made.agent.fault(
      "stream",
      streamed({ task: task("WORKING") }, ...others, artifact("its own"), ...others, status("COMPLETED")),
    );
    const row = await made.admit();
    made.harness.worker().start();
    await made.harness.until(() => row.outcome !== undefined);
    assert.deepEqual(row.outcome, ANSWERED);
    assert.deepEqual(bodies(made, row), ["its own"]);
  });

  it("an agent that answers for another task when it is polled is given up, with nothing of it in the room [AGT-4] [DEL-7]", async (t) => {
    const made = await setUp(t, false);
    made.agent.fault("send", instead({ task: task("WORKING") }));
    made.agent.fault("get", instead({ ...task("COMPLETED", "task-2", "of another") }), FAULTS_MAX);
    const row = await made.admit();
    made.harness.worker().start();
    await made.harness.until(() => row.outcome !== undefined);
    assert.partialDeepStrictEqual(row.outcome, { state: "failed", reason: "agent_protocol_error" });
    assert.deepEqual(bodies(made, row), []);
    await othersAreServed(made);
  });

  it("an agent that lists a task with more than an answer may have has it read like any other [AGT-4] [DEL-7]", async (t) => {
    const made = await setUp(t, false);
    const { agent, harness } = made;
    const row = await made.admit();
    // Each number is shown on a line of its own, three times as long as it came.
    const parts = [{ data: Array.from({ length: 300_000 }, () => 0) }];
    const history = [{ messageId: row.a2aMessageId, role: "ROLE_USER", parts: [] }];
    const found = { ...task("WORKING"), history, artifacts: [{ artifactId: "a", parts }] };
    agent.fault("send", { kind: "accept_then_drop" });
    agent.fault("list", instead({ tasks: [found], nextPageToken: "", pageSize: 1, totalSize: 1 }));
    agent.fault("get", instead(task("COMPLETED", OWN, "done")));
    harness.worker().start();
    await harness.until(() => row.outcome !== undefined);
    assert.deepEqual(row.outcome, ANSWERED);
    assert.deepEqual(bodies(made, row), ["done"]);
    assert.equal(harness.metrics.count("deferred:flow_failed"), 0);
  });

  it("an agent that asks a question every second for an hour is stopped, however willingly it is answered [AGT-4] [DEL-6]", async (t) => {
    const made = await setUp(t, false);
    const { agent, harness, fixture } = made;
    const questions = Array.from({ length: 3_600 }, (_, count) => `Question ${count}?`);
    agent.behaviour.plan = { kind: "input_required", questions };
    const row = await made.admit();
    const { directory, clock } = harness.deps;
    const person = conversation({ ledger: fixture.ledger, directory, clock });
    const worker = harness.worker();
    worker.start();
    for (let answers = 0; row.outcome === undefined; answers++) {
      assert.ok(answers < 100, "it asks without an end");
      await harness.until(
        () =>
          row.outcome !== undefined ||
          (row.state === "awaiting_input" &&
            bodies(made, row).length === answers + 1 &&
            row.dueAt > clock.now()),
      );
      if (row.outcome !== undefined) break;
      if (answers === 10) {
        agent.behaviour.plan = completes("the answer of another room");
        await othersAreServed(made);
        agent.behaviour.plan = { kind: "input_required", questions };
      }
      await harness.clock.advance(1_000);
      await person.say(`a${answers}`, "yes", { replyTo: await lastSent(fixture, "question") });
      worker.wake();
    }
    assert.deepEqual(row.outcome, {
      state: "failed",
      stage: "follow",
      reason: "questions_exceeded",
      notice: "delegation_failed",
    });
    assert.equal(bodies(made, row).length, 64);
    assert.equal(agent.behaviour.canceled.length, 1);
  });

  it("an agent that changes its question every second while nobody answers has it posted once [AGT-4] [DEL-6]", async (t) => {
    const made = await setUp(t, false);
    const { agent, harness } = made;
    agent.fault("send", instead({ task: task("INPUT_REQUIRED", OWN, "Which one?", "m-0") }));
    for (let count = 1; count <= 3_600; count++) {
      agent.fault("get", instead(task("INPUT_REQUIRED", OWN, `Answer me ${count}!`, `m-${count}`)));
    }
    const row = await made.admit();
    harness.worker().start();
    await harness.until(() => row.outcome !== undefined);
    assert.partialDeepStrictEqual(row.outcome, { state: "failed", reason: "input_wait_elapsed" });
    assert.match(bodies(made, row).join("\n"), /^Which one\?\n\nReply to this message to answer\.$/);
    agent.clearFaults();
    await othersAreServed(made);
  });
});
