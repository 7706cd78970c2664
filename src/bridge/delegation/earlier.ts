// What to do about a request that a crash or a broken connection left unanswered: the agent may have it.
// Invariants: nothing is sent again unless the agent dedupes by messageId or its list shows that it has no
// such task; where neither can be had the delegation ends `outcome_unknown` rather than guess.
// See docs/decisions/0005-dispatch-at-most-once.md.
import type { AgentClient } from "./a2a/agent-client.ts";
import { A2aFailure } from "./a2a/failure.ts";
import { findTask } from "./a2a/find-task.ts";
import type { TaskView } from "./a2a/protocol.ts";
import type { Flow } from "./flow.ts";
import { failed, SEND_VERDICTS } from "./outcome.ts";
import { again, dispatchDeadline } from "./retry.ts";
import { finish, type Verdict } from "./verdict.ts";

export type Earlier =
  | { readonly kind: "task"; readonly task: TaskView }
  /** The agent surely has no task of ours. */
  | { readonly kind: "absent" }
  /** The agent may have a task of ours, and will know the repetition for what it is. */
  | { readonly kind: "repeat" }
  | { readonly kind: "decided"; readonly verdict: Verdict };

export async function settleEarlier(flow: Flow, client: AgentClient): Promise<Earlier> {
  const { a2aMessageId, admittedAt } = flow.claimed;
  const isLate = () => flow.now >= dispatchDeadline(flow);
  if (client.dedupes && !isLate()) return { kind: "repeat" };
  try {
    const found = await findTask(client, a2aMessageId, admittedAt, flow.signal);
    if (found.kind === "found") return { kind: "task", task: found.task };
    if (found.kind === "unusable") return ended("outcome_unknown");
    return isLate() ? ended("dispatch_deadline_exceeded") : found;
  } catch (error) {
    if (!(error instanceof A2aFailure)) throw error;
    const verdict = SEND_VERDICTS[error.kind];
    if (verdict.kind === "end") return ended("outcome_unknown");
    return { kind: "decided", verdict: again(flow, verdict.reason, false, error.retryAfterMs) };
  }
}

function ended(reason: "outcome_unknown" | "dispatch_deadline_exceeded"): Earlier {
  return { kind: "decided", verdict: finish(failed("dispatch", reason)) };
}
