// The bridge as a process: everything wired together, started and drained in order.
// Invariants: nothing listens before the database is migrated; SIGTERM stops taking transactions first,
// then lets what is under way end or gives it back; what was acknowledged is durable at every moment.
import { once } from "node:events";
import { mkdirSync } from "node:fs";
import { dirname, resolve } from "node:path";
import type { Logger } from "pino";
import type { Clock, Random } from "../domain/clock.ts";
import type { GhostMxid } from "../domain/identifiers.ts";
import { closeServer } from "../runtime/close-server.ts";
import { readSecret } from "../runtime/secrets.ts";
import { WorkLoop } from "../runtime/work-loop.ts";
import { ProfileSync } from "./agents/profile-sync.ts";
import { CardTrustGate } from "./agents/trust.ts";
import { openAgentDirectory } from "./agents/watched-directory.ts";
import { AuditExporter } from "./audit/exporter.ts";
import type { BridgeConfig } from "./config.ts";
import { createUnservedExpiry } from "./crypto/unserved-envelopes.ts";
import { type Database, migrateWhenReachable, openDatabase } from "./database.ts";
import { createAgentHttp } from "./delegation/a2a/http.ts";
import { createTokenSource } from "./delegation/a2a/tokens.ts";
import { DelegationWorker } from "./delegation/worker.ts";
import { createEncryption } from "./encryption.ts";
import { countEvents } from "./intake/count-events.ts";
import { redactedIn } from "./intake/derive.ts";
import { createTransactionHandler, type HandledTransaction } from "./intake/handle-transaction.ts";
import { createNamespace } from "./intake/namespace.ts";
import { createIntakeServer } from "./intake/server.ts";
import type { Admitted } from "./ledger/admission.ts";
import { createGhostDeviceLedger } from "./ledger/ghost-devices.ts";
import { createLedger } from "./ledger/postgres.ts";
import { ContentKeys } from "./ledger/seal.ts";
import { isHeldFrom, openTenureConnection } from "./ledger/tenure.ts";
import { couldListen, listen, listenOnceFree } from "./listen.ts";
import { Ghosts } from "./matrix/ghosts.ts";
import { Homeserver } from "./matrix/homeserver.ts";
import type { HomeserverOptions } from "./matrix/http.ts";
import { MembershipWorker } from "./matrix/membership.ts";
import { selfCheck } from "./matrix/self-check.ts";
import { createEventSender, plainRoomsOnly } from "./matrix/send.ts";
import {
  createMetrics,
  delegationMetrics,
  envelopeMetrics,
  type Metrics,
  recoveryMetrics,
  tellServing,
} from "./metrics.ts";
import { NoticeWorker } from "./notices/worker.ts";
import { createObserveServer } from "./observe.ts";
import { databaseReadiness, HomeserverReadiness, tenureReadiness } from "./readiness.ts";
import { createRecovery } from "./recovery/recovery.ts";
import { Tenure } from "./tenure.ts";

export interface BridgeOptions {
  readonly config: BridgeConfig;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  /** Aborts when the bridge is to end. */
  readonly stop: AbortSignal;
}

/** What handing over may take beyond the drain of what is under way. */
const HAND_OVER_GRACE_MS = 15_000;
/** For this long a homeserver's repetition is known by its digest; later its events' own keys still hold. */
const REPLAY_MEMORY_MS = 7 * 24 * 60 * 60 * 1_000;
const PRUNE_INTERVAL_MS = 60 * 60 * 1_000;

/** What outlives a tenure. */
interface Ground {
  readonly agents: ReturnType<typeof openAgentDirectory>;
  readonly database: Database;
  readonly metrics: Metrics;
  readonly secrets: { readonly asToken: string; readonly hsToken: string; readonly keys: ContentKeys };
}

/**
 * Runs the bridge until `stop` aborts; resolves when it has drained.
 * @throws DrawbridgeError when it cannot start
 */
