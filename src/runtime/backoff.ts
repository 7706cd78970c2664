// How long to wait before the next try of something that failed.
import type { Random } from "../domain/clock.ts";

export interface Backoff {
  /** The wait after the first failure. */
  readonly firstMs: number;
  readonly maxMs: number;
}

/**
 * Doubling waits up to a longest one.
 * @param attempts failures before this one; 0 gives `firstMs`
 * @param askedMs the least that the other side asked for, such as by `Retry-After`
 */
export function backoffMs(backoff: Backoff, attempts: number, askedMs = 0): number {
  const doubled = backoff.firstMs * 2 ** Math.min(Math.max(attempts, 0), 30);
  return Math.max(askedMs, Math.min(doubled, backoff.maxMs));
}

/** The doubled wait, or as little as half of it, so that tries which failed together do not return together. */
export function jitteredBackoffMs(backoff: Backoff, attempts: number, random: Random): number {
  const share = random.bytes(4).readUInt32BE() / 2 ** 32;
  return Math.max(backoff.firstMs, Math.round(backoffMs(backoff, attempts) * (0.5 + share / 2)));
}
