import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import {
  CancelTaskRequest,
  GetTaskRequest,
  ListTasksRequest,
  SendMessageRequest,
  SubscribeToTaskRequest,
  type Task,
  TaskState,
} from "@a2a-js/sdk";
import { testAgent } from "../../../support/docs-qa.ts";
import { answerOf, ask, asTask, held, read, textsOf } from "./agent-caller.ts";

describe("the sample agent", () => {
  for (const binding of ["JSONRPC", "HTTP+JSON"] as const) {
    it(`${binding}: a blocking message comes back completed, with the quote, its file and its heading`, async (t) => {
      const agent = await testAgent(t);
      const client = await agent.client("org-b-client", binding);
      const task = asTask(await client.sendMessage(ask("How long is green tea steeped?", "m1")));
      assert.equal(task.status?.state, TaskState.TASK_STATE_COMPLETED);
      assert.equal(
        answerOf(task),
        "`tea.md` — **Tea › Green tea**\n\n> Green tea is steeped for two minutes.",
      );
      assert.equal(task.artifacts[0]?.parts[0]?.mediaType, "text/markdown");
    });

    it(`${binding}: a stream gives the task, the answer and the end`, async (t) => {
      const agent = await testAgent(t);
      const client = await agent.client("org-b-client", binding);
      assert.deepEqual(await read(client.sendMessageStream(ask("green tea?", "m1"))), [
        "task:TASK_STATE_WORKING",
        "artifactUpdate",
        "statusUpdate:TASK_STATE_COMPLETED",
      ]);
    });

    it(`${binding}: an immediate return is followed by reading, listing and subscribing`, async (t) => {
      const work = held();
      const agent = await testAgent(t, { answer: work.answer });
      const client = await agent.client("org-b-client", binding);
      const { id, status } = asTask(await client.sendMessage(ask("x", "m1", true)));
      assert.equal(status?.state, TaskState.TASK_STATE_WORKING);
      const listed = await client.listTasks(ListTasksRequest.fromJSON({}));
      assert.deepEqual(
        listed.tasks.map((task) => task.history[0]?.messageId),
        ["m1"],
      );
      const events = read(client.resubscribeTask(SubscribeToTaskRequest.fromJSON({ id })));
      work.release("done");
      assert.match((await events).at(-1) ?? "", /:TASK_STATE_COMPLETED$/);
      assert.equal(answerOf(await client.getTask(GetTaskRequest.fromJSON({ id }))), "done");
    });

    it(`${binding}: a task can be cancelled while it runs, and stays cancelled`, async (t) => {
      const work = held();
      const agent = await testAgent(t, { answer: work.answer });
      const client = await agent.client("org-b-client", binding);
      const { id } = asTask(await client.sendMessage(ask("x", "m1", true)));
      const canceled = await client.cancelTask(CancelTaskRequest.fromJSON({ id }));
      assert.equal(canceled.status?.state, TaskState.TASK_STATE_CANCELED);
      work.release("too late");
      const repeat = asTask(await client.sendMessage(ask("x", "m1")));
      assert.equal(repeat.status?.state, TaskState.TASK_STATE_CANCELED);
      assert.equal(answerOf(repeat), "");
    });
  }

  for (const binding of ["JSONRPC", "HTTP+JSON"] as const) {
    it(`${binding}: a survey reports each document that it reads, and then what it found`, async (t) => {
      const agent = await testAgent(t);
      const client = await agent.client("org-b-client", binding);
      const said: string[] = [];
      let last: TaskState | undefined;
      for await (const { payload } of client.sendMessageStream(ask("Survey the documents about tea", "m1"))) {
        if (payload?.$case !== "statusUpdate") continue;
        last = payload.value.status?.state;
        said.push(...textsOf(payload.value.status?.message?.parts));
      }
      assert.deepEqual(said, ["Reading document 1 of 2: `coffee.md`", "Reading document 2 of 2: `tea.md`"]);
      assert.equal(last, TaskState.TASK_STATE_COMPLETED);
      const task = asTask(await client.sendMessage(ask("Survey the documents about tea", "m1")));
      assert.equal(answerOf(task), "**1 of 2** documents of org A mention this.\n\n- `tea.md`: Green tea");
    });
  }

  it("a survey that is cancelled says nothing more", async (t) => {
    const agent = await testAgent(t, { surveyTime: "1h" });
    const client = await agent.client("org-b-client");
    const { id } = asTask(await client.sendMessage(ask("survey tea", "m1", true)));
    await client.cancelTask(CancelTaskRequest.fromJSON({ id }));
    const task = await client.getTask(GetTaskRequest.fromJSON({ id }));
    assert.equal(task.status?.state, TaskState.TASK_STATE_CANCELED);
    assert.equal(answerOf(task), "");
  });

  it("a question with several answers asks back with options, in words and as data, until the reply names one", async (t) => {
    const agent = await testAgent(t);
    const client = await agent.client("org-b-client");
    const reply = (text: string, messageId: string, { id, contextId }: Task) =>
      SendMessageRequest.fromJSON({
        message: { messageId, taskId: id, contextId, role: "ROLE_USER", parts: [{ text }] },
      });
    const asked = asTask(await client.sendMessage(ask("Let me choose a section about drinks", "m1")));
    assert.equal(asked.status?.state, TaskState.TASK_STATE_INPUT_REQUIRED);
    const [text, options] = asked.status.message?.parts ?? [];
    assert.deepEqual(textsOf(text && [text]), ["Which section do you want to read?"]);
    assert.deepEqual(options?.content, {
      $case: "data",
      value: {
        options: [
          { id: "1", label: "Filter coffee" },
          { id: "2", label: "Green tea" },
        ],
      },
    });
    const repeated = asTask(await client.sendMessage(ask("Let me choose a section about drinks", "m1")));
    assert.equal(repeated.id, asked.id);

    const unclear = asTask(await client.sendMessage(reply("cocoa", "m2", asked)));
    assert.equal(unclear.status?.state, TaskState.TASK_STATE_INPUT_REQUIRED);
    await agent.stop();
    await agent.start();
    const chosen = asTask(await client.sendMessage(reply("the green tea, please", "m3", asked)));
    assert.equal(chosen.id, asked.id);
    assert.equal(chosen.status?.state, TaskState.TASK_STATE_COMPLETED);
    assert.equal(
      answerOf(chosen),
      "`tea.md` — **Tea › Green tea**\n\n> Green tea is steeped for two minutes.",
    );
    assert.equal(asTask(await client.sendMessage(reply("the green tea, please", "m3", asked))).id, asked.id);
  });

  it("a task that waits for its caller can be cancelled", async (t) => {
    const agent = await testAgent(t);
    const client = await agent.client("org-b-client");
    const { id } = asTask(await client.sendMessage(ask("let me choose", "m1")));
    const canceled = await client.cancelTask(CancelTaskRequest.fromJSON({ id }));
    assert.equal(canceled.status?.state, TaskState.TASK_STATE_CANCELED);
  });

  it("an answer as a file is a short text and a Markdown file", async (t) => {
    const agent = await testAgent(t);
    const client = await agent.client("org-b-client");
    const task = asTask(
      await client.sendMessage(ask("How long is green tea steeped? Answer as a file", "m1")),
    );
    const [text, file] = task.artifacts.flatMap(({ parts }) => parts);
    assert.deepEqual(textsOf(text && [text]), ["The answer is in the file `answer.md`."]);
    assert.deepEqual([file?.filename, file?.mediaType], ["answer.md", "text/markdown"]);
    assert.ok(file?.content?.$case === "raw");
    assert.match(Buffer.from(file.content.value).toString(), /> Green tea is steeped for two minutes\.\n$/);
  });

  it("a text file that comes with a question is answered from, and one without a question is quoted", async (t) => {
    const agent = await testAgent(t);
    const client = await agent.client("org-b-client");
    const text = "# Voyage\n## Cargo\nTwelve barrels of herring.\n## Crew\nFour sailors and a cook.\n";
    const file = {
      ...{ filename: "voyage.md", mediaType: "text/markdown" },
      raw: Buffer.from(text).toString("base64"),
    };
    const asked = async (messageId: string, ...parts: object[]) => {
      const message = { messageId, role: "ROLE_USER", parts };
      return answerOf(asTask(await client.sendMessage(SendMessageRequest.fromJSON({ message }))));
    };
    assert.equal(
      await asked("m1", { text: "How many barrels of herring?" }, file),
      "`voyage.md` — **Voyage › Cargo**\n\n> Twelve barrels of herring.",
    );
    assert.match(
      await asked("m2", { text: "How long is green tea steeped?" }, file),
      /^Not found: the attached/,
    );
    assert.match(await asked("m3", file), /Twelve barrels.*Four sailors/s);
    const other = await asked("m4", { text: "green tea?" }, { ...file, mediaType: "image/png" });
    assert.match(other, /two minutes/);
  });

  it("a question that the documents do not answer is answered by not found", async (t) => {
    const agent = await testAgent(t);
    const client = await agent.client("org-b-client");
    const task = asTask(await client.sendMessage(ask("How tall is the Eiffel tower?", "m1")));
    assert.equal(task.status?.state, TaskState.TASK_STATE_COMPLETED);
    assert.match(answerOf(task), /^Not found:/);
  });

  it("a repeated messageId finds its task: while it runs, when done, by any method, and after a restart", async (t) => {
    const work = held();
    const agent = await testAgent(t, { answer: work.answer });
    const client = await agent.client("org-b-client");
    const other = await agent.client("org-b-client", "HTTP+JSON");
    const first = asTask(await client.sendMessage(ask("x", "m1", true)));
    const again = asTask(await other.sendMessage(ask("x", "m1", true)));
    const blocking = client.sendMessage(ask("x", "m1"));
    const streamed = read(client.sendMessageStream(ask("x", "m1")));
    work.release("done");
    assert.equal(again.id, first.id);
    assert.equal(asTask(await blocking).id, first.id);
    assert.match((await streamed).at(-1) ?? "", /:TASK_STATE_COMPLETED$/);
    await agent.stop();
    await agent.start();
    const after = asTask(await client.sendMessage(ask("x", "m1")));
    assert.equal(after.id, first.id);
    assert.equal(answerOf(after), "done");
    assert.deepEqual(await read(client.sendMessageStream(ask("x", "m1"))), ["task:TASK_STATE_COMPLETED"]);
    assert.equal(work.asked(), 1);
  });

  it("twenty copies of a message at once make one task", async (t) => {
    const agent = await testAgent(t);
    const client = await agent.client("org-b-client");
    const results = await Promise.all(
      Array.from({ length: 20 }, (_, index) => client.sendMessage(ask("green tea", "m1", index % 2 === 0))),
    );
    assert.equal(new Set(results.map((result) => asTask(result).id)).size, 1);
    const { totalSize } = await client.listTasks(ListTasksRequest.fromJSON({}));
    assert.equal(totalSize, 1);
  });

  it("a repeated messageId with another text is refused, and the first task is kept", async (t) => {
    const agent = await testAgent(t);
    const client = await agent.client("org-b-client");
    await client.sendMessage(ask("green tea", "m1"));
    await assert.rejects(client.sendMessage(ask("black tea", "m1")), /used before/);
  });

  it("message IDs and tasks are each caller's own", async (t) => {
    const agent = await testAgent(t);
    const one = await agent.client("org-b-client");
    const two = await agent.client("org-c-client");
    const first = asTask(await one.sendMessage(ask("green tea", "m1")));
    const second = asTask(await two.sendMessage(ask("green tea", "m1")));
    assert.notEqual(first.id, second.id);
    await assert.rejects(two.getTask(GetTaskRequest.fromJSON({ id: first.id })), /not found/i);
    await assert.rejects(two.cancelTask(CancelTaskRequest.fromJSON({ id: first.id })), /not found/i);
    const listed = await two.listTasks(ListTasksRequest.fromJSON({}));
    assert.deepEqual(
      listed.tasks.map(({ id }) => id),
      [second.id],
    );
  });

  it("a task that a crash left unfinished is finished at the next start, never WORKING for ever", async (t) => {
    const lost = new Promise<string>(() => undefined);
    let crashed = false;
    const agent = await testAgent(t, { answer: async () => (crashed ? "second life" : lost) });
    const client = await agent.client("org-b-client");
    const { id } = asTask(await client.sendMessage(ask("x", "m1", true)));
    // What is on disk now is what a killed process would leave.
    crashed = true;
    await agent.stop();
    await agent.start();
    const task = await client.getTask(GetTaskRequest.fromJSON({ id }));
    assert.equal(task.status?.state, TaskState.TASK_STATE_COMPLETED);
    assert.equal(answerOf(task), "second life");
  });

  it("a stream is run to its end when its reader goes away", async (t) => {
    const work = held();
    const agent = await testAgent(t, { answer: work.answer });
    const client = await agent.client("org-b-client");
    const stream = client.sendMessageStream(ask("x", "m1"));
    await stream.next();
    await stream.return();
    work.release("done");
    const task = asTask(await client.sendMessage(ask("x", "m1")));
    assert.equal(answerOf(task), "done");
  });

  it("the text of an internal error reaches neither the caller nor the log", async (t) => {
    const agent = await testAgent(t, {
      answer: async () => {
        throw new Error("canary-inside");
      },
    });
    const client = await agent.client("org-b-client");
    const task = asTask(await client.sendMessage(ask("canary-question", "m1")));
    assert.equal(task.status?.state, TaskState.TASK_STATE_FAILED);
    assert.doesNotMatch(JSON.stringify(task), /canary-inside/);
    assert.match(agent.log(), /task_failed/);
    assert.doesNotMatch(agent.log(), /canary/);
  });

  it("a message without text is rejected", async (t) => {
    const agent = await testAgent(t);
    const client = await agent.client("org-b-client");
    const request = SendMessageRequest.fromJSON({
      message: { messageId: "m1", role: "ROLE_USER", parts: [{ data: { a: 1 } }] },
    });
    assert.equal(asTask(await client.sendMessage(request)).status?.state, TaskState.TASK_STATE_REJECTED);
  });

  it("stored tasks are this user's alone, and no half-written file is left", async (t) => {
    const agent = await testAgent(t);
    const client = await agent.client("org-b-client");
    const { id } = asTask(await client.sendMessage(ask("green tea", "m1")));
    const files = readdirSync(join(agent.folder, "tasks"));
    assert.deepEqual(files.sort(), [`${id}.json`, "agent-card.json"].sort());
    assert.match(readFileSync(join(agent.folder, "tasks", `${id}.json`), "utf8"), /TASK_STATE_COMPLETED/);
  });
});
