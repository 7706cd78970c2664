// Everything that works in a bridge process, wired together.
// Invariant: nothing is started here, nothing listens, and no request is made to the homeserver.
import { resolve } from "node:path";
import type { GhostMxid, RoomId, UserId } from "../domain/identifiers.ts";
import { WorkLoop } from "../runtime/work-loop.ts";
import { createCardRefresh } from "./agents/refresh-cards.ts";
import { createCardTrustGate } from "./agents/trust.ts";
import { createAuditExporter } from "./audit/exporter.ts";
import { createCatchup } from "./catchup/catchup.ts";
import type { BridgeContext } from "./context.ts";
import { createEncryption, type Encryption } from "./create-encryption.ts";
import { createIntakeEnvelopeExpiry } from "./crypto/wait-for-keys.ts";
import { createDelegationWorker, type DelegationWorker } from "./delegation/worker.ts";
import { createRestoreGuard } from "./health/restore-guard.ts";
import { redactedIn } from "./intake/cancellations.ts";
import {
  createTransactionHandler,
  type HandledTransaction,
  throughFailover,
} from "./intake/handle-transaction.ts";
import { createNamespace } from "./intake/namespace.ts";
import { createIntakeServer } from "./intake/server.ts";
import { createLedger, type Ledger } from "./ledger/ledger.ts";
import type { ClaimRequest } from "./ledger/postgres.ts";
import { openProcessConnection, releaseEnded } from "./ledger/processes.ts";
import { createSteadiness } from "./ledger/retention.ts";
import { createMembershipQueue } from "./matrix/answer-invitations.ts";
import { createAvatars } from "./matrix/avatars.ts";
import { Ghosts } from "./matrix/ghosts.ts";
import { Homeserver } from "./matrix/homeserver.ts";
import type { HomeserverOptions } from "./matrix/http.ts";
import { plainRoomsOnly } from "./matrix/send-once.ts";
import {
  catchupMetrics,
  delegationMetrics,
  intakeEnvelopeMetrics,
  intakeMetrics,
  waitingGauges,
} from "./metrics.ts";
import { createNoticeQueue } from "./notices/send-notices.ts";
import { Ownership } from "./ownership.ts";
import { createStatusQueue } from "./status-messages/send-status-messages.ts";
import { textsBy } from "./texts/language-of-room.ts";
import { Wakeups } from "./wakeups.ts";

const RETENTION_INTERVAL_MS = 10 * 60 * 1_000;

