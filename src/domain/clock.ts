// Time and randomness, passed in everywhere. This is the one file that may read the machine's own.
import { randomBytes } from "node:crypto";

export interface Clock {
  /** Milliseconds since the Unix epoch. */
  now(): number;
  /** Resolves after `delayMs`, or rejects with the signal's reason when it aborts first. */
  sleep(delayMs: number, signal?: AbortSignal): Promise<void>;
}

/** A source of randomness; `bytes(n)` returns n unpredictable bytes. */
export interface Random {
  bytes(length: number): Buffer;
}

export const systemClock: Clock = {
  now: () => Date.now(),
  sleep: (delayMs, signal) =>
    new Promise((resolve, reject) => {
      if (signal?.aborted) {
        reject(signal.reason);
        return;
      }
      const onAbort = () => {
        clearTimeout(timer);
        reject(signal?.reason);
      };
      const timer = setTimeout(() => {
        signal?.removeEventListener("abort", onAbort);
        resolve();
      }, delayMs);
      signal?.addEventListener("abort", onAbort, { once: true });
    }),
};

// Asking the system for a few bytes at a time costs far more than the bytes; a block serves many callers.
const BLOCK_BYTES = 4_096;
let block = Buffer.alloc(0);

export const systemRandom: Random = {
  bytes: (length) => {
    if (length > BLOCK_BYTES / 4) return randomBytes(length);
    if (block.length < length) block = randomBytes(BLOCK_BYTES);
    const bytes = Buffer.from(block.subarray(0, length));
    block = block.subarray(length);
    return bytes;
  },
};
