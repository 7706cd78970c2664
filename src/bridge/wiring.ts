// Every part of the bridge for one turn of serving, wired to the others.
// Invariant: nothing is started here, nothing listens, and the homeserver is asked for nothing.
import { mkdirSync } from "node:fs";
import { dirname, resolve } from "node:path";
import type { FastifyInstance } from "fastify";
import type { Logger } from "pino";
import type { Clock, Random } from "../domain/clock.ts";
import type { GhostMxid } from "../domain/identifiers.ts";
import { WorkLoop } from "../runtime/work-loop.ts";
import type { WatchedAgentDirectory } from "./agents/directory.ts";
import { ProfileSync } from "./agents/profile-sync.ts";
import { CardTrustGate } from "./agents/trust.ts";
import { AuditExporter } from "./audit/exporter.ts";
import { createCatchup } from "./catchup/catchup.ts";
import type { BridgeConfig } from "./config.ts";
import { createUnservedExpiry } from "./crypto/unserved-envelopes.ts";
import type { Database } from "./database.ts";
import { createAgentHttp } from "./delegation/a2a/http.ts";
import { createTokenSource } from "./delegation/a2a/tokens.ts";
import { DelegationWorker } from "./delegation/worker.ts";
import { createEncryption, type Encryption } from "./encryption.ts";
import { redactedIn } from "./intake/derive.ts";
import { createTransactionHandler, type HandledTransaction } from "./intake/handle-transaction.ts";
import { createNamespace } from "./intake/namespace.ts";
import { createIntakeServer } from "./intake/server.ts";
import type { Admitted } from "./ledger/admission.ts";
import type { ContentKeys } from "./ledger/content-keys.ts";
import { createLedger, type Ledger } from "./ledger/ledger.ts";
import { Ghosts } from "./matrix/ghosts.ts";
import { Homeserver } from "./matrix/homeserver.ts";
import type { HomeserverOptions } from "./matrix/http.ts";
import { createMembershipQueue } from "./matrix/membership-queue.ts";
import { createEventSender, plainRoomsOnly } from "./matrix/send.ts";
import {
  catchupMetrics,
  delegationMetrics,
  intakeEnvelopeMetrics,
  intakeMetrics,
  type Metrics,
} from "./metrics.ts";
import { createNoticeQueue } from "./notices/queue.ts";

export interface BridgeOptions {
  readonly config: BridgeConfig;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  /** Aborts when the bridge is to end. */
  readonly stop: AbortSignal;
}

/** What outlives a turn. */
export interface BridgeContext {
  readonly agents: WatchedAgentDirectory;
  readonly database: Database;
  readonly metrics: Metrics;
  readonly secrets: { readonly asToken: string; readonly hsToken: string; readonly keys: ContentKeys };
}

interface Loop {
  start(): void;
  drain(): Promise<void>;
}

export interface BridgeServices {
  readonly homeserver: Homeserver;
  readonly ghosts: Ghosts;
  readonly ledger: Ledger;
  /** Undefined when `encryption.mode` is `refuse`. */
  readonly encryption: Encryption | undefined;
  /** What takes transactions. */
  readonly intake: FastifyInstance;
  /** Exports audit records; the last to drain, since what drains writes some. */
  readonly audit: WorkLoop;
  readonly exporter: AuditExporter;
  readonly agentHttp: ReturnType<typeof createAgentHttp>;
  /** What else runs while the bridge serves. */
  readonly loops: readonly Loop[];
}

/** For this long a homeserver's repetition is known by its digest; later its events' own keys still hold. */
const REPLAY_MEMORY_MS = 7 * 24 * 60 * 60 * 1_000;
const PRUNE_INTERVAL_MS = 60 * 60 * 1_000;

