// One program that is kept running. Invariants: at most one process at a time; a program that ends by
// itself is started again, ever more slowly while it keeps ending soon; one that was stopped stays so.
import type { Clock } from "../../src/domain/clock.ts";
import { type ProcessIdentity, signalProcess } from "../processes.ts";
import type { UnitStatus } from "./client.ts";
import type { RunningProgram } from "./launch.ts";
import type { UnitSpec } from "./unit-specs.ts";

export interface UnitDependencies {
  readonly clock: Clock;
  readonly launch: () => Promise<RunningProgram>;
  /** Whether the program answers as it should. */
  readonly isReady: () => Promise<boolean>;
  /** Called for every process that starts, before anything else happens with it. */
  readonly onProcess: (identity: ProcessIdentity | undefined) => void;
  readonly log: (message: string) => void;
  readonly logFile: string;
}

const PROBE_INTERVAL_MS = 50;
const BACKOFF_MS_MIN = 250;
const BACKOFF_MS_MAX = 10_000;
/** A program that was ready this long has started well: the next start is not delayed. */
const STABLE_AFTER_MS = 10_000;

export class Unit {
  readonly spec: UnitSpec;
  readonly #dependencies: UnitDependencies;
  #state: UnitStatus["state"] = "stopped";
  #since: number;
  #wanted = false;
  #program: RunningProgram | undefined;
  #restarts = 0;
  #readyAfterMs: number | null = null;
  #lastEnd: string | null = null;
  #running: Promise<void> | undefined;
  #wake = new AbortController();

  constructor(spec: UnitSpec, dependencies: UnitDependencies) {
    this.spec = spec;
    this.#dependencies = dependencies;
    this.#since = dependencies.clock.now();
  }

  status(): UnitStatus {
    return {
      name: this.spec.name,
      state: this.#state,
      pid: this.#program?.identity.pid ?? null,
      restarts: this.#restarts,
      since: this.#since,
      readyAfterMs: this.#readyAfterMs,
      lastEnd: this.#lastEnd,
      log: this.#dependencies.logFile,
    };
  }

  /**
   * Wants the program running.
   * @param after resolves when the program may be started
   */
  start(after: Promise<unknown> = Promise.resolve()): void {
    if (this.#wanted) return;
    this.#wanted = true;
    this.#wake = new AbortController();
    const before = this.#running;
    this.#enter("waiting");
    this.#running = (async () => {
      await before;
      await Promise.race([after, aborted(this.#wake.signal)]);
      await this.#keepRunning();
    })();
  }

  /** Ends the program and keeps it ended. Resolves when its process is gone. */
  async stop(): Promise<void> {
    this.#wanted = false;
    this.#wake.abort();
    const { clock } = this.#dependencies;
    const program = this.#program;
    if (program !== undefined) {
      this.#enter("stopping");
      signalProcess(program.identity, program.stopSignal);
      const patience = new AbortController();
      const timedOut = clock.sleep(this.spec.stopTimeoutMs, patience.signal).then(
        () => true,
        () => false,
      );
      if (await Promise.race([timedOut, program.ended.then(() => false)])) {
        this.#dependencies.log(`${this.spec.name} does not end in time: killed`);
        signalProcess(program.identity, "SIGKILL");
      }
      patience.abort();
    }
    await this.#running;
    this.#running = undefined;
    this.#enter("stopped");
  }

  /** Kills the program's process, as a crash would. */
  kill(): void {
    if (this.#program !== undefined) signalProcess(this.#program.identity, "SIGKILL");
  }

  /** Resolves when the program is ready, or no longer wanted. */
  async ready(): Promise<void> {
    while (this.#wanted && this.#state !== "ready") await this.#dependencies.clock.sleep(PROBE_INTERVAL_MS);
  }

  async #keepRunning(): Promise<void> {
    let failures = 0;
    while (this.#wanted) {
      const startedAt = this.#dependencies.clock.now();
      this.#enter("starting");
      const end = await this.#runOnce(startedAt);
      this.#lastEnd = end;
      if (!this.#wanted) break;
      const lasted = this.#readyAfterMs === null ? 0 : this.#dependencies.clock.now() - startedAt;
      failures = lasted > STABLE_AFTER_MS ? 0 : failures + 1;
      this.#restarts += 1;
      this.#enter("restarting");
      const delayMs = Math.min(BACKOFF_MS_MIN * 2 ** Math.max(failures - 1, 0), BACKOFF_MS_MAX);
      this.#dependencies.log(`${this.spec.name} ended (${end}); started again in ${delayMs} ms`);
      await this.#dependencies.clock.sleep(delayMs, this.#wake.signal).catch(() => undefined);
    }
  }

  /** Starts the program and waits for its end. */
  async #runOnce(startedAt: number): Promise<string> {
    this.#readyAfterMs = null;
    let program: RunningProgram;
    try {
      program = await this.#dependencies.launch();
    } catch (error) {
      return error instanceof Error ? error.message : String(error);
    }
    this.#program = program;
    this.#dependencies.onProcess(program.identity);
    // Stopped while it was being launched: stop() saw no process to signal.
    if (!this.#wanted) signalProcess(program.identity, program.stopSignal);
    let hasEnded = false;
    const ended = program.ended.finally(() => {
      hasEnded = true;
    });
    while (!hasEnded && this.#wanted && this.#readyAfterMs === null) {
      if (await this.#dependencies.isReady()) {
        this.#readyAfterMs = this.#dependencies.clock.now() - startedAt;
        this.#enter("ready");
      } else {
        await Promise.race([ended, this.#dependencies.clock.sleep(PROBE_INTERVAL_MS)]);
      }
    }
    const end = await ended;
    this.#program = undefined;
    this.#dependencies.onProcess(undefined);
    return end;
  }

  #enter(state: UnitStatus["state"]): void {
    this.#state = state;
    this.#since = this.#dependencies.clock.now();
  }
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}
