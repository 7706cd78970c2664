import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { A2aFailure } from "../../../../../src/bridge/delegation/a2a/classify-failure.ts";
import { findTask } from "../../../../../src/bridge/delegation/a2a/find-task.ts";
import type { TaskView } from "../../../../../src/bridge/delegation/a2a/protocol.ts";

const ASKED_AT = Date.UTC(2026, 0, 1);
const HOUR_MS = 3_600_000;

const task = (taskId: string, messageIds: string[], updatedAt: number | undefined = ASKED_AT): TaskView => ({
  kind: "task",
  taskId,
  contextId: undefined,
  phase: "open",
  parts: [],
  statusKey: undefined,
  artifacts: [],
  messageIds,
  updatedAt,
});

function find(pages: (TaskView[] | A2aFailure)[], next = (page: number) => `page ${page + 1}`) {
  let page = 0;
  const client = {
    listTasks: async () => {
      const tasks = pages[page] ?? [];
      if (tasks instanceof A2aFailure) throw tasks;
      page += 1;
      return { tasks, next: page < pages.length ? next(page) : "" };
    },
  };
  const found = findTask(client, "mine", ASKED_AT, new AbortController().signal);
  return found.then((result) => ({ result, pages: page }));
}

describe("find task", () => {
  it("a task whose history has the messageId is found on any page [DEL-7]", async () => {
    const mine = task("t9", ["other", "mine"]);
    assert.deepEqual(await find([[task("t1", ["a"])], [task("t2", ["b"]), mine]]), {
      result: { kind: "found", task: mine },
      pages: 2,
    });
  });

  it("a page that is too large is read in smaller ones, down to one task [DEL-7]", async () => {
    const asked: number[] = [];
    const findWhereFit = (most: number) => {
      const listTasks = async ({ size }: { size: number }) => {
        asked.push(size);
        if (size > most) throw new A2aFailure("too_large");
        return { tasks: [task("t1", ["mine"])], next: "" };
      };
      return findTask({ listTasks }, "mine", ASKED_AT, new AbortController().signal);
    };
    assert.equal((await findWhereFit(1)).kind, "found");
    assert.equal((await findWhereFit(0)).kind, "unusable");
    assert.deepEqual(asked, [50, 5, 1, 50, 5, 1]);
  });

  it("the result is absent when the list was read to its end", async () => {
    assert.deepEqual((await find([[task("t1", ["a"])], [task("t2", ["b"])]])).result, { kind: "absent" });
    assert.deepEqual((await find([[]])).result, { kind: "absent" });
  });

  it("the list is read back to the question's time, and no further", async () => {
    const old = task("t3", ["c"], ASKED_AT - 2 * HOUR_MS);
    const pages = [[task("t1", ["a"])], [old], [task("t4", ["mine"])]];
    assert.deepEqual(await find(pages), { result: { kind: "absent" }, pages: 2 });
    // The agent's clock may be an hour behind.
    const behind = task("t3", ["c"], ASKED_AT - HOUR_MS);
    assert.equal((await find([[behind], [task("t4", ["mine"])]])).result.kind, "found");
  });

  it("the result is unusable when a recent task has no history", async () => {
    assert.deepEqual((await find([[task("t1", [])]])).result, { kind: "unusable" });
    const timeless = { ...task("t1", []), updatedAt: undefined };
    assert.deepEqual((await find([[timeless]])).result, { kind: "unusable" });
    const oldOnly = await find([[task("t1", [], ASKED_AT - 2 * HOUR_MS)]]);
    assert.deepEqual(oldOnly.result, { kind: "absent" });
  });

  it("the result is unusable when the list is endless or circular", async () => {
    const many = Array.from({ length: 40 }, (_, index) => [task(`t${index}`, ["a"])]);
    assert.deepEqual(await find(many), { result: { kind: "unusable" }, pages: 20 });
    const circle = await find(many, () => "again");
    assert.deepEqual(circle, { result: { kind: "unusable" }, pages: 2 });
  });

  for (const kind of ["unsupported", "protocol", "too_large", "agent_error"] as const) {
    it(`the result is unusable when the list fails with ${kind}`, async () => {
      assert.deepEqual((await find([new A2aFailure(kind)])).result, { kind: "unusable" });
    });
  }

  for (const kind of ["ambiguous", "throttled", "not_delivered", "unauthenticated", "forbidden"] as const) {
    it(`the search is to be repeated when the list fails with ${kind}`, async () => {
      await assert.rejects(find([new A2aFailure(kind)]), { kind });
    });
  }
});
