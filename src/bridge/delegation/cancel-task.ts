// Telling an agent that nobody waits for its task any more.
// Invariants: best effort, for the delegation ends whatever the agent answers; canceling again does no harm; an agent that
// is no longer trusted is told nothing.
import { within } from "./a2a/time-limit.ts";
import { recheck } from "./recheck-policy.ts";
import type { Flow } from "./running-delegation.ts";

const CANCEL_TIMEOUT_MS = 5_000;

export async function cancelTask(flow: Flow, taskId: string): Promise<void> {
  try {
    const cleared = await recheck(flow.deps, flow.claimed);
    if (cleared.kind !== "cleared") return;
    await within(flow.deps.clock, CANCEL_TIMEOUT_MS, flow.signal, (signal) =>
      flow.connect(cleared).cancelTask(taskId, signal),
    );
  } catch {
    // The task may have ended, or the agent may be away: neither keeps the delegation open.
  }
}
