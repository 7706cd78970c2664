// Detects at once that the homeserver has stopped, and when it is back.
// Invariant: a request is always held open while the homeserver counts as up, except for a pause far shorter than any
// start of a homeserver; so every stop is detected, however short.
import type { Clock } from "../../domain/clock.ts";
import type { GhostMxid } from "../../domain/identifiers.ts";
import { backoffMs } from "../../runtime/backoff.ts";
import type { Ghosts } from "../matrix/ghosts.ts";
import type { Failure, Outcome } from "../matrix/request-result.ts";
import type { SyncApi } from "./sync-api.ts";

export interface HomeserverWatchOptions {
  readonly api: Pick<SyncApi, "position" | "wait" | "isServing">;
  readonly ghosts: Pick<Ghosts, "readyGhost">;
  readonly clock: Clock;
}

const PAUSE_MS = 100;
const BACK_POLL = { firstMs: 100, maxMs: 1_000 };
/** After a refusal, or an answer that asks to wait: neither means that the homeserver stopped. */
const REFUSED_PAUSE_MS = 5_000;

export class HomeserverWatch {
  readonly #options: HomeserverWatchOptions;
  #poll: () => void = () => undefined;

  constructor(options: HomeserverWatchOptions) {
    this.#options = options;
  }

  /**
   * Resolves when the homeserver has stopped, or may have, by a request held open as the first ghost that is not refused.
   * @throws the signal's reason
   */
  async stopped(ghosts: readonly GhostMxid[], signal: AbortSignal): Promise<void> {
    const { api, clock } = this.#options;
    let since: string | undefined;
    for (let refusals = 0; ; ) {
      signal.throwIfAborted();
      const ghost = ghosts[refusals % ghosts.length];
      if (ghost === undefined) throw new TypeError("there is no ghost to watch as");
      const ready = await this.#options.ghosts.readyGhost(ghost, signal);
      const reader = { ghost, signal };
      let outcome: Outcome<string>;
      if (ready.kind !== "ok") outcome = ready;
      else if (since === undefined) outcome = await api.position(reader);
      else outcome = await api.wait(reader, since);
      if (outcome.kind === "ok") {
        const isFirst = since === undefined;
        since = outcome.value;
        if (!isFirst) await clock.sleep(PAUSE_MS, signal);
      } else if (meansStopped(outcome)) {
        signal.throwIfAborted();
        return;
      } else {
        since = undefined;
        refusals += 1;
        await clock.sleep(REFUSED_PAUSE_MS, signal);
      }
    }
  }

  /** Resolves when the homeserver serves. @throws the signal's reason */
  async back(signal: AbortSignal): Promise<void> {
    const { api, clock } = this.#options;
    for (let attempts = 0; !(await api.isServing()); attempts++) {
      const waiting = new AbortController();
      this.#poll = () => waiting.abort();
      const either = AbortSignal.any([signal, waiting.signal]);
      await clock.sleep(backoffMs(BACK_POLL, attempts), either).catch(() => undefined);
      signal.throwIfAborted();
    }
  }

  poll(): void {
    this.#poll();
  }
}

function meansStopped(outcome: Failure): boolean {
  if (outcome.kind === "refused") return false;
  return ["network", "timeout", "server_error", "malformed"].includes(outcome.cause);
}
