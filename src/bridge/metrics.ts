// The bridge's metrics (Prometheus). Labels come from closed sets alone: no room, user, event or text.
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from "prom-client";
import type { DelegationMetrics } from "./delegation/metrics.ts";

const SECONDS_BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300];

export type Metrics = ReturnType<typeof createMetrics>;

export function createMetrics() {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  const registers = [registry];
  const counter = <Label extends string = never>(
    name: string,
    help: string,
    labelNames: readonly Label[] = [],
  ) => new Counter({ name: `drawbridge_${name}`, help, labelNames, registers });
  const histogram = <Label extends string = never>(
    name: string,
    help: string,
    labelNames: readonly Label[] = [],
  ) => new Histogram({ name: `drawbridge_${name}`, help, labelNames, registers, buckets: SECONDS_BUCKETS });
  const gauge = (name: string, help: string) => new Gauge({ name: `drawbridge_${name}`, help, registers });

  return {
    registry,
    transactions: counter("transactions_total", "Transactions of the homeserver by outcome.", ["outcome"]),
    transactionSeconds: histogram(
      "transaction_seconds",
      "From a transaction's arrival to its acknowledgement.",
    ),
    eventsMalformed: counter("events_malformed_total", "Events that could not be read, by reason.", [
      "reason",
    ]),
    delegationsAdmitted: counter("delegations_admitted_total", "Delegations recorded for work."),
    delegationsDenied: counter("delegations_denied_at_intake_total", "Delegations refused by capacity."),
    delegationsClaimed: counter("delegations_claimed_total", "Delegations taken up by this process."),
    delegationsDeferred: counter("delegations_deferred_total", "Delegations put back to be tried again.", [
      "reason",
    ]),
    delegationsFinished: counter("delegations_finished_total", "Delegations ended.", [
      "state",
      "stage",
      "reason",
    ]),
    delegationsHeld: gauge("delegations_held", "Delegations this process works on now."),
    leasesLost: counter("leases_lost_total", "Leases that passed to another holder."),
    dispatchSeconds: histogram("dispatch_seconds", "From the claim to the call of the agent."),
    agentSeconds: histogram("agent_request_seconds", "Requests to agents.", ["operation", "outcome"]),
    tokenRequests: counter("token_requests_total", "Access tokens asked of issuers.", ["outcome"]),
    homeserverSeconds: histogram("homeserver_request_seconds", "Requests to the homeserver.", [
      "operation",
      "outcome",
    ]),
    trustChanges: counter("trust_changes_total", "Trust decisions that changed.", ["trust"]),
    agentsFileRejected: counter(
      "agents_file_rejected_total",
      "agents.yaml versions refused; the last good one stays.",
    ),
    auditExported: counter("audit_records_exported_total", "Audit records written to the audit file."),
    workerErrors: counter("worker_errors_total", "Rounds or flows that ended by an unexpected error.", [
      "worker",
    ]),
  };
}

/** The worker's metrics on these. `onEnded` is told of each delegation that has ended. */
export function delegationMetrics(metrics: Metrics, onEnded: () => void): DelegationMetrics {
  return {
    inFlight: (count) => metrics.delegationsHeld.set(count),
    claimed: (count) => metrics.delegationsClaimed.inc(count),
    ended: (state, stage, reason) => {
      metrics.delegationsFinished.inc({ state, stage, reason });
      onEnded();
    },
    deferred: (reason) => metrics.delegationsDeferred.inc({ reason }),
    leaseLost: () => metrics.leasesLost.inc(),
    flowFailed: () => metrics.workerErrors.inc({ worker: "delegation" }),
    dispatchOverhead: (ms) => metrics.dispatchSeconds.observe(ms / 1_000),
    agentCall: (operation, outcome, ms) => metrics.agentSeconds.observe({ operation, outcome }, ms / 1_000),
    tokenRequest: (outcome) => metrics.tokenRequests.inc({ outcome }),
  };
}