export function createServices(context: BridgeContext) {
  const { config, clock, log, random, agents, database, metrics } = context;
  const wakeups = new Wakeups(clock);
  const ownership: Ownership = new Ownership({
    open: (onNotified) => openProcessConnection(database.url, onNotified),
    releaseEnded: (now) => releaseEnded(database.pool, now),
    ghosts: config.encryption.mode === "refuse" ? undefined : async () => (await encryption?.ghosts()) ?? [],
    isSettled: (ghost) => encryption?.devices.isSettled(ghost) === true,
    onTaken: () => encryption?.devices.loop.wake(),
    close: async (left, hasLost) => encryption?.devices.close(left, hasLost),
    onLost: () => delegations.lost(),
    onReleased: () => wakeups.all(),
    onNotified: wakeups.told,
    onLook: (processes, owned) => {
      metrics.processes.set(processes);
      metrics.ghostsOwned.set(owned);
    },
    clock,
    log,
  });
  wakeups.tell = (message) => ownership.notify(message);
  const base = createBase(context, ownership);
  const { ledger, homeserver, ghosts } = base;
  const observe = intakeEnvelopeMetrics(metrics, { derived: wakeups.admitted, expired: wakeups.unanswered });
  const encryption = createEncryption({
    ...base,
    ...{ config, clock, log, random, agents, database, metrics, observe },
    owns: (ghost) => ownership.owns(ghost),
    onReady: () => wakeups.all(),
  });
  const sending = {
    ...{ homeserver, ghosts, clock },
    encryptEvent: encryption?.encryptEvent ?? plainRoomsOnly({ homeserver, ledger: ledger.memberships }),
  };
  const audit = createAuditExporter({
    outbox: ledger.audit,
    clock,
    log,
    file: resolve(config.directory, config.audit.file),
    isTurn: () => ownership.owns("audit"),
    onError: () => metrics.workerErrors.inc({ worker: "audit" }),
  });
  const trust = createCardTrustGate({ ledger, clock, log });
  const profiles = createCardRefresh({
    directory: agents,
    gate: trust,
    setProfile: (...profile) => ghosts.setProfile(...profile),
    clock,
    log,
    onError: () => metrics.workerErrors.inc({ worker: "profiles" }),
  });
  const avatars = createAvatars({
    ...{ ledger, homeserver, ghosts, agents, cards: trust, clock, log },
    isOn: config.avatars,
    isTurn: () => ownership.owns("avatars"),
    onError: () => metrics.workerErrors.inc({ worker: "avatars" }),
  });
  const readsEncrypted = config.encryption.mode === "on";
  const textsOf = textsBy(config.language);
  const notices = createNoticeQueue({
    ...sending,
    ...{ ledger, agents, cards: trust, textsOf, log, readsEncrypted },
    // A notice holds no content: an encrypted room is told in plain text that it is refused.
    encryptEvent: encryption?.encryptEvent,
  });
  const statuses = createStatusQueue({
    ...sending,
    ...{ ledger, textsOf, log },
    onError: () => metrics.workerErrors.inc({ worker: "statuses" }),
  });
  const onLeft = async (ghost: GhostMxid, room: RoomId) => encryption?.devices.forgetRoom(ghost, room);
  const memberships = createMembershipQueue({ ...base, agents, clock, log, onLeft });
  const { worker: delegations, close: closeDelegations } = createDelegationWorker({
    ...{ config, clock, log, random },
    ledger: ledger.delegations,
    rooms: ledger.memberships,
    directory: agents,
    ...{ trust, textsOf },
    mayClaim: () => ownership.claimant !== undefined,
    sending,
    metrics: delegationMetrics(metrics, wakeups.unanswered),
  });
  // In the other modes nobody looks for keys any more, and what still waits for some is ended here.
  const expiry = readsEncrypted ? [] : [createIntakeEnvelopeExpiry({ ledger, clock, log, observe })];
  const parts = { ...base, encryption, wakeups, ownership, delegations };
  const { intake, catchup } = createIntake(context, parts);
  const retention = createRetentionLoop(context, parts);

  const restoreGuard = createRestoreGuard({
    marker: ledger.marker,
    homeserver,
    user: `@${config.appservice.senderLocalpart}:${config.homeserver.serverName}` as UserId,
    isTurn: () => ownership.owns("retention"),
    clock,
    log,
  });
  const readWaiting = async () => ledger.waiting([...(await agents.current()).byGhost.keys()]);
  const waiting = waitingGauges(metrics, readWaiting, clock);
  const recordGauges = async () => {
    encryption?.record();
    for (const [kind, count] of Object.entries(delegations.slots)) metrics.slots.set({ kind }, count);
    await waiting();
  };
  const inbox = encryption?.devices.inbox;
  wakeups.parts = { delegations, notices, memberships, envelopes: encryption?.queue, inbox };
  return {
    ...{ ownership, homeserver, ghosts, ledger, encryption, intake, restoreGuard, recordGauges },
    /** Exports audit records; the last to drain, since what drains writes some. */
    audit,
    /** Ends the connections to agents; to be called when the workers have drained. */
    closeDelegations,
    workers: [
      ...[restoreGuard, delegations, notices, statuses, memberships, profiles.loop, avatars.loop, retention],
      ...[catchup, ...expiry],
    ],
  };
}

function createBase(
  { config, clock, log, random, agents, database, metrics, secrets }: BridgeContext,
  ownership: Ownership,
) {
  const namespace = createNamespace({ serverName: config.homeserver.serverName, ...config.appservice });
  const tables = createLedger(database.pool, secrets.keys, {
    noticeIntervalMs: config.limits.noticeInterval,
    roomGateMs: config.limits.roomGate,
    servesEncryptedRooms: config.encryption.mode === "on",
    isGhost: namespace.isOwn,
  });
  const ledger: Ledger = {
    ...tables,
    delegations: claimedBy(ownership, tables.delegations),
    envelopes: claimedBy(ownership, tables.envelopes),
    notices: claimedBy(ownership, tables.notices),
    statuses: claimedBy(ownership, tables.statuses),
    memberships: claimedBy(ownership, tables.memberships),
  };
  const homeserverOptions: HomeserverOptions = {
    url: config.homeserver.url,
    asToken: secrets.asToken,
    requestTimeoutMs: config.homeserver.requestTimeout,
    clock,
    onKeysTooLarge: (user) =>
      log.warn({ user }, "a user has more keys than are read, and gets no room keys for a while"),
    observe: ({ operation, outcome, durationMs }) =>
      metrics.homeserverSeconds.observe({ operation, outcome }, durationMs / 1_000),
  };
  const homeserver = new Homeserver(homeserverOptions);
  const mayMake = async (ghost: GhostMxid) =>
    (await agents.current()).byGhost.has(ghost) || (await ledger.ghosts.recordedDevice(ghost)) !== undefined;
  const ghosts = new Ghosts({ homeserver, ledger, clock, random, mayMake });
  return { namespace, ledger, homeserverOptions, homeserver, ghosts };
}

