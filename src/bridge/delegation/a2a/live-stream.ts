// A stream of updates that can be waited on for a while at a time. Invariants: no update is lost when a
// wait ends early; close() ends the connection whatever it is doing, and nothing rejects unheard.
import type { Clock } from "../../../domain/clock.ts";
import type { AgentUpdate } from "./protocol.ts";

export type StreamStep =
  | { readonly kind: "update"; readonly update: AgentUpdate }
  | { readonly kind: "ended" }
  | { readonly kind: "quiet" };

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

  /** The next step; `quiet` when there is none within `waitMs` (without a limit when undefined). */
  async next(waitMs?: number): Promise<StreamStep> {
    this.#pending ??= this.#updates.next();
    const timer = new AbortController();
    const waits: Promise<IteratorResult<AgentUpdate, void> | "quiet">[] = [this.#pending];
    if (waitMs !== undefined) waits.push(this.#quietAfter(waitMs, timer.signal));
    let result: IteratorResult<AgentUpdate, void> | "quiet";
    try {
      result = await Promise.race(waits);
    } catch (error) {
      this.#pending = undefined;
      throw error;
    } finally {
      timer.abort();
    }
    if (result === "quiet") return { kind: "quiet" };
    this.#pending = undefined;
    return result.done ? { kind: "ended" } : { kind: "update", update: result.value };
  }

  close(): void {
    this.#controller.abort(new Error("the stream was closed"));
    this.#pending?.catch(() => undefined);
    this.#updates.return().catch(() => undefined);
  }

  #quietAfter(waitMs: number, signal: AbortSignal): Promise<"quiet"> {
    return this.#clock.sleep(waitMs, signal).then(
      () => "quiet",
      () => "quiet",
    );
  }
}
