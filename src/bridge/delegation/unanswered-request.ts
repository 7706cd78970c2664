// What becomes of a question whose request may have reached its agent without an answer
// (docs/decisions/0005-dispatch-at-most-once.md). Invariant: it is sent again only if the agent dedupes by messageId, or if its
// list shows no such task once it has had the time to store one; after its deadline it is looked for once more, and ends
// `outcome_unknown` if that does not show whether the agent has it.
import type { AgentClient } from "./a2a/agent-client.ts";
import { A2aFailure } from "./a2a/classify-failure.ts";
import { type FindResult, findTask } from "./a2a/find-task.ts";
import { isAnswered, type TaskView } from "./a2a/protocol.ts";
import { type DelegationVerdict, finish, UNKNOWN } from "./outcomes.ts";
import { dispatchDeadline, givenUp, retryOrGiveUp, SEND_VERDICTS } from "./retry-or-give-up.ts";
import type { RunningDelegation } from "./running-delegation.ts";

/** What is known of a request that a crash or a broken connection left unanswered. */
type Earlier =
  | { readonly kind: "task"; readonly task: TaskView }
  | { readonly kind: "absent" }
  /** The agent may have a task of ours, and recognises the repetition by its messageId. */
  | { readonly kind: "repeat" }
  | { readonly kind: "decided"; readonly verdict: DelegationVerdict };

export async function settleEarlier(running: RunningDelegation, client: AgentClient): Promise<Earlier> {
  const isLate = () => running.now >= dispatchDeadline(running);
  if (client.dedupes && !isLate()) return { kind: "repeat" };
  try {
    const { storingUntil } = running.claimed;
    const isEarly = storingUntil !== undefined && running.now < storingUntil;
    const found = await findEarlier(running, client);
    if (found.kind === "found") return { kind: "task", task: found.task };
    if (isEarly) return decided({ kind: "defer", wakeAt: storingUntil, reason: "outcome_unknown" });
    if (found.kind === "unusable") return decided(finish(UNKNOWN));
    return isLate() ? decided(finish(givenUp("dispatch_deadline_exceeded"))) : found;
  } catch (error) {
    if (!(error instanceof A2aFailure)) throw error;
    const verdict = SEND_VERDICTS[error.kind];
    if (verdict.kind === "end") return decided(finish(UNKNOWN));
    return decided(retryOrGiveUp(running, verdict.reason, "may_have", error.retryAfterMs));
  }
}

/**
 * Of an answer to a question the task is known: it has the answer once it shows the message, or another state. A task without
 * history shows neither that it has nor that it lacks it.
 */
async function findEarlier(running: RunningDelegation, client: AgentClient): Promise<FindResult> {
  const { a2aMessageId, a2aTaskId, admittedAt, questionKey } = running.claimed;
  if (a2aTaskId === undefined) return findTask(client, a2aMessageId, admittedAt, running.signal);
  const task = await client.getTask(a2aTaskId, running.signal, true);
  if (!isAnswered(task, questionKey, true) || task.messageIds.includes(a2aMessageId))
    return { kind: "found", task };
  return { kind: task.messageIds.length === 0 ? "unusable" : "absent" };
}

const decided = (verdict: DelegationVerdict): Earlier => ({ kind: "decided", verdict });