/** Has rows claimed for this process, by its present number, and none while it has none. */
function claimedBy<Request extends ClaimRequest, Row, Rest>(
  ownership: Ownership,
  rows: Rest & { readonly claim: (request: Request) => Promise<Row[]> },
): Rest & { readonly claim: (request: Request) => Promise<Row[]> } {
  const claim = async (request: Request) => {
    const { claimant } = ownership;
    return claimant === undefined ? [] : await rows.claim({ ...request, ...claimant });
  };
  return { ...rows, claim };
}

type Parts = ReturnType<typeof createBase> & {
  readonly encryption: Encryption | undefined;
  readonly wakeups: Wakeups;
  readonly ownership: Ownership;
  readonly delegations: DelegationWorker;
};

function createIntake(context: BridgeContext, parts: Parts) {
  const { config, clock, log, stop, agents, metrics, secrets } = context;
  const { ledger, ghosts, namespace, encryption, wakeups, ownership, delegations } = parts;
  const { limits } = config;
  const observe = intakeMetrics(metrics);
  const handle = createTransactionHandler({
    ledger,
    agents,
    namespace,
    clock,
    capacity: limits,
    contextLifetimeMs: limits.contextLifetime,
    slotFor: ({ agent, ghost }, isEncrypted) => {
      const { claimant } = ownership;
      const isServed = claimant !== undefined && (!isEncrypted || claimant.ghosts?.includes(ghost) !== false);
      return isServed ? delegations.reserve(agent, claimant.holder) : undefined;
    },
    encryption: encryption?.intake,
    ready: () => catchup.ready(),
  });
  const onCommitted = (transaction: HandledTransaction) => {
    const { events } = transaction.read;
    wakeups.admitted(transaction);
    encryption?.redacted(redactedIn(events).map(({ event }) => event));
    if (transaction.roomStateChanged) wakeups.wake("notices", "memberships");
    if (transaction.mail > 0) wakeups.wake("inbox");
  };
  const catchup: ReturnType<typeof createCatchup> = createCatchup({
    homeserver: parts.homeserverOptions,
    ghosts,
    agents,
    positions: ledger.roomPositions,
    handled: ledger.intake.handled,
    intake: async ({ transactionId, events, order }) => {
      const handled = await handle(transactionId, events, { recovered: order });
      observe.recorded(handled);
      onCommitted(handled);
      return { admitted: handled.admitted + handled.envelopes };
    },
    catchupRoomState: async (ghost, inRooms) => {
      await ledger.memberships.catchupRoomState(ghost, inRooms, clock.now());
      wakeups.wake("memberships");
    },
    rooms: config.catchup.rooms,
    isTurn: () => ownership.owns("catchup"),
    catchup: encryption && ((ghost, signal) => encryption.devices.catchup(ghost, signal)),
    clock,
    log,
    metrics: catchupMetrics(metrics),
  });
  const intake = createIntakeServer({
    hsToken: secrets.hsToken,
    bodyBytesMax: limits.transactionBodyBytes,
    handle: throughFailover(handle, clock, stop),
    onCommitted,
    provideGhost: async (ghost) =>
      (await agents.current()).byGhost.has(ghost) && (await ghosts.ensureGhost(ghost)).kind === "ok",
    observe,
    clock,
    log,
  });
  return { intake, catchup };
}

function createRetentionLoop({ clock, config, metrics }: BridgeContext, { ledger, ownership }: Parts) {
  const isSteady = createSteadiness(clock);
  return new WorkLoop({
    clock,
    round: async (signal) => {
      if (!isSteady() || !ownership.owns("retention")) return false;
      // An old position would be read from once the catchup is switched on again, further back than is remembered.
      if (!config.catchup.rooms) await ledger.roomPositions.forget();
      const begunAt = clock.now();
      const { encryption, limits, retention } = config;
      const times = { ...retention, sessions: encryption.sessionRetention, contexts: limits.contextLifetime };
      const { deleted, hasMore } = await ledger.retention.round(times, clock);
      for (const [kind, count] of deleted) metrics.rowsDeleted.inc({ kind }, count);
      // Others get at least half of the database's time.
      if (hasMore) await clock.sleep(clock.now() - begunAt, signal).catch(() => undefined);
      return hasMore;
    },
    onError: () => metrics.workerErrors.inc({ worker: "retention" }),
    pollIntervalMs: RETENTION_INTERVAL_MS,
  });
}
