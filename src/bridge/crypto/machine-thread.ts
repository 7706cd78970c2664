// One worker thread as the bridge sees it: questions, answers, and its end.
// Invariants: each question is answered once, at the latest by the thread's end; what the thread prints is
// dropped, for the library prints what it panics on.
import { Worker } from "node:worker_threads";
import type { Clock } from "../../domain/clock.ts";
import type { GhostMxid } from "../../domain/identifiers.ts";
import { Outbox } from "./thread-outbox.ts";
import type { FromThread, ThreadData, ThreadErrorKind, ToThread } from "./thread-protocol.ts";

// Run from its source or, in the npm package, compiled beside this file.
const ENTRY = new URL(import.meta.url.endsWith(".ts") ? "./thread.ts" : "./thread.js", import.meta.url);

const CLOSE_WAIT_MS = 5_000;

/** The thread answered that it could not. */
export class ThreadRefusal extends Error {
  readonly kind: ThreadErrorKind;
  constructor(kind: ThreadErrorKind) {
    super(`the thread of the ghost's machine answered: ${kind}`);
    this.kind = kind;
  }
}

/** The thread ended before it answered. */
export class ThreadEnded extends Error {}

type Question<Message> = Message extends ToThread ? Omit<Message, "id"> : never;

export interface MachineThread {
  /** @throws ThreadRefusal, ThreadEnded */
  ask(question: Question<ToThread>): Promise<unknown>;
  /** Lets it end what it was asked before, then ends it. */
  stop(): Promise<void>;
}

/** Starts a thread. `onEnd` is called once when it ended without being stopped. */
export function startMachineThread(
  data: ThreadData,
  clock: Clock,
  on: {
    lost(ghost: GhostMxid, why: ThreadErrorKind): void;
    ended(): void;
  },
  entry: URL = ENTRY,
): MachineThread {
  const worker = new Worker(entry, { workerData: data, stdout: true, stderr: true });
  worker.stdout.resume();
  worker.stderr.resume();
  const waiting = new Map<number, PromiseWithResolvers<unknown>>();
  let lastId = 0;
  let over = false;
  let stopped = false;
  const end = () => {
    if (over) return;
    over = true;
    for (const { reject } of waiting.values()) reject(new ThreadEnded("the thread has ended"));
    waiting.clear();
    if (!stopped) on.ended();
  };
  worker.on("error", end);
  worker.on("exit", end);
  const hear = (message: FromThread) => {
    if ("lost" in message) {
      on.lost(message.lost, message.why);
      return;
    }
    const question = waiting.get(message.id);
    waiting.delete(message.id);
    if ("error" in message) question?.reject(new ThreadRefusal(message.error));
    else question?.resolve(message.result);
  };
  worker.on("message", (messages: readonly FromThread[]) => messages.forEach(hear));
  // What is asked in one turn goes as one message.
  const outbox = new Outbox<ToThread>((messages) => worker.postMessage(messages), queueMicrotask);
  const ask: MachineThread["ask"] = (question) => {
    if (over) return Promise.reject(new ThreadEnded("the thread has ended"));
    const id = ++lastId;
    const answer = Promise.withResolvers<unknown>();
    waiting.set(id, answer);
    outbox.put({ ...question, id });
    return answer.promise;
  };
  return {
    ask,
    stop: async () => {
      stopped = true;
      // One that does not even answer this is ended all the same.
      const patience = new AbortController();
      const given = clock.sleep(CLOSE_WAIT_MS, patience.signal).catch(() => undefined);
      await Promise.race([ask({ do: "close" }).catch(() => undefined), given]);
      patience.abort();
      await worker.terminate();
    },
  };
}
