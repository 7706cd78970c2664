// What is counted of events, however they came in.
import type { Metrics } from "../metrics.ts";
import type { HandledTransaction } from "./handle-transaction.ts";

export type EventMetrics = Pick<
  Metrics,
  "delegationsAdmitted" | "delegationsDenied" | "encryptedEvents" | "eventsMalformed"
>;

export function countEvents(metrics: EventMetrics, handled: HandledTransaction): void {
  if (handled.replayed) return;
  metrics.delegationsAdmitted.inc(handled.admitted);
  metrics.delegationsDenied.inc(handled.denied);
  metrics.encryptedEvents.inc({ outcome: "at_once" }, handled.opened);
  metrics.encryptedEvents.inc({ outcome: "denied" }, handled.envelopesDenied);
  for (const { reason } of handled.read.malformed) metrics.eventsMalformed.inc({ reason });
}
