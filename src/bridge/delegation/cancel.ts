// Telling an agent that nobody waits for its task any more. Best effort: the delegation ends whatever the
// agent says, and an agent that is no longer trusted is told nothing.
import type { Flow } from "./flow.ts";
import { recheck } from "./recheck.ts";

const CANCEL_TIMEOUT_MS = 5_000;

export async function cancelTask(flow: Flow, taskId: string): Promise<void> {
  const timer = new AbortController();
  try {
    const cleared = await recheck(flow.deps, flow.claimed);
    if (cleared.kind !== "cleared") return;
    const limit = flow.deps.clock.sleep(CANCEL_TIMEOUT_MS, timer.signal).then(
      () => timer.abort(),
      () => undefined,
    );
    const signal = AbortSignal.any([flow.signal, timer.signal]);
    await Promise.race([flow.connect(cleared).cancelTask(taskId, signal), limit]);
  } catch {
    // The task may have ended, or the agent may be away: neither keeps the delegation open.
  } finally {
    timer.abort();
  }
}
