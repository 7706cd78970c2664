// Ends the wait of intake envelopes while `encryption.mode` is not `on`: they came while it was, and nobody tries to read
// them any more. (With `on`, intake-envelope-worker.ts ends the wait.)
// Invariant: each expires at its deadline, so that going back to an earlier mode holds no room and no capacity for ever.
import type { Logger } from "pino";
import type { Clock } from "../../domain/clock.ts";
import { errorName } from "../../domain/errors.ts";
import { WorkQueue } from "../../runtime/work-queue.ts";
import type { ClaimedIntakeEnvelope } from "../ledger/intake-envelopes.ts";
import type { Ledger } from "../ledger/ledger.ts";
import type { IntakeEnvelopeObserver } from "./intake-envelope-worker.ts";

const BATCH = 32;
const LEASE_MS = 2 * 60_000;

export interface ExpiryDependencies {
  readonly ledger: Pick<Ledger, "envelopes">;
  readonly clock: Clock;
  readonly log: Logger;
  readonly observe: Pick<IntakeEnvelopeObserver, "ended" | "expired" | "failed">;
}

/** The queue that expires what is past its deadline, and puts the rest off until then. */
export function createIntakeEnvelopeExpiry(deps: ExpiryDependencies): WorkQueue<ClaimedIntakeEnvelope> {
  const { ledger, clock, log, observe } = deps;
  return new WorkQueue({
    clock,
    concurrency: BATCH,
    claim: (limit) => {
      const now = clock.now();
      return ledger.envelopes.claim({ limit, now, leaseUntil: now + LEASE_MS });
    },
    work: (envelope) => expireOrDefer(deps, envelope, clock.now()),
    onError: (error) => {
      observe.failed();
      log.warn({ err: errorName(error) }, "encrypted events that wait could not be ended");
    },
  });
}

async function expireOrDefer(deps: ExpiryDependencies, envelope: ClaimedIntakeEnvelope, now: number) {
  const { ledger, log, observe } = deps;
  const { event, room, deadline, admittedAt } = envelope;
  if (now < deadline) return await ledger.envelopes.defer(envelope, deadline, { requested: false });
  await ledger.envelopes.expire(envelope, "key_wait_elapsed", now);
  observe.ended("expired", now - admittedAt);
  observe.expired("key_wait_elapsed");
  log.info({ roomId: room, eventId: event, reason: "key_wait_elapsed" }, "encrypted event expired");
}
