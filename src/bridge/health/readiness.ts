// What a bridge process needs to be ready to take transactions: its database, and a homeserver that works with it.
// Invariant: the homeserver is checked by real requests, again until they succeed; nothing is ready before.
import type { Logger } from "pino";
import type { Clock } from "../../domain/clock.ts";
import { errorName } from "../../domain/errors.ts";
import type { Readiness } from "./health-server.ts";

const SELF_CHECK_RETRY_MS = 5_000;
const DATABASE_PROBE_MS = 2_000;

interface HomeserverReadinessOptions {
  readonly clock: Clock;
  readonly log: Logger;
}

/** What is known of the homeserver's side; checked by doing, until it works. */
export class HomeserverReadiness {
  readonly #options: HomeserverReadinessOptions;
  checks: readonly Readiness[] = [
    { name: "homeserver", ok: false, hint: "The self-check has not ended yet." },
  ];

  constructor(options: HomeserverReadinessOptions) {
    this.#options = options;
  }

  /** Looks again until all is well; rejects with the signal's reason when that ends a wait. */
  async settle(run: () => Promise<readonly Readiness[]>, ended: AbortSignal): Promise<void> {
    const { clock, log } = this.#options;
    for (;;) {
      try {
        this.checks = await run();
        const failed = this.checks.filter((check) => !check.ok);
        for (const { name, hint } of failed) log.warn({ check: name, hint }, "self-check");
        if (failed.length === 0) {
          log.info("the self-check passed");
          return;
        }
      } catch (error) {
        // The database, most likely; readiness says so itself. The check is made again.
        log.warn({ err: errorName(error) }, "the self-check failed");
      }
      await clock.sleep(SELF_CHECK_RETRY_MS, ended);
    }
  }
}

export async function databaseReadiness(pool: { query(text: string): Promise<unknown> }): Promise<Readiness> {
  const timeUp = AbortSignal.timeout(DATABASE_PROBE_MS);
  const late = new Promise<never>((_, reject) => {
    timeUp.addEventListener("abort", () => reject(timeUp.reason), { once: true });
  });
  try {
    await Promise.race([pool.query("SELECT 1"), late]);
    return { name: "database", ok: true };
  } catch {
    return {
      name: "database",
      ok: false,
      hint: "Start PostgreSQL, or correct `database` in the configuration.",
    };
  }
}
