// The gauges of what waits in the database, read when the metrics are scraped.
// Invariants: at most one query in a few seconds, however often and by however many the metrics are scraped; a database
// that does not answer delays a scrape for a bounded time, and then what is unknown is NaN, never zero.
import type { Clock } from "../domain/clock.ts";
import type { GhostMxid } from "../domain/identifiers.ts";
import type { Waiting } from "./ledger/gauges.ts";
import { OPEN_STATES } from "./ledger/states.ts";
import type { Metrics } from "./metrics.ts";

const KEPT_MS = 5_000;
const PATIENCE_MS = 2_000;

export interface WaitingGaugesOptions {
  readonly metrics: Metrics;
  readonly read: (ghosts: readonly GhostMxid[]) => Promise<Waiting>;
  /** The ghosts that have agents. */
  readonly ghosts: () => Promise<readonly GhostMxid[]>;
  readonly clock: Clock;
}

/** Returns what brings the gauges up to date; it never rejects. */
export function waitingGauges({ metrics, read, ghosts, clock }: WaitingGaugesOptions): () => Promise<void> {
  let reading: Promise<void> | undefined;
  let known: { readonly waiting: Waiting | undefined; readonly at: number } | undefined;
  const look = async () => {
    const waiting = await read(await ghosts()).catch(() => undefined);
    known = { waiting, at: clock.now() };
    reading = undefined;
  };
  return async () => {
    const now = clock.now();
    if (known === undefined || now >= known.at + KEPT_MS) {
      reading ??= look();
      const patience = new AbortController();
      const waited = clock.sleep(PATIENCE_MS, patience.signal).catch(() => undefined);
      await Promise.race([reading, waited]);
      patience.abort();
    }
    const isKnown = known !== undefined && clock.now() < known.at + KEPT_MS;
    set(metrics, isKnown ? known?.waiting : undefined, clock.now());
  };
}

function set(metrics: Metrics, waiting: Waiting | undefined, now: number): void {
  const isUnknown = waiting === undefined;
  const value = (number: number | undefined) => (isUnknown ? Number.NaN : (number ?? 0));
  const age = (at: number | undefined) => value(at === undefined ? 0 : Math.max(0, now - at) / 1_000);
  for (const state of OPEN_STATES) metrics.delegationsOpen.set({ state }, value(waiting?.delegations[state]));
  metrics.oldestQuestion.set(age(waiting?.oldestQuestionAt));
  metrics.intakeEnvelopes.set({ reason: "key_missing" }, value(waiting?.envelopes.holding));
  metrics.intakeEnvelopes.set({ reason: "key_late" }, value(waiting?.envelopes.passed));
  metrics.auditLag.set(age(waiting?.oldestAuditAt));
  metrics.agentsQuarantined.set(value(waiting?.quarantined));
}
