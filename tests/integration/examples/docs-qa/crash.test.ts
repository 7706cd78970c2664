// The agent as a process that is killed: what it accepted it finishes, and a repeat finds it.
import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, it } from "node:test";
import { testAgent } from "../../../support/docs-qa.ts";
import { ROOT, start } from "../../../support/temporary.ts";

const MESSAGES = 20;

interface Task {
  readonly id: string;
  readonly status: { readonly state: string };
}

describe("a crash of the sample agent", () => {
  it("an agent that is killed amid twenty messages has each once, finished, after its next start", async (t) => {
    // The helper writes the folder; its own agent makes room for one that can be killed.
    const { url, folder, stop } = await testAgent(t);
    await stop();
    const run = async () => {
      const running = start(process.execPath, [
        join(ROOT, "examples/docs-qa/main.ts"),
        "--config",
        join(folder, "docs-qa.yaml"),
      ]);
      t.after(() => running.child.kill("SIGKILL"));
      await running.printed('"event":"ready"');
      return running;
    };
    const call = async <T>(method: string, params: object): Promise<T> => {
      const response = await fetch(url, {
        method: "POST",
        headers: { "content-type": "application/json", "a2a-version": "1.0", "x-azp": "org-b-client" },
        body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }),
      });
      const { result } = (await response.json()) as { result: T };
      return result;
    };
    const send = (number: number, returnImmediately: boolean) =>
      call<{ task: Task }>("SendMessage", {
        message: { messageId: `m${number}`, role: "ROLE_USER", parts: [{ text: `green tea ${number}` }] },
        configuration: { returnImmediately },
      });

    const first = await run();
    const accepted = new Map<number, string>();
    const sent = Array.from({ length: MESSAGES }, async (_, number) => {
      const { task } = await send(number, true);
      accepted.set(number, task.id);
      // What is in flight is in whatever state it is in.
      if (accepted.size === MESSAGES / 4) first.child.kill("SIGKILL");
    });
    await Promise.allSettled(sent);
    await first.finished;
    assert.ok(accepted.size >= MESSAGES / 4);

    await run();
    const atStart = await call<{ tasks: Task[] }>("ListTasks", {});
    for (const { status } of atStart.tasks) assert.equal(status.state, "TASK_STATE_COMPLETED");
    for (let number = 0; number < MESSAGES; number++) {
      const { task } = await send(number, false);
      assert.equal(task.status.state, "TASK_STATE_COMPLETED");
      if (accepted.has(number)) assert.equal(task.id, accepted.get(number));
    }
    const { totalSize } = await call<{ totalSize: number }>("ListTasks", {});
    assert.equal(totalSize, MESSAGES);
  });
});
