// The bridge's metrics (Prometheus), and the gauges of what waits in the database, read at a scrape.
// Invariants: labels come from closed sets alone: no room, user, event or text; the gauges take one query in five seconds
// at most; a database that does not answer delays a scrape for a bounded time, and what is unknown is NaN, never zero.
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from "prom-client";
import manifest from "../../package.json" with { type: "json" };
import type { Clock } from "../domain/clock.ts";
import { resultWithin } from "../runtime/concurrency.ts";
import type { CatchupMetrics } from "./catchup/catchup.ts";
import type { KeyDelivery } from "./crypto/device-checks.ts";
import type { DeviceObserver, DeviceStatus } from "./crypto/ghost-device.ts";
import type { IntakeEnvelopeObserver } from "./crypto/wait-for-keys.ts";
import type { DelegationObserver } from "./delegation/dependencies.ts";
import { type IntakeObserver, TRANSACTION_OUTCOMES } from "./intake/server.ts";
import type { Admitted } from "./ledger/admission-types.ts";
import { stageOfDenied } from "./ledger/capacity.ts";
import type { Waiting } from "./ledger/operator-commands.ts";
import { INTAKE_ENVELOPE_REASONS, OPEN_STATES } from "./ledger/states.ts";

/** Every `outcome` of drawbridge_encrypted_events_total. */
export const ENCRYPTED_OUTCOMES = [
  "at_once",
  "after_wait",
  "catchup",
  "key_request",
  "expired",
  "denied",
  "not_trusted",
] as const;

const SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900];

export type Metrics = ReturnType<typeof createMetrics>;

/** docs/reference/metrics.md says more of each. */
export function createMetrics() {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  const metric = <Label extends string>(name: string, help: string, labelNames: readonly Label[]) => ({
    ...{ name: `drawbridge_${name}`, help, labelNames, registers: [registry] },
  });
  const counter = <Label extends string = never>(name: string, help: string, ...labels: readonly Label[]) =>
    new Counter(metric(name, help, labels));
  const histogram = <Label extends string = never>(name: string, help: string, ...labels: readonly Label[]) =>
    new Histogram({ ...metric(name, help, labels), buckets: SECONDS });
  const gauge = <Label extends string = never>(name: string, help: string, ...labels: readonly Label[]) =>
    new Gauge(metric(name, help, labels));

  const metrics = {
    registry,
    transactions: counter("transactions_total", "Transactions of the homeserver by outcome.", "outcome"),
    transactionSeconds: histogram("transaction_duration_seconds", "From arrival to acknowledgement."),
    eventsMalformed: counter("malformed_events_total", "Events that could not be read, by reason.", "reason"),
    delegationsDeferred: counter("delegations_deferred_total", "Delegations put back for later.", "reason"),
    delegationsEnded: counter("delegations_finished_total", "Delegations ended.", "state", "stage", "reason"),
    delegationsOpen: gauge("delegations_open", "Delegations that have not ended, by state.", "state"),
    oldestQuestion: gauge("question_oldest_wait_seconds", "How long the oldest has waited."),
    slots: gauge("slots", "Slots of this process for requests to agents, by what they are used for.", "kind"),
    intakeEnvelopes: gauge("intake_envelopes", "Encrypted events whose key is missing or late.", "reason"),
    auditLag: gauge("audit_export_lag_seconds", "Age of the oldest audit record that was not exported."),
    agentsQuarantined: gauge("agents_quarantined", "Configured agents whose identity is not verified."),
    buildInfo: gauge("build_info", "1, with the version of the bridge and of Node.js.", "version", "node"),
    rowsDeleted: counter("rows_deleted_total", "Rows that were deleted after their retention.", "kind"),
    leasesLost: counter("leases_lost_total", "Leases that passed to another holder."),
    dispatchSeconds: histogram("dispatch_duration_seconds", "From the claim to the call of the agent."),
    agentSeconds: histogram("agent_request_duration_seconds", "Requests to agents.", "operation", "outcome"),
    tokenRequests: counter("token_requests_total", "Access tokens requested from issuers.", "outcome"),
    homeserverSeconds: histogram(
      "homeserver_request_duration_seconds",
      "Requests to the homeserver.",
      "operation",
      "outcome",
    ),
    agentsFileRejected: counter("agents_file_rejected_total", "Versions of agents.yaml that were refused."),
    homeserverUp: gauge("homeserver_up", "Whether the homeserver answers: 1, or 0 while it is away."),
    caughtUp: counter("catchup_events_total", "Questions and encrypted events by catchup.", "cause"),
    workerErrors: counter("worker_errors_total", "Unexpected errors of workers.", "worker"),
    encryptedEvents: counter("encrypted_events_total", "Encrypted events by what became of them.", "outcome"),
    encryptedExpired: counter("encrypted_events_expired_total", "Encrypted events that expired.", "reason"),
    encryptedOldestSeconds: gauge("encrypted_events_oldest_wait_seconds", "How long the oldest has waited."),
    keyRequests: counter("key_requests_total", "Room keys requested from devices.", "outcome"),
    toDeviceMessages: counter("to_device_messages_total", "To-device messages taken in, by way.", "by"),
    toDeviceRefused: counter("to_device_refused_total", "To-device messages of servers not allowed."),
    toDeviceSkipped: counter("to_device_skipped_total", "To-device messages that a catchup skipped."),
    keyCatchups: counter("key_catchups_total", "Catchups of to-device messages.", "outcome"),
    devicesStopped: counter("ghost_devices_stopped_total", "Devices of ghosts that were stopped.", "reason"),
    processes: gauge("processes", "Bridge processes that are alive on this database."),
    ghostsOwned: gauge("ghosts_owned", "Ghosts whose machines this process owns."),
    devices: gauge("ghost_devices", "Devices of ghosts by state, as of the last scrape.", "state"),
    devicesUnsigned: gauge("ghost_devices_not_cross_signed", "Ready devices that are not cross-signed."),
    devicesCatchupFailing: gauge("ghost_devices_catchup_failing", "Devices whose last catchup failed."),
    keysNotDelivered: gauge("keys_not_delivered", "1 when transactions were seen to bring no keys."),
  };
  // A counter that was never raised is absent, and an alarm on it would have no data.
  for (const outcome of TRANSACTION_OUTCOMES) metrics.transactions.inc({ outcome }, 0);
  for (const outcome of ENCRYPTED_OUTCOMES) metrics.encryptedEvents.inc({ outcome }, 0);
  for (const reason of INTAKE_ENVELOPE_REASONS.expired) metrics.encryptedExpired.inc({ reason }, 0);
  for (const stage of ["dispatch", "follow"] as const)
    metrics.delegationsEnded.inc({ state: "failed", stage, reason: "outcome_unknown" }, 0);
  metrics.buildInfo.set({ version: manifest.version, node: process.versions.node }, 1);
  return metrics;
}