export async function runBridge(options: BridgeOptions): Promise<void> {
  const { config, clock, log, stop } = options;
  const secret = (reference: Parameters<typeof readSecret>[0]) => readSecret(reference, config.directory);
  const secrets = {
    asToken: secret(config.appservice.asToken),
    hsToken: secret(config.appservice.hsToken),
    keys: ContentKeys.parse(secret(config.contentKeys)),
  };
  const metrics = createMetrics();
  const agents = openAgentDirectory({
    file: resolve(config.directory, config.agentsFile),
    serverName: config.homeserver.serverName,
    ghostPrefix: config.appservice.ghostPrefix,
    clock,
    log,
    onRejected: () => metrics.agentsFileRejected.inc(),
  });

  const database = await openDatabase(config, clock, log);
  const ended = AbortSignal.any([stop, database.lost]);
  try {
    await migrateWhenReachable(database.pool, clock, log, stop).catch((error: unknown) => {
      if (!stop.aborted) throw error;
    });
    // Whoever is asked stops serving: what would keep this one from it is found out before.
    await couldListen(config.listen, "listen", { clock, ended }, () =>
      isHeldFrom(database.pool, config.listen.port).catch(() => false),
    );
    // What hands over stands in line again, and asks for nothing.
    for (let asks = true; !ended.aborted; asks = false) {
      const tenure = new Tenure({
        open: () => openTenureConnection(database.url, { clock, port: config.listen.port }),
        mode: config.encryption.stage === "A" ? "shared" : "alone",
        patienceMs: config.limits.drain + HAND_OVER_GRACE_MS,
        clock,
        log,
      });
      await serve(options, { agents, database, metrics, secrets }, tenure, asks).finally(() => tenure.end());
    }
  } finally {
    await agents.close();
    await database.close();
  }
  if (database.lost.aborted) throw database.lost.reason;
  log.info({ event: "stopped" }, "the bridge has ended");
}