/** The parts of one turn; each is closed by whoever serves with them. */
export function createServices(
  options: BridgeOptions,
  { agents, database, metrics, secrets }: BridgeContext,
): BridgeServices {
  const { config, clock, random, log } = options;
  const { limits } = config;
  const { asToken, hsToken, keys } = secrets;
  const namespace = createNamespace({ serverName: config.homeserver.serverName, ...config.appservice });
  const agentsFile = resolve(config.directory, config.agentsFile);
  const ledger = createLedger(database.pool, keys, {
    noticeIntervalMs: limits.noticeInterval,
    servesEncryptedRooms: config.encryption.mode === "on",
    isGhost: namespace.isOwn,
  });
  const homeserverOptions: HomeserverOptions = {
    url: config.homeserver.url,
    asToken,
    requestTimeoutMs: config.homeserver.requestTimeout,
    clock,
    observe: ({ operation, outcome, durationMs }) =>
      metrics.homeserverSeconds.observe({ operation, outcome }, durationMs / 1_000),
  };
  const homeserver = new Homeserver(homeserverOptions);
  const ghosts = new Ghosts({
    homeserver,
    ledger,
    clock,
    random,
    hadKeys: (ghost, deviceId) => ledger.ghosts.hadKeys(ghost, deviceId),
  });
  const encryption = createEncryption({
    config,
    database,
    ledger,
    homeserver,
    ghosts,
    agents,
    namespace,
    metrics,
    clock,
    random,
    log,
    onDerived: (admitted) => onAdmitted(admitted),
    onExpired: () => onExpired(),
  });
  const trust = new CardTrustGate({
    ledger,
    clock,
    log,
    onChange: (decision) => {
      metrics.trustChanges.inc({ trust: decision });
      audit.wake();
    },
  });
  const profiles = new ProfileSync({
    directory: agents,
    gate: trust,
    setProfile: (ghost, displayName, signal) => ghosts.setProfile(ghost, displayName, signal),
    clock,
    log,
    onError: () => metrics.workerErrors.inc({ worker: "profiles" }),
  });
  const senderDependencies = { homeserver, ghosts, clock, seal: encryption?.seal };
  const notices = createNoticeQueue({
    ...senderDependencies,
    ledger,
    agents,
    log,
    readsEncrypted: config.encryption.mode === "on",
  });
  const memberships = createMembershipQueue({
    ledger,
    homeserver,
    ghosts,
    agents,
    clock,
    log,
  });
  const agentHttp = createAgentHttp();
  const observed = delegationMetrics(metrics, () => {
    notices.wake();
    audit.wake();
  });
  const worker = new DelegationWorker({
    ledger: ledger.delegations,
    directory: agents,
    trust,
    tokens: createTokenSource({
      http: agentHttp,
      clock,
      baseDirectory: dirname(agentsFile),
      observe: (outcome) => observed.tokenRequest(outcome),
    }),
    http: agentHttp,
    sender: createEventSender({
      ...senderDependencies,
      seal: encryption?.seal ?? plainRoomsOnly(ledger.memberships),
      ledger: ledger.delegations,
    }),
    clock,
    random,
    log,
    metrics: observed,
    limits,
    holder: `${process.pid}-${random.bytes(8).toString("hex")}`,
  });
  const auditFile = resolve(config.directory, config.audit.file);
  mkdirSync(dirname(auditFile), { recursive: true });
  const exporter = new AuditExporter({
    outbox: ledger.audit,
    clock,
    file: auditFile,
    onExported: (count) => metrics.auditExported.inc(count),
  });
  const audit = new WorkLoop({
    clock,
    round: () => exporter.round(),
    onError: () => {
      metrics.workerErrors.inc({ worker: "audit" });
      log.warn({ event: "audit_not_exported" }, "audit records wait in the database");
    },
  });

  const pruning = new WorkLoop({
    clock,
    round: async () => {
      await ledger.intake.prune(clock.now() - REPLAY_MEMORY_MS);
      return false;
    },
    onError: () => metrics.workerErrors.inc({ worker: "pruning" }),
    pollIntervalMs: PRUNE_INTERVAL_MS,
  });

  const onExpired = () => {
    audit.wake();
    notices.wake();
  };
  const onAdmitted = (admitted: Admitted) => {
    if (admitted.admitted > 0) worker.wake();
    if (admitted.denied > 0) audit.wake();
    if (admitted.notices > 0) notices.wake();
    if (admitted.envelopes > 0) encryption?.wake();
    for (const delegationId of admitted.canceled) worker.cancel(delegationId);
  };
  // With `encryption.mode: on` the intake envelope worker ends what waits.
  const expiries =
    config.encryption.mode === "on"
      ? []
      : [
          createUnservedExpiry({
            ledger,
            clock,
            log,
            observe: intakeEnvelopeMetrics(metrics, { derived: onAdmitted, expired: onExpired }),
          }),
        ];
  const onCommitted = (transaction: HandledTransaction) => {
    catchup.handled(transaction.read.events.map(({ event }) => event));
    onAdmitted(transaction);
    encryption?.redacted(redactedIn(transaction.read.events).map(({ event }) => event));
    if (!transaction.roomStateChanged) return;
    notices.wake();
    memberships.wake();
  };
  const observeIntake = intakeMetrics(metrics);
  const handle = createTransactionHandler({
    ledger,
    agents,
    namespace,
    clock,
    capacity: { room: limits.roomQueue, global: limits.globalQueue },
    noticeIntervalMs: limits.noticeInterval,
    encryption: encryption?.intake,
    ready: () => catchup.ready(),
  });
  const catchup = createCatchup({
    homeserver: homeserverOptions,
    ghosts,
    agents,
    positions: ledger.roomPositions,
    intake: async ({ transactionId, body, events }) => {
      const handled = await handle(transactionId, body, events, { ingress: "recovered" });
      observeIntake.recorded(handled);
      onCommitted(handled);
      return { admitted: handled.admitted + handled.envelopes };
    },
    catchupRoomState: async (ghost, inRooms) => {
      await ledger.memberships.catchupRoomState(ghost, inRooms, clock.now());
      memberships.wake();
    },
    rooms: config.catchup.rooms,
    ...(encryption !== undefined && { catchup: encryption.catchup }),
    clock,
    log,
    metrics: catchupMetrics(metrics),
  });
  const intake = createIntakeServer({
    hsToken,
    bodyBytesMax: limits.transactionBodyBytes,
    handle,
    onCommitted,
    provideGhost: async (ghost) =>
      (await agents.current()).byGhost.has(ghost as GhostMxid) &&
      (await ghosts.ensureGhost(ghost as GhostMxid)).kind === "ok",
    observe: observeIntake,
    clock,
    log,
  });
  return {
    homeserver,
    ghosts,
    ledger,
    encryption,
    intake,
    audit,
    exporter,
    agentHttp,
    loops: [worker, notices, memberships, profiles, pruning, catchup, ...expiries],
  };
}
