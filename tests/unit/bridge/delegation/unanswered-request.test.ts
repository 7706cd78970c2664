// What is known of an answer to an agent's question that a crash left unanswered.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { settleEarlier } from "../../../../src/bridge/delegation/unanswered-request.ts";

describe("settling an earlier request", () => {
  for (const [shown, key, messageIds, expected] of [
    ["a history without the answer", "k", ["question"], "absent"],
    ["a history without the answer, and a question without a name,", undefined, ["question"], "absent"],
    ["a history with the answer", "k", ["question", "answer"], "task"],
    ["no history", "k", [], "outcome_unknown"],
  ] as const) {
    it(`an answer whose task still waits and shows ${shown} is taken as ${expected} [INT-2]`, async () => {
      const task = { kind: "task", taskId: "t", phase: "input_required", statusKey: key, messageIds };
      const client = { dedupes: false, getTask: async () => task } as never;
      const claimed = { triedAt: 0, admittedAt: 0, a2aMessageId: "answer", a2aTaskId: "t", questionKey: key };
      const { signal } = new AbortController();
      const running = { now: 0, signal, deps: { limits: { dispatchDeadline: 1 } }, claimed } as never;
      const earlier = await settleEarlier(running, client);
      const verdict = earlier.kind === "decided" ? earlier.verdict : undefined;
      assert.equal(verdict?.kind === "finish" ? verdict.outcome.reason : earlier.kind, expected);
    });
  }
});