function countRefused({ delegationsEnded }: Metrics, { refused }: Admitted): void {
  for (const reason of refused)
    delegationsEnded.inc({ state: "denied", stage: stageOfDenied(reason), reason });
}

export function intakeMetrics(metrics: Metrics): IntakeObserver {
  return {
    transaction: (outcome) => metrics.transactions.inc({ outcome }),
    acknowledged: (ms) => metrics.transactionSeconds.observe(ms / 1_000),
    recorded: (handled) => {
      metrics.toDeviceRefused.inc(handled.toDeviceRefused);
      if (handled.replayed) return;
      countRefused(metrics, handled);
      metrics.encryptedEvents.inc({ outcome: "at_once" }, handled.opened);
      metrics.encryptedEvents.inc({ outcome: "denied" }, handled.envelopesDenied);
      for (const { reason } of handled.read.malformed) metrics.eventsMalformed.inc({ reason });
    },
  };
}

export function intakeEnvelopeMetrics(
  metrics: Metrics,
  on: Pick<IntakeEnvelopeObserver, "derived"> & { readonly expired: () => void },
): IntakeEnvelopeObserver {
  return {
    derived: (admitted) => {
      countRefused(metrics, admitted);
      on.derived(admitted);
    },
    expired: (reason) => {
      metrics.encryptedExpired.inc({ reason });
      on.expired();
    },
    ended: (outcome) => metrics.encryptedEvents.inc({ outcome }),
    keyRequest: (outcome) => metrics.keyRequests.inc({ outcome }),
    failed: () => metrics.workerErrors.inc({ worker: "intake_envelopes" }),
  };
}

