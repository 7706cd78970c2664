import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { ListTasksRequest, Message, type Task, TaskState } from "@a2a-js/sdk";
import fc from "fast-check";
import { DurableTaskStore, listTasks } from "../../../../examples/docs-qa/task/store.ts";
import { TaskFiles, type TaskScope } from "../../../../examples/docs-qa/task/task-files.ts";
import { DrawbridgeError } from "../../../../src/domain/errors.ts";
import { ManualClock } from "../../../support/manual-clock.ts";
import { temporaryFolder, writeFile } from "../../../support/temporary.ts";

const HOUR_MS = 3_600_000;
const SCOPE: TaskScope = { caller: "org-b-client", tenant: "" };
const id = (number: number) => `00000000-0000-4000-8000-${String(number).padStart(12, "0")}`;

function setUp(t: TestContext) {
  const folder = temporaryFolder(t);
  const clock = new ManualClock(Date.parse("2026-01-01T00:00:00Z"));
  const open = () => new DurableTaskStore({ files: new TaskFiles(folder), clock, retentionMs: HOUR_MS });
  const task = (number: number, state: TaskState): Task => ({
    id: id(number),
    contextId: "c",
    status: { state, message: undefined, timestamp: new Date(clock.now()).toISOString() },
    artifacts: [],
    history: [
      Message.fromJSON({
        messageId: `m${number}`,
        role: "ROLE_USER",
        parts: [{ text: `question ${number}` }],
      }),
      Message.fromJSON({ messageId: `answer${number}`, role: "ROLE_AGENT", parts: [{ text: "answer" }] }),
    ],
    metadata: undefined,
  });
  return { folder, clock, open, task };
}

const {
  TASK_STATE_WORKING: WORKING,
  TASK_STATE_COMPLETED: COMPLETED,
  TASK_STATE_CANCELED: CANCELED,
} = TaskState;

describe("the task store", () => {
  it("a final task never changes again, whoever writes last", async (t) => {
    const { open, task } = setUp(t);
    const store = open();
    await store.saveFor(SCOPE, task(1, CANCELED));
    await Promise.all([store.saveFor(SCOPE, task(1, WORKING)), store.saveFor(SCOPE, task(1, COMPLETED))]);
    assert.equal(store.findByMessage(SCOPE, "m1")?.status?.state, CANCELED);
    assert.equal(open().findByMessage(SCOPE, "m1")?.status?.state, CANCELED);
  });

  it("a saved task is found after a restart by its message, unchanged", async (t) => {
    const { open, task } = setUp(t);
    await open().saveFor(SCOPE, task(1, WORKING));
    const again = open();
    assert.deepEqual(again.findByMessage(SCOPE, "m1")?.history, task(1, WORKING).history);
    assert.deepEqual(
      again.unfinished().map((entry) => entry.task.id),
      [id(1)],
    );
    assert.equal(again.findByMessage(SCOPE, "answer1"), undefined);
    assert.equal(again.findByMessage({ ...SCOPE, caller: "org-c-client" }, "m1"), undefined);
    assert.equal(again.findByMessage({ ...SCOPE, tenant: "other" }, "m1"), undefined);
  });

  it("finished tasks are forgotten after their retention, with their messages and files; unfinished ones stay", async (t) => {
    const { folder, clock, open, task } = setUp(t);
    const store = open();
    await store.saveFor(SCOPE, task(1, COMPLETED));
    await clock.advance(HOUR_MS / 2);
    await store.saveFor(SCOPE, task(2, WORKING));
    await clock.advance(HOUR_MS / 2 + 1);
    await store.saveFor(SCOPE, task(3, COMPLETED));
    assert.equal(store.findByMessage(SCOPE, "m1"), undefined);
    assert.ok(store.findByMessage(SCOPE, "m2"));
    assert.deepEqual(readdirSync(folder).sort(), [`${id(2)}.json`, `${id(3)}.json`]);
  });

  it("a write that a crash cut short leaves nothing behind at the next start", async (t) => {
    const { folder, open } = setUp(t);
    writeFile(join(folder, `${id(1)}.json.0.part`), '{"format":1,');
    assert.deepEqual(open().unfinished(), []);
    assert.deepEqual(readdirSync(folder), []);
  });

  it("a stored file that is no task is an error that names it", (t) => {
    const { folder, open } = setUp(t);
    writeFile(join(folder, `${id(1)}.json`), '{"format":2}');
    assert.throws(
      open,
      (error) =>
        error instanceof DrawbridgeError && error.message.includes(id(1)) && error.hint !== undefined,
    );
  });

  it("waiting for a task ends when it is final, and at once when it does not exist", async (t) => {
    const { open, task } = setUp(t);
    const store = open();
    await store.whenSettled(id(9));
    await store.saveFor(SCOPE, task(1, WORKING));
    const notified: string[] = [];
    const waiting = store.whenSettled(id(1)).then(() => notified.push("final"));
    await store.saveFor(SCOPE, { ...task(1, WORKING), contextId: "d" });
    assert.deepEqual(notified, []);
    await store.saveFor(SCOPE, task(1, COMPLETED));
    await waiting;
    assert.deepEqual(notified, ["final"]);
  });
});

