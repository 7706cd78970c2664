// One worker thread of machines as the bridge uses it: calls, answers, its end, its replacement, and what is sent.
// Invariants: each call is answered once, at the latest by the thread's end, and a thread that leaves one unanswered for two
// minutes is ended; an error travels as its kind alone, and what the thread prints is dropped, because the library prints
// what it panics on; messages leave in the order in which they were put; a thread that ends again and again is replaced
// later each time.
import { Worker } from "node:worker_threads";
import type { Clock } from "../../domain/clock.ts";
import type { GhostMxid } from "../../domain/identifiers.ts";
import { resultWithin, Serial } from "../../runtime/concurrency.ts";
import type { DeviceTrustPolicy } from "./decrypt-event.ts";
import type { ClaimedStore, GhostMachine } from "./machine.ts";

// Run from its source or, in the npm package, compiled beside this file.
const ENTRY = new URL(
  import.meta.url.endsWith(".ts") ? "./machine-thread-entry.ts" : "./machine-thread-entry.js",
  import.meta.url,
);

/** Without a limit the garbage of many small reads makes up most of a thread's memory. */
const YOUNG_GENERATION_MB_MAX = 6;
const CLOSE_WAIT_MS = 5_000;
/**
 * A thread is ended once so many checks have found the same call to be the oldest: far longer than the largest store takes to
 * be opened. Checks are counted, because a process that was stopped for a while has not waited meanwhile.
 */
const CHECKS_MAX = 12;
const CHECK_MS = 10_000;
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

export interface ThreadEvents {
  /** The machine of this ghost is ahead of its store, and was closed. */
  lost(ghost: GhostMxid, why: ThreadErrorKind): void;
  ended(): void;
}

export interface ThreadDependencies extends ThreadData {
  readonly clock: Clock;
  /** Instead of the thread of this folder. */
  readonly threadEntry?: URL;
}

export type MachineThread = ReturnType<typeof createMachineThread>;

export function createMachineThread(deps: ThreadDependencies, on: ThreadEvents) {
  const { databaseUrl, policy, clock, threadEntry = ENTRY } = deps;
  const closing = new AbortController();
  let startedAt = 0;
  let waitMs = 0;

  function start() {
    startedAt = clock.now();
    const worker = new Worker(threadEntry, {
      workerData: { databaseUrl, policy } satisfies ThreadData,
      stdout: true,
      stderr: true,
      resourceLimits: { maxYoungGenerationSizeMb: YOUNG_GENERATION_MB_MAX },
    });
    worker.stdout.resume();
    worker.stderr.resume();
    const waiting = new Map<number, PromiseWithResolvers<unknown>>();
    let lastId = 0;
    let hasEnded = false;
    const end = () => {
      if (hasEnded) return;
      hasEnded = true;
      for (const { reject } of waiting.values()) reject(new ThreadEnded("the thread has ended"));
      waiting.clear();
      if (closing.signal.aborted) return;
      running = replace();
      // Whoever calls meanwhile gets the rejection.
      running.catch(() => undefined);
      on.ended();
    };
    const endWhenHung = async () => {
      let oldest: number | undefined;
      for (let checks = 0; !hasEnded && checks < CHECKS_MAX; ) {
        await clock.sleep(CHECK_MS, closing.signal);
        const [waitsLongest] = waiting.keys();
        checks = waitsLongest !== undefined && waitsLongest === oldest ? checks + 1 : 0;
        oldest = waitsLongest;
      }
      await worker.terminate();
    };
    // Closing ends the thread by itself.
    endWhenHung().catch(() => undefined);
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
    const ask = async (request: ThreadRequest): Promise<unknown> => {
      if (hasEnded) throw new ThreadEnded("the thread has ended");
      const id = ++lastId;
      const answer = Promise.withResolvers<unknown>();
      waiting.set(id, answer);
      outbox.put({ ...request, id });
      return answer.promise;
    };
    return { worker, ask };
  }

  async function replace() {
    const isHealthy = clock.now() - startedAt >= HEALTHY_AFTER_MS;
    waitMs = isHealthy ? 0 : Math.min(Math.max(RESTART_FIRST_MS, 2 * waitMs), RESTART_MS_MAX);
    await clock.sleep(waitMs, closing.signal);
    return start();
  }

  let running = Promise.resolve(start());
  return {
    /** For what might end the thread, with nothing else of the kind beside it. */
    alone: new Serial(),
    ask: async (request: ThreadRequest): Promise<unknown> => {
      const present = await running.catch(() => {
        throw new ThreadEnded("the threads are closed");
      });
      return present.ask(request);
    },
    /** Lets the thread finish the calls made so far, then ends it. */
    close: async () => {
      closing.abort();
      const present = await running.catch(() => undefined);
      if (present === undefined) return;
      await resultWithin(clock, CLOSE_WAIT_MS, present.ask({ do: "close" })).catch(() => undefined);
      await present.worker.terminate();
    },
  };
}

export type ThreadData = { readonly databaseUrl: string; readonly policy: DeviceTrustPolicy };

export type MachineCalls = Omit<GhostMachine, "identity" | "close">;
export type MachineCall = keyof MachineCalls;

type ThreadRequest =
  | { readonly do: "open"; readonly store: ClaimedStore }
  | { readonly do: "shut"; readonly ghost: GhostMxid }
  /** Shuts every machine and closes the database connections. */
  | { readonly do: "close" }
  | Readonly<{ do: "call"; ghost: GhostMxid; call: MachineCall; args: readonly unknown[] }>;

export type ToThread = ThreadRequest & { readonly id: number };

/** `refused`: the library refused what it was given. */
export type ThreadErrorKind = "foreign" | "fence_lost" | "database_unavailable" | "not_open" | "refused";

export type FromThread =
  | { readonly id: number; readonly result: unknown }
  | { readonly id: number; readonly error: ThreadErrorKind }
  /** The machine is ahead of its store, and was closed. */
  | { readonly lost: GhostMxid; readonly why: ThreadErrorKind };

/** Posts messages in one list, when the flush that the first one schedules is due; one that cannot be posted is left out. */
export function createOutbox<Message>(
  post: (messages: readonly Message[]) => void,
  schedule: (flush: () => void) => void,
  onUnpostable: (message: Message) => void,
) {
  let held: Message[] = [];
  const isPosted = (messages: readonly Message[]) => {
    try {
      post(messages);
      return true;
    } catch {
      return false;
    }
  };
  const flush = () => {
    const messages = held;
    held = [];
    if (messages.length === 0 || isPosted(messages)) return;
    for (const message of messages) if (!isPosted([message])) onUnpostable(message);
  };
  const put = (message: Message) => {
    held.push(message);
    if (held.length === 1) schedule(flush);
  };
  return { put, flush };
}
