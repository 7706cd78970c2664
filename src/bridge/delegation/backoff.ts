// How long to wait before something is tried again. Invariants: never less than half a second, never more
// than half a minute, doubling between; jitter keeps those who failed together from returning together.
import type { Random } from "../../domain/clock.ts";
import { type Backoff, backoffMs } from "../../runtime/backoff.ts";

const BACKOFF: Backoff = { firstMs: 500, maxMs: 30_000 };

/**
 * Milliseconds to wait before the next try: between half and all of the doubled wait.
 * @param attempts tries made before this one, from 0
 */
export function jitteredBackoffMs(attempts: number, random: Random): number {
  const share = random.bytes(4).readUInt32BE() / 2 ** 32;
  const doubled = backoffMs(BACKOFF, attempts);
  return Math.max(BACKOFF.firstMs, Math.round(doubled * (0.5 + share / 2)));
}