/** Waits for the place, serves until another is to, or the bridge ends, and drains. */
async function serve(
  options: BridgeOptions,
  { agents, database, metrics, secrets }: Ground,
  tenure: Tenure,
  asks: boolean,
): Promise<void> {
  const { config, clock, random, log, stop } = options;
  const { limits } = config;
  const { asToken, hsToken, keys } = secrets;
  const namespace = createNamespace({ serverName: config.homeserver.serverName, ...config.appservice });
  const agentsFile = resolve(config.directory, config.agentsFile);
  const ledger = createLedger(database.pool, keys, {
    noticeIntervalMs: limits.noticeInterval,
    stage: config.encryption.stage,
    isGhost: namespace.isOwn,
  });
  const deviceLedger = createGhostDeviceLedger(database.pool);
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
    hadKeys: (ghost, deviceId) => deviceLedger.hadKeys(ghost, deviceId),
  });
  const encryption = createEncryption({
    config,
    database,
    ledger: { ...ledger, ...deviceLedger },
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
  const notices = new NoticeWorker({
    ...senderDependencies,
    ledger,
    agents,
    log,
    readsEncrypted: config.encryption.stage === "C",
  });
  const memberships = new MembershipWorker({
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
    ledger,
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
      seal: encryption?.seal ?? plainRoomsOnly(deviceLedger),
      ledger,
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
    outbox: ledger,
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
      await ledger.prune(clock.now() - REPLAY_MEMORY_MS);
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
  // At stage C the envelope worker ends what waits.
  const expiries =
    config.encryption.stage === "C"
      ? []
      : [
          createUnservedExpiry({
            ledger,
            clock,
            log,
            observe: envelopeMetrics(metrics, { derived: onAdmitted, expired: onExpired }),
          }),
        ];
  const onCommitted = (transaction: HandledTransaction) => {
    recovery.handled(transaction.read.events.map(({ event }) => event));
    onAdmitted(transaction);
    encryption?.redacted(redactedIn(transaction.read.events).map(({ event }) => event));
    if (!transaction.roomStateChanged) return;
    notices.wake();
    memberships.wake();
  };
  const handle = createTransactionHandler({
    ledger,
    agents,
    namespace,
    clock,
    capacity: { room: limits.roomQueue, global: limits.globalQueue },
    noticeIntervalMs: limits.noticeInterval,
    encryption: encryption?.intake,
    ready: () => recovery.ready(),
  });
  const recovery = createRecovery({
    homeserver: homeserverOptions,
    ghosts,
    agents,
    positions: ledger,
    intake: async ({ transactionId, body, events }) => {
      const handled = await handle(transactionId, body, events, { ingress: "recovered" });
      countEvents(metrics, handled);
      onCommitted(handled);
      return { admitted: handled.admitted + handled.envelopes };
    },
    settleAgain: async (ghost, inRooms) => {
      await ledger.settleAgain(ghost, inRooms, clock.now());
      memberships.wake();
    },
    rooms: config.readBack.rooms,
    ...(encryption !== undefined && { catchUp: encryption.catchUp }),
    clock,
    log,
    metrics: recoveryMetrics(metrics),
  });
  const intake = createIntakeServer({
    hsToken,
    bodyBytesMax: limits.transactionBodyBytes,
    handle,
    onCommitted,
    provideGhost: async (ghost) =>
      (await agents.current()).byGhost.has(ghost as GhostMxid) &&
      (await ghosts.ensureGhost(ghost as GhostMxid)).kind === "ok",
    metrics,
    clock,
    log,
  });
  const homeserverSide = new HomeserverReadiness(options);
  const observe = createObserveServer({
    registry: metrics.registry,
    readiness: async () => [
      await databaseReadiness(database.pool),
      tenureReadiness(tenure),
      ...homeserverSide.checks,
      ...((await encryption?.readiness()) ?? []),
    ],
    beforeScrape: () => encryption?.record(),
    agentsDigest: () => agents.digest(),
  });

  const ended = AbortSignal.any([stop, database.lost, tenure.handOver]);
  await listen(observe, config.observe, "observe");
  tellServing(metrics, false);
  const mayServe =
    (await tenure.begin(asks, ended)) &&
    (await listenOnceFree(intake, config.listen, "listen", { clock, ended }));
  if (mayServe) {
    tellServing(metrics, true);
    encryption?.start();
    for (const part of [worker, notices, memberships, profiles, audit, pruning, recovery, ...expiries])
      part.start();
    log.info({ event: "started", listen: config.listen, observe: config.observe }, "the bridge is up");
  }
  const settled =
    mayServe &&
    homeserverSide
      .settle(async () => {
        // A device that has stopped says nothing of the others.
        const recorded = await deviceLedger.recordedDevices();
        const stopped = new Set(recorded.filter((one) => one.stopped !== undefined).map((one) => one.ghost));
        const ghost = [...(await agents.current()).byGhost.keys()].find((one) => !stopped.has(one));
        const checks = await selfCheck({ config, homeserver, ghosts, ghost, listening: true });
        return checks.map(({ check, ok, mend }) => ({
          name: check,
          ok,
          ...(mend !== undefined && { mend }),
        }));
      }, ended)
      // Only the wait between two checks can be rejected: by the end of the process.
      .catch(() => undefined);

  if (!ended.aborted) await once(ended, "abort");
  log.info({ event: "draining" }, "no more transactions are taken");
  await Promise.all([
    closeServer(intake.server, clock),
    settled,
    encryption?.drainWorker(),
    ...[recovery, worker, notices, memberships, profiles, pruning, ...expiries].map((part) => part.drain()),
  ]);
  // Nothing is sent any more. What devices still ask of a homeserver that hangs is not waited for.
  await Promise.all([homeserver.close(), encryption?.close()]);
  await audit.drain();
  // The file is the one's that serves.
  if (mayServe) await exporter.round().catch(() => false);
  await exporter.close();
  await Promise.all([agentHttp.close(), closeServer(observe.server, clock)]);
}
