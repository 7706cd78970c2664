// One worker thread of machines as the bridge uses it: calls, answers, its end, and its replacement.
// Invariants: each call is answered once, at the latest by the thread's end; what the thread prints is dropped,
// because the library prints what it panics on; a thread that ends again and again is replaced later each time.
import { Worker } from "node:worker_threads";
import type { Clock } from "../../domain/clock.ts";
import type { GhostMxid } from "../../domain/identifiers.ts";
import { resultWithin, Serial } from "../../runtime/concurrency.ts";
import {
  createOutbox,
  type FromThread,
  type ThreadData,
  type ThreadErrorKind,
  type ToThread,
} from "./thread-protocol.ts";

// Run from its source or, in the npm package, compiled beside this file.
const ENTRY = new URL(
  import.meta.url.endsWith(".ts") ? "./machine-thread-entry.ts" : "./machine-thread-entry.js",
  import.meta.url,
);

/** Without a limit the garbage of many small reads makes up most of a thread's memory. */
const YOUNG_GENERATION_MB_MAX = 6;
const CLOSE_WAIT_MS = 5_000;
const RESTART_FIRST_MS = 100;
const RESTART_MS_MAX = 30_000;
/** A thread that lived as long as this is replaced without a wait. */
const HEALTHY_AFTER_MS = 60_000;

export class ThreadRefusal extends Error {
  readonly kind: ThreadErrorKind;
  constructor(kind: ThreadErrorKind) {
    super(`the thread of the ghost's machine answered: ${kind}`);
    this.kind = kind;
  }
}

export class ThreadEnded extends Error {}

type WithoutId<Message> = Message extends ToThread ? Omit<Message, "id"> : never;

export interface ThreadEvents {
  /** The machine of this ghost is ahead of its store, and was closed. */
  lost(ghost: GhostMxid, why: ThreadErrorKind): void;
  ended(): void;
}

type MachineThread = ReturnType<typeof startMachineThread>;

export function startMachineThread(data: ThreadData, clock: Clock, on: ThreadEvents, entry: URL = ENTRY) {
  const worker = new Worker(entry, {
    workerData: data,
    stdout: true,
    stderr: true,
    resourceLimits: { maxYoungGenerationSizeMb: YOUNG_GENERATION_MB_MAX },
  });
  worker.stdout.resume();
  worker.stderr.resume();
  const waiting = new Map<number, PromiseWithResolvers<unknown>>();
  let lastId = 0;
  let hasEnded = false;
  let stopped = false;
  const end = () => {
    if (hasEnded) return;
    hasEnded = true;
    for (const { reject } of waiting.values()) reject(new ThreadEnded("the thread has ended"));
    waiting.clear();
    if (!stopped) on.ended();
  };
  worker.on("error", end);
  worker.on("exit", end);
  const receive = (message: FromThread) => {
    if ("lost" in message) {
      on.lost(message.lost, message.why);
      return;
    }
    const call = waiting.get(message.id);
    waiting.delete(message.id);
    if ("error" in message) call?.reject(new ThreadRefusal(message.error));
    else call?.resolve(message.result);
  };
  worker.on("message", (messages: readonly FromThread[]) => messages.forEach(receive));
  const outbox = createOutbox<ToThread>(
    (messages) => worker.postMessage(messages),
    queueMicrotask,
    ({ id }) => receive({ id, error: "refused" }),
  );
  const ask = async (message: WithoutId<ToThread>): Promise<unknown> => {
    if (hasEnded) throw new ThreadEnded("the thread has ended");
    const id = ++lastId;
    const answer = Promise.withResolvers<unknown>();
    waiting.set(id, answer);
    outbox.put({ ...message, id });
    return answer.promise;
  };
  return {
    ask,
    /** Lets the thread finish the calls made so far, then ends it. */
    stop: async () => {
      stopped = true;
      await resultWithin(clock, CLOSE_WAIT_MS, ask({ do: "close" })).catch(() => undefined);
      await worker.terminate();
    },
  };
}

export interface ThreadDependencies extends ThreadData {
  readonly clock: Clock;
  /** Instead of the thread of this folder. */
  readonly threadEntry?: URL;
}

export class ReplacedThread {
  readonly #deps: ThreadDependencies;
  readonly #on: ThreadEvents;
  /** For what might end the thread, with nothing else of the kind beside it. */
  readonly alone = new Serial();
  readonly #closing = new AbortController();
  #thread: Promise<MachineThread>;
  #startedAt = 0;
  #waitMs = 0;

  constructor(deps: ThreadDependencies, on: ThreadEvents) {
    this.#deps = deps;
    this.#on = on;
    this.#thread = Promise.resolve(this.#start());
  }

  #start(): MachineThread {
    const { databaseUrl, policy, clock, threadEntry } = this.#deps;
    this.#startedAt = clock.now();
    const ended = () => {
      this.#thread = this.#replace();
      // Whoever calls meanwhile gets the rejection.
      this.#thread.catch(() => undefined);
      this.#on.ended();
    };
    return startMachineThread({ databaseUrl, policy }, clock, { lost: this.#on.lost, ended }, threadEntry);
  }

  async #replace(): Promise<MachineThread> {
    const { clock } = this.#deps;
    const lived = clock.now() - this.#startedAt;
    this.#waitMs =
      lived >= HEALTHY_AFTER_MS ? 0 : Math.min(Math.max(RESTART_FIRST_MS, 2 * this.#waitMs), RESTART_MS_MAX);
    await clock.sleep(this.#waitMs, this.#closing.signal);
    return this.#start();
  }

  async ask(message: WithoutId<ToThread>): Promise<unknown> {
    const thread = await this.#thread.catch(() => {
      throw new ThreadEnded("the threads are closed");
    });
    return thread.ask(message);
  }

  async close(): Promise<void> {
    this.#closing.abort();
    const thread = await this.#thread.catch(() => undefined);
    await thread?.stop();
  }
}
