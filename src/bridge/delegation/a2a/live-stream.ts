// A stream of updates that can be waited on for a while at a time. Invariants: no update is lost when a
// wait ends early; close() ends the connection whatever it is doing, and nothing rejects unheard.
import type { Clock } from "../../../domain/clock.ts";
import { resultWithin } from "../../../runtime/concurrency.ts";
import type { AgentUpdate } from "./protocol.ts";

export class LiveStream {
  readonly #updates: AsyncGenerator<AgentUpdate, void>;
  readonly #controller = new AbortController();
  readonly #clock: Clock;
  #pending: Promise<IteratorResult<AgentUpdate, void>> | undefined;

  /** @param open starts the stream; the signal it is given ends the connection */
  constructor(
    clock: Clock,
    parent: AbortSignal,
    open: (signal: AbortSignal) => AsyncGenerator<AgentUpdate, void>,
  ) {
    this.#clock = clock;
    this.#updates = open(AbortSignal.any([parent, this.#controller.signal]));
  }

  /** The next update; `quiet` when there is none within `waitMs` (without a limit when undefined). */
  async next(waitMs?: number): Promise<AgentUpdate | "ended" | "quiet"> {
    this.#pending ??= this.#updates.next();
    try {
      const next = await (waitMs === undefined
        ? this.#pending
        : resultWithin(this.#clock, waitMs, this.#pending));
      if (next === undefined) return "quiet";
      this.#pending = undefined;
      return next.done ? "ended" : next.value;
    } catch (error) {
      this.#pending = undefined;
      throw error;
    }
  }

  close(): void {
    this.#controller.abort(new Error("the stream was closed"));
    this.#pending?.catch(() => undefined);
    this.#updates.return().catch(() => undefined);
  }
}
