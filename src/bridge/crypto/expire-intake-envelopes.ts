// Ends the wait of intake envelopes while `encryption.mode` is not `on`: they came while it was, and nobody tries to read
// them any more. (With `on`, intake-envelope-worker.ts ends the wait.)
// Invariant: each expires at its deadline, so that going back to an earlier mode holds no room and no capacity for ever.
import type { Logger } from "pino";
import type { Clock } from "../../domain/clock.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { allEnded, WorkLoop } from "../../runtime/work-loop.ts";
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

/** Expires what is past its deadline, and puts the rest off until then; true when more may be due. */
export async function expireIntakeEnvelopes(deps: ExpiryDependencies): Promise<boolean> {
  const now = deps.clock.now();
  const claimed = await deps.ledger.envelopes.claim({ limit: BATCH, now, leaseUntil: now + LEASE_MS });
  await allEnded(claimed.map((envelope) => expireOrDefer(deps, envelope, now)));
  return claimed.length === BATCH;
}

async function expireOrDefer(deps: ExpiryDependencies, envelope: ClaimedIntakeEnvelope, now: number) {
  const { ledger, log, observe } = deps;
  const { event, room, deadline, admittedAt } = envelope;
  try {
    if (now < deadline) return await ledger.envelopes.defer(envelope, deadline, { requested: false });
    await ledger.envelopes.expire(envelope, "key_wait_elapsed", now);
  } catch (error) {
    // Redacted meanwhile, or another process has it.
    if (error instanceof DrawbridgeError && error.code === "lease_lost") return;
    throw error;
  }
  observe.ended("expired", now - admittedAt);
  observe.expired("key_wait_elapsed");
  log.info({ roomId: room, eventId: event, reason: "key_wait_elapsed" }, "encrypted event expired");
}

export function createIntakeEnvelopeExpiry(deps: ExpiryDependencies): WorkLoop {
  return new WorkLoop({
    clock: deps.clock,
    round: () => expireIntakeEnvelopes(deps),
    onError: (error) => {
      deps.observe.failed();
      const err = error instanceof Error ? error.name : "unknown";
      deps.log.warn({ err }, "encrypted events that wait could not be ended");
    },
  });
}
