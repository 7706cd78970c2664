// What is known of a request that a crash left unanswered: here of an answer to an agent's question.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { settleEarlier } from "../../../../src/bridge/delegation/unanswered-request.ts";

function settle(now: number, messageIds: readonly string[], of: { key?: string; storingUntil?: number }) {
  const { key: questionKey, storingUntil } = of;
  const task = { kind: "task", taskId: "t", phase: "input_required", statusKey: questionKey, messageIds };
  const client = { dedupes: false, getTask: async () => task } as never;
  const times = { triedAt: 0, admittedAt: 0, storingUntil };
  const claimed = { ...times, a2aMessageId: "answer", a2aTaskId: "t", questionKey };
  const { signal } = new AbortController();
  const running = { now, signal, deps: { limits: { dispatchDeadline: 5_000 } }, claimed } as never;
  return settleEarlier(running, client);
}

describe("settling an earlier request", () => {
  for (const [shown, key, messageIds, expected] of [
    ["a history without the answer", "k", ["question"], "absent"],
    ["a history without the answer, and a question without a name,", undefined, ["question"], "absent"],
    ["a history with the answer", "k", ["question", "answer"], "task"],
    ["no history", "k", [], "outcome_unknown"],
  ] as const) {
    it(`an answer whose task still waits and shows ${shown} is taken as ${expected} [INT-2]`, async () => {
      const earlier = await settle(0, messageIds, key === undefined ? {} : { key });
      const verdict = earlier.kind === "decided" ? earlier.verdict : undefined;
      assert.equal(verdict?.kind === "finish" ? verdict.outcome.reason : earlier.kind, expected);
    });
  }

  for (const [shows, messageIds] of [
    ["surely shows no such message", ["question"]],
    ["cannot show whether it has the message", []],
  ] as const) {
    it(`while the agent may be storing it, a task that ${shows} is looked at once more, and decides after that [INT-2]`, async () => {
      const storingUntil = 2_000;
      const later = { kind: "defer", wakeAt: storingUntil, reason: "outcome_unknown" };
      const looked = await settle(1_999, messageIds, { key: "k", storingUntil });
      assert.deepEqual(looked, { kind: "decided", verdict: later });
      // Past the deadline too.
      assert.deepEqual(await settle(6_000, messageIds, { key: "k", storingUntil: 6_001 }), {
        kind: "decided",
        verdict: { ...later, wakeAt: 6_001 },
      });
      const again = await settle(2_000, messageIds, { key: "k", storingUntil });
      assert.notDeepEqual(again, looked);
      assert.ok(again.kind === "absent" || (again.kind === "decided" && again.verdict.kind === "finish"));
    });
  }

  it("a task that is found is taken at once, though the agent may have been storing it [INT-2]", async () => {
    const found = await settle(0, ["question", "answer"], { key: "k", storingUntil: 2_000 });
    assert.equal(found.kind, "task");
  });
});
