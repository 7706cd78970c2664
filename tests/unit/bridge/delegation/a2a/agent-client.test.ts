import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { Role, type Task, TaskState } from "@a2a-js/sdk";
import fc from "fast-check";
import { AgentClient } from "../../../../../src/bridge/delegation/a2a/agent-client.ts";
import { A2aFailure } from "../../../../../src/bridge/delegation/a2a/classify-failure.ts";
import { type AgentUpdate, taskView } from "../../../../../src/bridge/delegation/a2a/protocol.ts";
import { AnswerAssembly, answerOf } from "../../../../../src/bridge/delegation/assemble-answer.ts";
import { type Clock, systemClock } from "../../../../../src/domain/clock.ts";
import { anyUrl } from "../../../../support/arbitraries.ts";
import { cardOf } from "../../../../support/delegation.ts";

const BINDINGS = [
  ["JSONRPC", "1.0"],
  ["JSONRPC", "0.3"],
  ["HTTP+JSON", "1.0"],
  ["HTTP+JSON", "0.3"],
] as const;
const QUESTION = { messageId: "m", text: "question", taskId: undefined, contextId: undefined };

/** A client whose agent answers every request with this. */
function clientOf(
  binding: (typeof BINDINGS)[number],
  status: number,
  type: string,
  body: string | ReadableStream<Uint8Array>,
  clock: Clock = systemClock,
  observed: string[] = [],
): AgentClient {
  const card = cardOf("http://127.0.0.1:1", { binding: binding[0], version: binding[1], streaming: true });
  return new AgentClient(
    {
      clock,
      requestTimeoutMs: 5_000,
      bytesMax: 100_000,
      mayRepeat: () => assert.fail("nothing is repeated"),
      observe: (operation, outcome) => observed.push(`${operation} ${outcome}`),
      tokens: { token: () => assert.fail("no token is needed") },
      http: {
        close: async () => {},
        fetch: async () => ({
          status,
          headers: { "content-type": type },
          body: new Response(body).body ?? assert.fail("a text has a body"),
        }),
      },
    },
    { card, entry: { cardUrl: "http://127.0.0.1:1/card", allowedOrigins: [], credentials: undefined } },
  );
}

/** Takes an update in as a flow does: whatever it holds, there is a text at the end. */
function digest(updates: readonly AgentUpdate[]): void {
  const assembly = new AnswerAssembly(100_000);
  for (const update of updates) {
    if (update.kind === "message") assert.equal(typeof answerOf(update.parts, 100_000).text, "string");
    else assembly.take(update, true);
  }
  assert.equal(typeof assembly.answer().text, "string");
}

async function orFailure(work: Promise<AgentUpdate[]>): Promise<void> {
  try {
    digest(await work);
  } catch (error) {
    if (!(error instanceof A2aFailure)) throw error;
  }
}

async function all(updates: AsyncIterable<AgentUpdate>): Promise<AgentUpdate[]> {
  const taken: AgentUpdate[] = [];
  for await (const update of updates) taken.push(update);
  return taken;
}

const anyJson = fc.jsonValue({ maxDepth: 4 });
const odd = <T>(sound: fc.Arbitrary<T>) =>
  fc.oneof({ weight: 4, arbitrary: sound }, { weight: 1, arbitrary: anyJson });
const part = fc.oneof(
  fc.record({ text: odd(fc.string()), kind: odd(fc.constant("text")) }),
  fc.record({ data: anyJson }),
  fc.record({ raw: odd(fc.base64String()), filename: odd(fc.string()), mediaType: odd(fc.string()) }),
  fc.record({ url: odd(anyUrl) }),
);
const message = fc.record({
  messageId: odd(fc.string()),
  role: odd(fc.constantFrom("ROLE_AGENT", "agent")),
  parts: odd(fc.array(odd(part), { maxLength: 3 })),
  kind: odd(fc.constant("message")),
});
const taskStatus = fc.record({
  state: odd(fc.constantFrom("TASK_STATE_COMPLETED", "TASK_STATE_WORKING", "completed", "NOT_A_STATE", 3)),
  message: odd(message),
  timestamp: odd(fc.constantFrom("2026-01-01T00:00:00Z", "yesterday")),
});
const artifact = fc.record({
  artifactId: odd(fc.string()),
  parts: odd(fc.array(odd(part), { maxLength: 3 })),
});
const task = fc.record({
  id: odd(fc.stringMatching(/^[a-z0-9-]{1,36}$/)),
  contextId: odd(fc.string()),
  status: odd(taskStatus),
  artifacts: odd(fc.array(odd(artifact), { maxLength: 3 })),
  history: odd(fc.array(odd(message), { maxLength: 2 })),
  kind: odd(fc.constant("task")),
});
const update = fc.oneof(
  fc.record({ task: odd(task) }),
  fc.record({ message: odd(message) }),
  fc.record({ statusUpdate: odd(fc.record({ taskId: odd(fc.string()), status: odd(taskStatus) })) }),
  fc.record({
    artifactUpdate: odd(
      fc.record({ taskId: odd(fc.string()), artifact: odd(artifact), append: odd(fc.boolean()) }),
    ),
  }),
  task,
  message,
);
const envelope = fc.record({
  jsonrpc: odd(fc.constant("2.0")),
  id: odd(fc.constant(1)),
  result: odd(update),
});
const rpcError = fc.record({
  jsonrpc: fc.constant("2.0"),
  id: fc.constant(1),
  error: odd(fc.record({ code: odd(fc.integer({ min: -33_000, max: -32_000 })), message: odd(fc.string()) })),
});
const answer = fc.oneof(envelope, rpcError, update, anyJson);

