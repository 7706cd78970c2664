// How much is read of each agent in the long run, however many of its tasks are open: to take in what an agent says holds up
// everything else in the process. Invariant: one that has sent more rests, but nothing that was begun is broken off.
import type { Clock } from "../../domain/clock.ts";
import type { AgentId } from "../../domain/identifiers.ts";

const BYTES_PER_MS = (4 * 1024 * 1024) / 1_000;
/** What an agent may send besides, after it has sent nothing for so long. */
const BURST_MS = 10_000;
/** A clock that was set back must not have an agent rest longer. */
const REST_MS_MAX = 10 * 60_000;

export type ReadPace = ReturnType<typeof createReadPace>;

export function createReadPace(clock: Pick<Clock, "now">) {
  /** When what was read of an agent would have come at that pace. */
  const dueAt = new Map<AgentId, number>();
  const restMs = (agent: AgentId): number => {
    const ms = (dueAt.get(agent) ?? 0) - clock.now();
    return ms > REST_MS_MAX ? 0 : Math.max(0, ms);
  };
  return {
    restMs,
    read(agent: AgentId, bytes: number): void {
      const now = clock.now();
      const known = Math.max(dueAt.get(agent) ?? 0, now - BURST_MS);
      dueAt.set(agent, Math.min(known + bytes / BYTES_PER_MS, now + REST_MS_MAX));
    },
  };
}
