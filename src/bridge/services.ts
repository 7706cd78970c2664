// Everything that works in a bridge process, wired together.
// Invariant: nothing is started here, nothing listens, and no request is made to the homeserver.
import { resolve } from "node:path";
import type { UserId } from "../domain/identifiers.ts";
import { WorkLoop } from "../runtime/work-loop.ts";
import { createCardRefresh } from "./agents/refresh-cards.ts";
import { createCardTrustGate } from "./agents/trust.ts";
import { createAuditExporter } from "./audit/exporter.ts";
import type { BridgeContext } from "./context.ts";
import { createEncryption } from "./create-encryption.ts";
import { createIntake, type IntakeServices } from "./create-intake.ts";
import { createLedgerAndGhosts } from "./create-ledger-and-ghosts.ts";
import { createIntakeEnvelopeExpiry } from "./crypto/wait-for-keys.ts";
import { createDelegationWorker } from "./delegation/worker.ts";
import { createRestoreGuard } from "./health/restore-guard.ts";
import { openProcessConnection, releaseEnded } from "./ledger/processes.ts";
import { createSteadiness } from "./ledger/retention.ts";
import { createMembershipQueue } from "./matrix/answer-invitations.ts";
import { createAvatars } from "./matrix/avatars.ts";
import { plainRoomsOnly } from "./matrix/send-once.ts";
import { delegationMetrics, intakeEnvelopeMetrics, waitingGauges } from "./metrics.ts";
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
    close: async (ghost, hasLost) => encryption?.devices.close(ghost, hasLost),
    onLost: () => delegations.lost(),
    onReleased: () => wakeups.all(),
    onNotified: wakeups.receive,
    onObserved: (processes, owned) => {
      metrics.processes.set(processes);
      metrics.ghostsOwned.set(owned);
    },
    clock,
    log,
  });
  wakeups.send = (message) => ownership.notify(message);
  const base = createLedgerAndGhosts(context, ownership);
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
    onError: () => metrics.workerErrors.inc({ worker: "notices" }),
  });
  const statuses = createStatusQueue({
    ...sending,
    ...{ ledger, textsOf, log },
    onError: () => metrics.workerErrors.inc({ worker: "statuses" }),
  });
  const memberships = createMembershipQueue({
    ...{ ...base, agents, clock, log },
    onLeft: async ({ ghost, roomId }) => encryption?.devices.forgetRoom(ghost, roomId),
    onError: () => metrics.workerErrors.inc({ worker: "memberships" }),
  });
  const { worker: delegations, close: closeDelegations } = createDelegationWorker({
    ...{ config, clock, log, random },
    ledger: ledger.delegations,
    rooms: ledger.memberships,
    directory: agents,
    ...{ trust, textsOf },
    mayClaim: () => ownership.claimant !== undefined,
    isAlive: () => ownership.isAlive,
    sending,
    metrics: delegationMetrics(metrics, wakeups.unanswered),
  });
  // In the other modes nobody looks for keys any more, and what still waits for some is ended here.
  const expiry = readsEncrypted ? [] : [createIntakeEnvelopeExpiry({ ledger, clock, log, observe })];
  const services = { ...base, encryption, wakeups, ownership, delegations };
  const { intake, catchup } = createIntake(context, services);
  const retention = createRetention(context, services);

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
  wakeups.wakeables = { delegations, notices, memberships, envelopes: encryption?.queue, inbox };
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

function createRetention({ clock, config, metrics }: BridgeContext, { ledger, ownership }: IntakeServices) {
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