function silenced(t: TestContext): unknown[] {
  const printed: unknown[] = [];
  for (const method of ["error", "warn", "log"] as const) {
    t.mock.method(console, method, (...args: unknown[]) => printed.push(args));
  }
  return printed;
}

describe("agent client with hostile answers", () => {
  const parts = (count: number) => Array.from({ length: count }, () => ({ text: "" }));
  const agentMessage = (own: readonly unknown[]) => ({ messageId: "m", role: "ROLE_AGENT", parts: own });
  const completed = { state: "TASK_STATE_COMPLETED" };
  for (const [what, value] of [
    ["a message", { message: agentMessage(parts(5_000)) }],
    ["a status", { task: { id: "t", status: { ...completed, message: agentMessage(parts(5_000)) } } }],
    [
      "the artifacts of a task together",
      {
        task: {
          id: "t",
          status: completed,
          artifacts: Array.from({ length: 50 }, (_, index) => ({
            artifactId: `${index}`,
            parts: parts(100),
          })),
        },
      },
    ],
  ] as const) {
    it(`too many empty parts in ${what} fail the call [AGT-4]`, async () => {
      const client = clientOf(["HTTP+JSON", "1.0"], 200, "application/json", JSON.stringify(value));
      await assert.rejects(client.send(QUESTION, new AbortController().signal), {
        name: "A2aFailure",
        kind: "too_large",
      });
    });
  }

  for (const [id, isTaken] of [
    ["t", true],
    [undefined, false],
    [null, false],
    [7, false],
    [["t"], false],
    [true, false],
  ] as const) {
    it(`${JSON.stringify(id)} is ${isTaken ? "" : "not "}taken as the ID of a task, a context or a message [AGT-4]`, () => {
      const status = { state: TaskState.TASK_STATE_WORKING, message: undefined, timestamp: undefined };
      const taskOf = (ids: object) =>
        ({
          id: "t",
          contextId: "c",
          status,
          artifacts: [],
          history: [],
          metadata: undefined,
          ...ids,
        }) as Task;
      const kept = taskView(
        taskOf({ contextId: id, status: { ...status, message: { messageId: id, parts: [] } } }),
      );
      const expected = isTaken ? "t" : undefined;
      assert.deepEqual([kept.contextId, kept.statusKey], [expected, expected]);
      if (isTaken) assert.equal(taskView(taskOf({ id })).taskId, "t");
      else assert.throws(() => taskView(taskOf({ id })), { name: "A2aFailure", kind: "protocol" });
    });
  }

  it("the agent's own messages in a task's history tell nothing of what it was sent [AGT-4]", () => {
    const message = (messageId: string, role: Role) => ({ messageId, role, parts: [] });
    const history = [message("asked", Role.ROLE_AGENT), message("answer", Role.ROLE_USER)];
    const shown = (kept: object[]) =>
      taskView({ id: "t", artifacts: [], history: kept } as unknown as Task).messageIds;
    assert.deepEqual([shown(history), shown(history.slice(0, 1))], [["answer"], []]);
  });

  it("a task of a 0.3 agent that has no ID fails the call [AGT-4]", async () => {
    const body = JSON.stringify({
      jsonrpc: "2.0",
      id: 1,
      result: { kind: "task", status: { state: "working" } },
    });
    const client = clientOf(["JSONRPC", "0.3"], 200, "application/json", body);
    await assert.rejects(client.send(QUESTION, new AbortController().signal), {
      name: "A2aFailure",
      kind: "protocol",
    });
  });

  const NO_TEXTS: readonly (readonly [string, object])[] = [
    ["text", { parts: [{ kind: "text", text: 7 }] }],
    ["text, which is missing,", { parts: [{ kind: "text" }] }],
    ["address", { parts: [{ kind: "file", file: { uri: ["https://a.test"] } }] }],
    ["file name", { parts: [{ kind: "file", file: { name: {}, bytes: "eA==" } }] }],
    ["media type", { parts: [{ kind: "file", file: { mimeType: true, bytes: "eA==" } }] }],
    ["ID", { artifactId: 7, parts: [{ kind: "text", text: "x" }] }],
  ];
  for (const [what, artifact] of NO_TEXTS) {
    it(`an artifact of a 0.3 agent that has something else as its ${what} fails the call, not the delegation's flow [AGT-4]`, async () => {
      const result = {
        ...{ kind: "task", id: "t", contextId: "c", status: { state: "completed" } },
        artifacts: [{ artifactId: "a", ...artifact }],
      };
      const body = JSON.stringify({ jsonrpc: "2.0", id: 1, result });
      const client = clientOf(["JSONRPC", "0.3"], 200, "application/json", body);
      const answered = async () => {
        const update = await client.send(QUESTION, new AbortController().signal);
        if (update.kind === "task") new AnswerAssembly(1_000).take(update, false);
      };
      await assert.rejects(answered(), { name: "A2aFailure", kind: "protocol" });
    });
  }

  it("deeply nested data is not made many times as long by its indentation [AGT-4]", async () => {
    const nested = `${"[".repeat(120)}${"]".repeat(120)}`;
    const body = `{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"data":${nested}}]}}`;
    const client = clientOf(["HTTP+JSON", "1.0"], 200, "application/json", body);
    const update = await client.send(QUESTION, new AbortController().signal);
    assert.ok(update.kind === "message");
    assert.ok(answerOf(update.parts, 100_000).text.length < 1_000);
  });

  for (const type of ["application/json", "text/event-stream"]) {
    it(`headers at once and a body of ${type} that never comes leave in doubt what the agent did [DEL-7]`, async () => {
      const asked = Promise.withResolvers<void>();
      const body = new ReadableStream<Uint8Array>({ pull: () => asked.resolve() }, { highWaterMark: 0 });
      const clock = { ...systemClock, sleep: () => asked.promise };
      const client = clientOf(["JSONRPC", "1.0"], 200, type, body, clock);
      const { signal } = new AbortController();
      const call =
        type === "application/json" ? client.send(QUESTION, signal) : all(client.stream(QUESTION, signal));
      await assert.rejects(call, { name: "A2aFailure", kind: "ambiguous" });
    });
  }

  it("a stream that breaks after its first update is observed once", async () => {
    const first = `data: {"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}}\n\n`;
    const chunks = [Buffer.from(first)];
    const body = new ReadableStream<Uint8Array>({
      pull: (controller) => {
        const chunk = chunks.shift();
        if (chunk === undefined) controller.error(new Error("the connection broke"));
        else controller.enqueue(chunk);
      },
    });
    const observed: string[] = [];
    const client = clientOf(["HTTP+JSON", "1.0"], 200, "text/event-stream", body, systemClock, observed);
    const call = all(client.stream(QUESTION, new AbortController().signal));
    await assert.rejects(call, { name: "A2aFailure", kind: "ambiguous" });
    assert.deepEqual(observed, ["stream ok"]);
  });

  for (const binding of BINDINGS) {
    it(`any answer by ${binding.join(" ")} becomes an update or a failure, and is not printed`, async (t) => {
      const printed = silenced(t);
      await fc.assert(
        fc.asyncProperty(answer, fc.constantFrom(200, 200, 200, 400, 404, 500), async (value, status) => {
          const client = clientOf(binding, status, "application/json", JSON.stringify(value));
          const { signal } = new AbortController();
          await orFailure(client.send(QUESTION, signal).then((one) => [one]));
          await orFailure(client.getTask("t", signal).then((one) => [one]));
          await client.listTasks({ token: "", size: 50 }, signal).catch((error: unknown) => {
            if (!(error instanceof A2aFailure)) throw error;
          });
        }),
        { numRuns: 150 },
      );
      assert.deepEqual(printed, []);
    });

    it(`any stream by ${binding.join(" ")} becomes updates or a failure, and is not printed`, async (t) => {
      const printed = silenced(t);
      const events = fc.array(answer, { maxLength: 4 });
      await fc.assert(
        fc.asyncProperty(events, fc.constantFrom("message", "message", "error"), async (values, type) => {
          const body = values.map((value) => `event: ${type}\ndata: ${JSON.stringify(value)}\n\n`).join("");
          const client = clientOf(binding, 200, "text/event-stream", body);
          await orFailure(all(client.stream(QUESTION, new AbortController().signal)));
        }),
        { numRuns: 150 },
      );
      assert.deepEqual(printed, []);
    });
  }
});