export function deviceMetrics(metrics: Metrics): DeviceObserver {
  return {
    toDevice: (count, by) => metrics.toDeviceMessages.inc({ by }, count),
    toDeviceRefused: (count) => metrics.toDeviceRefused.inc(count),
    toDeviceSkipped: (count) => metrics.toDeviceSkipped.inc(count),
    keyCatchupEnded: (outcome) => metrics.keyCatchups.inc({ outcome }),
    stopped: (reason) => metrics.devicesStopped.inc({ reason }),
  };
}

export function recordDevices(metrics: Metrics, devices: readonly DeviceStatus[], delivery: KeyDelivery) {
  metrics.keysNotDelivered.set(delivery === "works" || delivery === "unknown" ? 0 : 1);
  for (const state of ["starting", "ready", "stopped"] as const) {
    metrics.devices.set({ state }, devices.filter((device) => device.state === state).length);
  }
  const ready = devices.filter(({ state }) => state === "ready");
  metrics.devicesUnsigned.set(ready.filter(({ crossSigned }) => !crossSigned).length);
  metrics.devicesCatchupFailing.set(devices.filter(({ catchupFailing }) => catchupFailing).length);
}

/** The delegation worker's counts on these metrics; `onUnanswered` runs for each delegation that ended without an answer. */
export function delegationMetrics(metrics: Metrics, onUnanswered: () => void): DelegationObserver {
  return {
    ended: (state, stage, reason) => {
      metrics.delegationsEnded.inc({ state, stage, reason });
      if (state !== "completed") onUnanswered();
    },
    deferred: (reason) => metrics.delegationsDeferred.inc({ reason }),
    leaseLost: () => metrics.leasesLost.inc(),
    flowFailed: () => metrics.workerErrors.inc({ worker: "delegation" }),
    dispatchOverhead: (ms) => metrics.dispatchSeconds.observe(ms / 1_000),
    agentCall: (operation, outcome, ms) => metrics.agentSeconds.observe({ operation, outcome }, ms / 1_000),
    tokenRequest: (outcome) => metrics.tokenRequests.inc({ outcome }),
  };
}

export function catchupMetrics(metrics: Metrics): CatchupMetrics {
  return {
    homeserverUp: (isUp) => metrics.homeserverUp.set(isUp ? 1 : 0),
    catchup: (cause, { admitted }) => metrics.caughtUp.inc({ cause }, admitted),
    failed: () => metrics.workerErrors.inc({ worker: "catchup" }),
  };
}

const KEPT_MS = 5_000;
const PATIENCE_MS = 2_000;

/** Returns what brings the gauges up to date; it never rejects. @param read reads what waits now */
export function waitingGauges(metrics: Metrics, read: () => Promise<Waiting | undefined>, clock: Clock) {
  let reading: Promise<void> | undefined;
  let known: { readonly waiting: Waiting | undefined; readonly at: number } | undefined;
  const renew = async () => {
    const waiting = await read().catch(() => undefined);
    known = { waiting, at: clock.now() };
    reading = undefined;
  };
  return async () => {
    const now = clock.now();
    if (known === undefined || now >= known.at + KEPT_MS) {
      reading ??= renew();
      await resultWithin(clock, PATIENCE_MS, reading);
    }
    const isKnown = known !== undefined && clock.now() < known.at + KEPT_MS;
    set(metrics, isKnown ? known?.waiting : undefined, clock.now());
  };
}

function set(metrics: Metrics, waiting: Waiting | undefined, now: number): void {
  const isUnknown = waiting === undefined;
  const value = (number: number | undefined) => (isUnknown ? Number.NaN : (number ?? 0));
  const age = (at: number | null | undefined) => value(at == null ? 0 : Math.max(0, now - at) / 1_000);
  for (const state of OPEN_STATES) metrics.delegationsOpen.set({ state }, value(waiting?.delegations[state]));
  metrics.oldestQuestion.set(age(waiting?.oldestQuestionAt));
  metrics.intakeEnvelopes.set({ reason: "key_missing" }, value(waiting?.envelopes.holding));
  metrics.intakeEnvelopes.set({ reason: "key_late" }, value(waiting?.envelopes.passed));
  metrics.encryptedOldestSeconds.set(age(waiting?.envelopes.oldestAt));
  metrics.auditLag.set(age(waiting?.oldestAuditAt));
  metrics.agentsQuarantined.set(value(waiting?.quarantined));
}
