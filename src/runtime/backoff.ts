// Waits that double between tries.
import type { Random } from "../domain/clock.ts";

export interface Backoff {
  readonly firstMs: number;
  readonly maxMs: number;
}

/** Doubling waits. @param attempts failures before this one. @param askedMs the least wait, such as by `Retry-After` */
export function backoffMs(backoff: Backoff, attempts: number, askedMs = 0): number {
  const doubled = backoff.firstMs * 2 ** Math.min(Math.max(attempts, 0), 30);
  return Math.max(askedMs, Math.min(doubled, backoff.maxMs));
}

/** The doubled wait, or as little as half of it, so that tries which failed together do not return together. */
export function jitteredBackoffMs(backoff: Backoff, attempts: number, random: Random): number {
  const share = random.bytes(4).readUInt32BE() / 2 ** 32;
  return Math.round(backoffMs(backoff, attempts) * (0.5 + share / 2));
}
