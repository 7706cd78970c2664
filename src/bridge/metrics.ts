// The bridge's metrics (Prometheus). Labels come from closed sets alone: no room, user, event or text.
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from "prom-client";

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
    delegationsFinished: counter("delegations_finished_total", "Delegations ended.", [
      "state",
      "stage",
      "reason",
    ]),
    delegationsHeld: gauge("delegations_held", "Delegations this process works on now."),
    leasesLost: counter("leases_lost_total", "Leases that passed to another holder."),
    a2aRequests: counter("a2a_requests_total", "Requests to agents by kind of outcome.", ["outcome"]),
    a2aSeconds: histogram("a2a_request_seconds", "Time of requests to agents, streams excepted."),
    dispatchSeconds: histogram("dispatch_seconds", "From admission to the call of the agent."),
    delegationSeconds: histogram("delegation_seconds", "From admission to the end."),
    sends: counter("sends_total", "Events sent to rooms by outcome.", ["outcome"]),
    notices: counter("notices_total", "Notices by kind and outcome.", ["kind", "outcome"]),
    memberships: counter("memberships_total", "Room memberships settled, by task and outcome.", [
      "task",
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
