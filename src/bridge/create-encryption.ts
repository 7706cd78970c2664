// What encrypted rooms add to the bridge, wired together: machines, devices, the intake envelope worker.
// Invariants: with mode `refuse` there is none of it; with `devices` ghosts have devices, and take no part; the devices
// outlive whatever may still send, and their machines end last.
import type { EventId, GhostMxid } from "../domain/identifiers.ts";
import { readSecret } from "../runtime/secrets.ts";
import { serversAllowed } from "./agents/sender-policy.ts";
import type { BridgeContext } from "./context.ts";
import { deviceReadiness } from "./crypto/device-checks.ts";
import { GhostDevices } from "./crypto/ghost-devices.ts";
import { Machines } from "./crypto/machines.ts";
import { createIntakeEnvelopeWorker, type IntakeEnvelopeObserver } from "./crypto/wait-for-keys.ts";
import type { EncryptedIntake } from "./intake/handle-transaction.ts";
import type { Namespace } from "./intake/namespace.ts";
import { createRecentEvents } from "./intake/open-encrypted.ts";
import { ContentKeys } from "./ledger/content-keys.ts";
import type { Ledger } from "./ledger/ledger.ts";
import type { Ghosts } from "./matrix/ghosts.ts";
import type { Homeserver } from "./matrix/homeserver.ts";
import type { EncryptEvent } from "./matrix/send-once.ts";
import { deviceMetrics, recordDevices } from "./metrics.ts";

export interface EncryptionOptions extends Omit<BridgeContext, "secrets" | "stop"> {
  readonly ledger: Ledger;
  readonly homeserver: Homeserver;
  readonly ghosts: Ghosts;
  readonly namespace: Namespace;
  readonly observe: IntakeEnvelopeObserver;
  readonly owns: (ghost: GhostMxid) => boolean;
  readonly onReady: () => void;
}

export type Encryption = NonNullable<ReturnType<typeof createEncryption>>;

/** Undefined when `encryption.mode` is `refuse`. */
export function createEncryption(options: EncryptionOptions) {
  const { config, agents, metrics, clock, random, log } = options;
  const { encryption, limits } = config;
  const { mode, storeKeys } = encryption;
  if (mode === "refuse" || storeKeys === undefined) return undefined;
  const takesPart = mode === "on";
  const recent = createRecentEvents(clock);
  const configured = async () => [...(await agents.current()).byGhost.keys()];
  const countError = () => metrics.workerErrors.inc({ worker: "intake_envelopes" });
  const devices = new GhostDevices({
    ...options,
    machines: (onLost) =>
      new Machines({
        threads: encryption.threads,
        databaseUrl: options.database.url,
        storeKeys: ContentKeys.parse(readSecret(storeKeys, config.directory)),
        policy: encryption,
        ...{ clock, random, log, onLost },
      }),
    observe: deviceMetrics(metrics),
    onNewKeys: (rooms) => void worker?.keysCame(rooms).catch(countError),
    serversAllowed: async () => serversAllowed(await agents.current()),
    configured,
  });
  const worker: ReturnType<typeof createIntakeEnvelopeWorker> | undefined = takesPart
    ? createIntakeEnvelopeWorker({
        ...options,
        devices,
        recent,
        fetchEvent: (ghost, room, event, signal) =>
          options.ghosts.acting(ghost, (actor) => options.homeserver.event(actor, room, event), signal),
        observe: options.observe,
        capacity: limits,
        contextLifetimeMs: limits.contextLifetime,
        keyRequests: encryption.keyRequests,
      })
    : undefined;

  const intake: EncryptedIntake = {
    devices,
    takesPart,
    plainInEncrypted: encryption.senderDevices === "allow_all",
    keyWaitMs: encryption.keyWait,
    recent,
  };
  const encryptEvent: EncryptEvent = (actor, room, event) => devices.encryptEvent(actor, room, event);
  return {
    ...{ intake, devices, queue: worker?.queue },
    encryptEvent: takesPart ? encryptEvent : undefined,
    start: () => {
      devices.start();
      worker?.queue.start();
    },
    ghosts: async () => [...new Set([...(await configured()), ...devices.known().keys()])],
    /** To be called when these events were redacted. */
    redacted: (events: readonly EventId[]) => void worker?.redacted(events).catch(countError),
    readiness: async () => deviceReadiness(devices, (await configured()).filter(options.owns)),
    record: () => recordDevices(metrics, devices.statuses(), devices.keyDelivery().result),
    /** Closes the devices: nothing can be sent into encrypted rooms after it. */
    close: () => devices.drain(),
  };
}
