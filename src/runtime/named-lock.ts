// A lock among the processes of this machine that the kernel gives back when its holder ends, however it
// ends: the name of an abstract Unix socket (unix(7)), which is in no file system and ends with its process.
import { createServer } from "node:net";
import type { Clock } from "../domain/clock.ts";
import { sha256 } from "../domain/digest.ts";
import { DrawbridgeError } from "../domain/errors.ts";

export interface NamedLock {
  release(): Promise<void>;
}

/** Hashed, because a socket's name has at most 107 bytes and a path may have more. */
const socketOf = (name: string): string => `\0drawbridge-${sha256(name).toString("hex").slice(0, 40)}`;

export function tryNamedLock(name: string): Promise<NamedLock | undefined> {
  const path = socketOf(name);
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

/** Waits for the lock. @throws DrawbridgeError `program_failed` when `holder` still has it after `timeoutMs` */
export async function namedLock(
  name: string,
  options: {
    readonly clock: Clock;
    readonly timeoutMs: number;
    readonly holder: string;
    readonly onWait?: (() => unknown) | undefined;
  },
): Promise<NamedLock> {
  const deadline = options.clock.now() + options.timeoutMs;
  let isReported = false;
  for (;;) {
    const lock = await tryNamedLock(name);
    if (lock !== undefined) return lock;
    if (!isReported) await options.onWait?.();
    isReported = true;
    if (options.clock.now() > deadline) {
      throw new DrawbridgeError("program_failed", `${options.holder} is still at work`, {
        hint: "Wait for it, or end it, and run this command again.",
      });
    }
    await options.clock.sleep(100);
  }
}
