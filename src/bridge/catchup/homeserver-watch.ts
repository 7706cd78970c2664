// Notices at once that the homeserver has stopped, and when it is back.
// Invariant: a request is always held open while the homeserver counts as up, but for a pause far shorter
// than any start of a homeserver; so no stop goes unseen, however short.
import type { Clock } from "../../domain/clock.ts";
import type { GhostMxid } from "../../domain/identifiers.ts";
import { backoffMs } from "../../runtime/backoff.ts";
import type { Ghosts } from "../matrix/ghosts.ts";
import type { Outcome } from "../matrix/outcome.ts";
import type { SyncApi } from "./sync-api.ts";

export interface HomeserverWatchOptions {
  readonly api: Pick<SyncApi, "position" | "wait" | "isServing">;
  readonly ghosts: Pick<Ghosts, "readyGhost">;
  readonly clock: Clock;
}

/** Between two requests. */
const PAUSE_MS = 100;
const IS_BACK = { firstMs: 100, maxMs: 1_000 };
/** What is refused, or asks to wait, says nothing of a stop. */
const OTHER_MS = 5_000;

export class HomeserverWatch {
  readonly #options: HomeserverWatchOptions;
  #look: () => void = () => undefined;

  constructor(options: HomeserverWatchOptions) {
    this.#options = options;
  }

  /**
   * Resolves when the homeserver has stopped, or may have.
   * @param ghosts in whose name the request may be held open: the first that the homeserver does not refuse
   * @throws the signal's reason
   */
  async stopped(ghosts: readonly GhostMxid[], signal: AbortSignal): Promise<void> {
    const { api, clock } = this.#options;
    let since: string | undefined;
    for (let refusals = 0; ; ) {
      signal.throwIfAborted();
      const ghost = ghosts[refusals % ghosts.length];
      if (ghost === undefined) throw new TypeError("nobody to watch as");
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
        await clock.sleep(OTHER_MS, signal);
      }
    }
  }

  /**
   * Resolves when the homeserver serves.
   * @throws the signal's reason
   */
  async back(signal: AbortSignal): Promise<void> {
    const { api, clock } = this.#options;
    for (let attempts = 0; !(await api.isServing()); attempts++) {
      const waiting = new AbortController();
      this.#look = () => waiting.abort();
      const either = AbortSignal.any([signal, waiting.signal]);
      await clock.sleep(backoffMs(IS_BACK, attempts), either).catch(() => undefined);
      signal.throwIfAborted();
    }
  }

  /** The homeserver has spoken, so it is there: looks now. */
  look(): void {
    this.#look();
  }
}

function meansStopped(outcome: Exclude<Outcome<unknown>, { kind: "ok" }>): boolean {
  if (outcome.kind === "refused") return false;
  return ["network", "timeout", "server_error", "malformed"].includes(outcome.cause);
}