function task(id: string, second: number, contextId = "c", state = TaskState.TASK_STATE_COMPLETED): Task {
  return {
    id,
    contextId,
    status: { state, message: undefined, timestamp: new Date(second * 1_000).toISOString() },
    artifacts: [
      { artifactId: "a", name: "", description: "", parts: [], metadata: undefined, extensions: [] },
    ],
    history: [],
    metadata: undefined,
  };
}

const request = (value: object) => ListTasksRequest.fromJSON(value);

describe("ListTasks", () => {
  it("pages follow each other without a gap or a repeat, newest first", () => {
    fc.assert(
      fc.property(
        fc.array(fc.nat(5), { maxLength: 30 }),
        fc.integer({ min: 1, max: 7 }),
        (seconds, pageSize) => {
          const tasks = seconds.map((second, index) => task(`t${String(index).padStart(2, "0")}`, second));
          const listed: string[] = [];
          let pageToken = "";
          do {
            const page = listTasks(tasks, request({ pageSize, pageToken }));
            assert.equal(page.totalSize, tasks.length);
            listed.push(...page.tasks.map(({ id }) => id));
            pageToken = page.nextPageToken;
          } while (pageToken !== "");
          assert.equal(new Set(listed).size, tasks.length);
          const times = listed.map((id) => tasks.find((one) => one.id === id)?.status?.timestamp ?? "");
          assert.deepEqual(times, [...times].sort().reverse());
        },
      ),
    );
  });

  it("context, state and time filter; artifacts are left out unless asked for", () => {
    const tasks = [task("a", 1, "x"), task("b", 2, "y", TaskState.TASK_STATE_WORKING), task("c", 3, "y")];
    const ids = (value: object) => listTasks(tasks, request(value)).tasks.map(({ id }) => id);
    assert.deepEqual(ids({ contextId: "y" }), ["c", "b"]);
    assert.deepEqual(ids({ status: "TASK_STATE_WORKING" }), ["b"]);
    assert.deepEqual(ids({ statusTimestampAfter: new Date(1_000).toISOString() }), ["c", "b"]);
    assert.equal(listTasks(tasks, request({})).tasks[0]?.artifacts.length, 0);
    assert.equal(listTasks(tasks, request({ includeArtifacts: true })).tasks[0]?.artifacts.length, 1);
  });

  it("a foreign page token gives no error and no earlier task", () => {
    fc.assert(
      fc.property(fc.string(), (pageToken) => {
        assert.ok(listTasks([task("a", 1)], request({ pageToken })).tasks.length <= 1);
      }),
    );
  });
});
