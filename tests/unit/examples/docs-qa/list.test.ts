import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { ListTasksRequest, type Task, TaskState } from "@a2a-js/sdk";
import fc from "fast-check";
import { listTasks } from "../../../../examples/docs-qa/task/list.ts";

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

describe("list", () => {
  it("pages follow each other without a gap or a repeat, newest first", () => {
    fc.assert(
      fc.property(
        fc.array(fc.nat(5), { maxLength: 30 }),
        fc.integer({ min: 1, max: 7 }),
        (seconds, pageSize) => {
          const tasks = seconds.map((second, index) => task(`t${String(index).padStart(2, "0")}`, second));
          const seen: string[] = [];
          let pageToken = "";
          do {
            const page = listTasks(tasks, request({ pageSize, pageToken }));
            assert.equal(page.totalSize, tasks.length);
            seen.push(...page.tasks.map(({ id }) => id));
            pageToken = page.nextPageToken;
          } while (pageToken !== "");
          assert.equal(new Set(seen).size, tasks.length);
          const times = seen.map((id) => tasks.find((one) => one.id === id)?.status?.timestamp ?? "");
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

  it("a page token that is not ours gives no error and no task of before", () => {
    fc.assert(
      fc.property(fc.string(), (pageToken) => {
        assert.ok(listTasks([task("a", 1)], request({ pageToken })).tasks.length <= 1);
      }),
    );
  });
});
