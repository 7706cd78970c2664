// A lock among the processes of this machine that the kernel gives back when its holder ends, however it
// ends: the name of an abstract Unix socket (unix(7)), which lives in no file system and outlives nobody.
import { createServer } from "node:net";
import type { Clock } from "../domain/clock.ts";
import { sha256 } from "../domain/digest.ts";
import { DrawbridgeError } from "../domain/errors.ts";

export interface NamedLock {
  release(): Promise<void>;
}

/** Takes the lock if nobody holds it. */
export function tryNamedLock(name: string): Promise<NamedLock | undefined> {
  // Hashed, because a socket's name has at most 107 bytes and a path may have more.
  const path = `\0drawbridge-${sha256(name).toString("hex").slice(0, 40)}`;
  return new Promise((resolve, reject) => {
    const server = createServer((socket) => socket.destroy());
    server.unref();
    server.once("error", (error: NodeJS.ErrnoException) => {
      if (error.code === "EADDRINUSE") resolve(undefined);
      else reject(error);
    });
    server.listen({ path }, () => {
      resolve({ release: () => new Promise((done) => server.close(() => done())) });
    });
  });
}

/**
 * Waits for the lock.
 * @param options `holder`: who may hold it, for the error; `onWait`: called once, when somebody else does
 * @throws DrawbridgeError `program_failed` when it is still held after `timeoutMs`
 */
export async function namedLock(
  name: string,
  options: {
    readonly clock: Clock;
    readonly timeoutMs: number;
    readonly holder: string;
    readonly onWait?: () => void;
  },
): Promise<NamedLock> {
  const deadline = options.clock.now() + options.timeoutMs;
  let told = false;
  for (;;) {
    const lock = await tryNamedLock(name);
    if (lock !== undefined) return lock;
    if (!told) options.onWait?.();
    told = true;
    if (options.clock.now() > deadline) {
      throw new DrawbridgeError("program_failed", `${options.holder} is still at work`, {
        mend: "Wait for it, or end it, and run this command again.",
      });
    }
    await options.clock.sleep(100);
  }
}
