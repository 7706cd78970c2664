// How much is read of each agent in the long run, however many of its tasks are open: to take in what an agent says holds up
// everything else in the process. Invariant: one that has sent more rests, but nothing that was begun is broken off.
import type { Clock } from "../../domain/clock.ts";
import type { AgentId } from "../../domain/identifiers.ts";

const BYTES_PER_MS = (4 * 1024 * 1024) / 1_000;
/** What an agent may send besides, after it has sent nothing for so long. */
const BURST_MS = 10_000;
const REST_MS_MAX = 10 * 60_000;

export type ReadPace = ReturnType<typeof createReadPace>;

export function createReadPace(clock: Pick<Clock, "now">) {
  /** When what was read of an agent would have come at that pace, as of the last of it. */
  const reads = new Map<AgentId, { readonly dueAt: number; readonly at: number }>();
  const dueAtOf = (agent: AgentId): number => {
    const { dueAt, at } = reads.get(agent) ?? { dueAt: 0, at: 0 };
    // A clock that was set back must not have an agent rest longer.
    return clock.now() < at ? 0 : dueAt;
  };
  return {
    restMs: (agent: AgentId) => Math.max(0, dueAtOf(agent) - clock.now()),
    read(agent: AgentId, bytes: number): void {
      const now = clock.now();
      const known = Math.max(dueAtOf(agent), now - BURST_MS);
      reads.set(agent, { dueAt: Math.min(known + bytes / BYTES_PER_MS, now + REST_MS_MAX), at: now });
    },
  };
}
