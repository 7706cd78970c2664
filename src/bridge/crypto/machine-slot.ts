// The place of one thread: the thread that runs now, and after its end the next one.
// Invariant: a thread that ends right after it was started is replaced later each time, not in a loop.
import type { Clock } from "../../domain/clock.ts";
import type { GhostMxid } from "../../domain/identifiers.ts";
import { Serial } from "../../runtime/concurrency.ts";
import type { SenderPolicy } from "./machine-policy.ts";
import { type MachineThread, startMachineThread, ThreadEnded } from "./machine-thread.ts";
import type { ThreadErrorKind } from "./thread-protocol.ts";

const RESTART_FIRST_MS = 100;
const RESTART_MS_MAX = 30_000;
/** A thread that lived as long as this is replaced without a wait. */
const HEALTHY_AFTER_MS = 60_000;

export interface SlotDependencies {
  readonly databaseUrl: string;
  readonly policy: SenderPolicy;
  readonly clock: Clock;
  /** What a thread runs, when it is not the thread of this folder. */
  readonly threadEntry?: URL;
}

export class MachineSlot {
  readonly #deps: SlotDependencies;
  readonly #on: { lost(ghost: GhostMxid, why: ThreadErrorKind): void; ended(): void };
  readonly #alone = new Serial();
  readonly #closing = new AbortController();
  #thread: Promise<MachineThread>;
  #startedAt: number;
  #waitMs = 0;

  constructor(
    deps: SlotDependencies,
    on: { lost(ghost: GhostMxid, why: ThreadErrorKind): void; ended(): void },
  ) {
    this.#deps = deps;
    this.#on = on;
    this.#startedAt = deps.clock.now();
    this.#thread = Promise.resolve(this.#start());
  }

  #start(): MachineThread {
    const { databaseUrl, policy, clock, threadEntry } = this.#deps;
    this.#startedAt = clock.now();
    const ended = () => {
      this.#thread = this.#replace();
      // Whoever asks meanwhile is told.
      this.#thread.catch(() => undefined);
      this.#on.ended();
    };
    const on = { lost: this.#on.lost, ended };
    return startMachineThread({ databaseUrl, policy }, clock, on, threadEntry);
  }

  async #replace(): Promise<MachineThread> {
    const { clock } = this.#deps;
    const lived = clock.now() - this.#startedAt;
    this.#waitMs =
      lived >= HEALTHY_AFTER_MS ? 0 : Math.min(Math.max(RESTART_FIRST_MS, 2 * this.#waitMs), RESTART_MS_MAX);
    await clock.sleep(this.#waitMs, this.#closing.signal);
    return this.#start();
  }

  /** Asks the thread that runs now, or the next one when there is none. */
  async ask(question: Parameters<MachineThread["ask"]>[0]): Promise<unknown> {
    const thread = await this.#thread.catch(() => {
      throw new ThreadEnded("the threads are closed");
    });
    return thread.ask(question);
  }

  /** Runs what might end the thread, with nothing else of the kind beside it. */
  alone<Result>(work: () => Promise<Result>): Promise<Result> {
    return this.#alone.run(work);
  }

  async close(): Promise<void> {
    this.#closing.abort();
    const thread = await this.#thread.catch(() => undefined);
    await thread?.stop();
  }
}
