// Telling an agent that nobody waits for its task any more.
// Invariants: best effort, for the delegation ends whatever the agent answers; canceling again does no harm; an agent that
// is no longer trusted is told nothing; a task that only the agent's list can name is looked for there.
import type { DelegationOutcome } from "../ledger/delegation-transitions.ts";
import type { AgentClient } from "./a2a/agent-client.ts";
import { findTask } from "./a2a/find-task.ts";
import { startLimit } from "./a2a/time-limit.ts";
import { type DelegationVerdict, finish } from "./outcomes.ts";
import { recheck } from "./recheck-policy.ts";
import type { RunningDelegation } from "./running-delegation.ts";

const CANCEL_TIMEOUT_MS = 5_000;

export async function cancelAndFinish(
  running: RunningDelegation,
  taskId: string | undefined,
  outcome: DelegationOutcome,
): Promise<DelegationVerdict> {
  await cancelTask(running, taskId);
  return finish(outcome);
}

/** @param known undefined when no answer of the agent has named the task */
export async function cancelTask(running: RunningDelegation, known: string | undefined): Promise<void> {
  if (known === undefined && !running.mayHaveTask) return;
  const { a2aMessageId, admittedAt } = running.claimed;
  const cancel = async (client: AgentClient, signal: AbortSignal) => {
    const found = known === undefined ? await findTask(client, a2aMessageId, admittedAt, signal) : undefined;
    const taskId = found?.kind === "found" ? found.task.taskId : known;
    if (taskId !== undefined) await client.cancelTask(taskId, signal);
  };
  try {
    const cleared = await recheck(running.deps, running.claimed);
    if (cleared.kind !== "cleared") return;
    const client = running.connect(cleared);
    const limit = startLimit(running.deps.clock, CANCEL_TIMEOUT_MS, running.signal);
    await Promise.race([cancel(client, limit.signal), limit.expired]).finally(limit.end);
  } catch {
    // The task may have ended, or the agent may be away: neither keeps the delegation open.
  }
}
