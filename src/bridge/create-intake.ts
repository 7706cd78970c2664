// What brings events in, wired together: the server of transactions, and the catchup of what the homeserver lost.
import { createCatchup } from "./catchup/catchup.ts";
import type { BridgeContext } from "./context.ts";
import type { Encryption } from "./create-encryption.ts";
import type { createLedgerAndGhosts } from "./create-ledger-and-ghosts.ts";
import type { DelegationWorker } from "./delegation/worker.ts";
import { redactedIn } from "./intake/cancellations.ts";
import { createTransactionHandler, throughFailover } from "./intake/handle-transaction.ts";
import { createIntakeServer } from "./intake/server.ts";
import { catchupMetrics, intakeMetrics } from "./metrics.ts";
import type { Ownership } from "./ownership.ts";
import type { Wakeups } from "./wakeups.ts";

export type IntakeServices = ReturnType<typeof createLedgerAndGhosts> & {
  readonly encryption: Encryption | undefined;
  readonly wakeups: Wakeups;
  readonly ownership: Ownership;
  readonly delegations: DelegationWorker;
};

export function createIntake(context: BridgeContext, services: IntakeServices) {
  const { config, clock, log, stop, agents, metrics, secrets } = context;
  const { ledger, ghosts, namespace, encryption, wakeups, ownership, delegations } = services;
  const { limits } = config;
  const observe = intakeMetrics(metrics);
  const handle = createTransactionHandler({
    ...{ ledger, agents, namespace, clock },
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
  const onCommitted = (transaction: Awaited<ReturnType<typeof handle>>) => {
    const { events } = transaction.read;
    wakeups.admitted(transaction);
    encryption?.redacted(redactedIn(events).map(({ event }) => event));
    if (transaction.roomStateChanged) wakeups.wake("notices", "memberships");
    if (transaction.mail > 0) wakeups.wake("inbox");
  };
  const catchup: ReturnType<typeof createCatchup> = createCatchup({
    homeserver: services.homeserverOptions,
    ...{ ghosts, agents, clock, log },
    positions: ledger.roomPositions,
    handled: ledger.intake.handled,
    intake: async ({ transactionId, events, order }) => {
      const handled = await handle(transactionId, events, { caughtUp: order });
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
    metrics: catchupMetrics(metrics),
  });
  const intake = createIntakeServer({
    hsToken: secrets.hsToken,
    bodyBytesMax: limits.transactionBodyBytes,
    handle: throughFailover(handle, clock, stop),
    onCommitted,
    provideGhost: async (ghost) =>
      (await agents.current()).byGhost.has(ghost) && (await ghosts.ensureGhost(ghost)).kind === "ok",
    ...{ observe, clock, log },
  });
  return { intake, catchup };
}
