import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { SendMessageRequest, type StreamResponse, type Task, TaskState } from "@a2a-js/sdk";
import { TaskNotFoundError } from "@a2a-js/sdk/errors";
import { type A2ARequestHandler, ServerCallContext } from "@a2a-js/sdk/server";
import { IdempotentHandler } from "../../../../examples/docs-qa/task/idempotent-handler.ts";
import { DurableTaskStore } from "../../../../examples/docs-qa/task/store.ts";
import { TaskFiles } from "../../../../examples/docs-qa/task/task-files.ts";
import { ManualClock } from "../../../support/manual-clock.ts";
import { temporaryFolder } from "../../../support/temporary.ts";

const SCOPE = { caller: "org-b-client", tenant: "" };
const context = () =>
  new ServerCallContext({ user: { userName: SCOPE.caller, isAuthenticated: true }, requestedVersion: "1.0" });
const request = (messageId: string, message: object = {}) =>
  SendMessageRequest.fromJSON({
    message: { messageId, role: "ROLE_USER", parts: [{ text: "x" }], ...message },
  });

/** An inner handler of which only what a test names is there. */
function setUp(t: TestContext, inner: Partial<A2ARequestHandler>) {
  const store = new DurableTaskStore({
    files: new TaskFiles(temporaryFolder(t)),
    clock: new ManualClock(0),
    retentionMs: 1_000,
  });
  const handler = new IdempotentHandler(inner as A2ARequestHandler, store);
  const save = async (params: SendMessageRequest): Promise<Task> => {
    const task: Task = {
      id: "00000000-0000-4000-8000-000000000001",
      contextId: "c",
      status: {
        state: TaskState.TASK_STATE_COMPLETED,
        message: undefined,
        timestamp: new Date(0).toISOString(),
      },
      artifacts: [],
      history: params.message === undefined ? [] : [params.message],
      metadata: undefined,
    };
    await store.saveFor(SCOPE, task);
    return task;
  };
  return { handler, save };
}

describe("the idempotent request handler", () => {
  it("copies that arrive at the same instant, by whatever method, are worked on once", async (t) => {
    let worked = 0;
    const { handler, save } = setUp(t, {
      sendMessage: async (params) => {
        worked += 1;
        return save(params);
      },
      getTask: async (params) => {
        assert.equal(params.id, "00000000-0000-4000-8000-000000000001");
        return save(request("m1"));
      },
    });
    const stream = async () => {
      for await (const { payload } of handler.sendMessageStream(request("m1"), context()))
        return payload?.$case;
      return undefined;
    };
    await Promise.all([
      handler.sendMessage(request("m1"), context()),
      handler.sendMessage(request("m1"), context()),
      handler.sendMessage(request("m1"), context()),
      stream(),
    ]);
    assert.equal(worked, 1);
  });

  it("the next copy is worked on when the first fails before it is stored", async (t) => {
    let worked = 0;
    const { handler, save } = setUp(t, {
      sendMessage: async (params) => {
        worked += 1;
        if (worked === 1) throw new Error("no disk");
        return save(params);
      },
    });
    const [first, second] = await Promise.allSettled([
      handler.sendMessage(request("m1"), context()),
      handler.sendMessage(request("m1"), context()),
    ]);
    assert.equal(first.status, "rejected");
    assert.equal(second.status, "fulfilled");
    assert.equal(worked, 2);
  });

  it("an internal error is answered without its text, and one of the protocol with it", async (t) => {
    async function* failing(): AsyncGenerator<StreamResponse, void, undefined> {
      yield* [];
      throw new Error("canary /var/lib/secret");
    }
    const { handler } = setUp(t, {
      sendMessage: async () => {
        throw new Error("canary /var/lib/secret");
      },
      sendMessageStream: failing,
      getTask: async () => {
        throw new TaskNotFoundError("Task not found: x");
      },
    });
    await assert.rejects(handler.sendMessage(request("m1"), context()), { message: "internal error" });
    await assert.rejects(handler.sendMessageStream(request("m2"), context()).next(), {
      message: "internal error",
    });
    await assert.rejects(handler.getTask({ id: "x", tenant: "" }, context()), {
      message: "Task not found: x",
    });
  });

  it("references to other tasks are dropped before the SDK can log them", async (t) => {
    const received: unknown[] = [];
    const { handler, save } = setUp(t, {
      sendMessage: async (params) => {
        received.push(params.message?.referenceTaskIds);
        return save(params);
      },
    });
    await handler.sendMessage(request("m1", { referenceTaskIds: ["canary"] }), context());
    assert.deepEqual(received, [[]]);
  });

  for (const [what, message] of [
    ["without a messageId", { messageId: "" }],
    ["without a role", { role: undefined }],
    ["in the agent's role", { role: "ROLE_AGENT" }],
    ["without parts", { parts: [] }],
  ] as const) {
    it(`a message ${what} is refused before any work`, async (t) => {
      const { handler } = setUp(t, {});
      await assert.rejects(handler.sendMessage(request("m1", message), context()), {
        name: "RequestMalformedError",
      });
      const stream = handler.sendMessageStream(request("m1", message), context());
      await assert.rejects(stream.next(), { name: "RequestMalformedError" });
    });
  }
});
