// What encrypted rooms add to the bridge, wired together: machines, devices, the intake envelope worker.
// Invariants: with mode `refuse` there is none of it; with `devices` ghosts have devices, and take no part; the devices
// outlive whatever may still send, and their machines end last.
import type { Logger } from "pino";
import type { Clock, Random } from "../domain/clock.ts";
import type { EventId, GhostMxid } from "../domain/identifiers.ts";
import { readSecret } from "../runtime/secrets.ts";
import type { AgentDirectory } from "./agents/directory.ts";
import type { BridgeConfig } from "./config.ts";
import { deviceReadiness } from "./crypto/device-readiness.ts";
import { GhostDevices } from "./crypto/ghost-devices.ts";
import { IntakeEnvelopeWorker } from "./crypto/intake-envelope-worker.ts";
import { Machines } from "./crypto/machines.ts";
import type { Database } from "./database.ts";
import type { EncryptedIntake } from "./intake/handle-transaction.ts";
import type { Namespace } from "./intake/namespace.ts";
import type { Admitted } from "./ledger/admission.ts";
import { ContentKeys } from "./ledger/content-keys.ts";
import type { Ledger } from "./ledger/ledger.ts";
import type { Ghosts } from "./matrix/ghosts.ts";
import type { Homeserver } from "./matrix/homeserver.ts";
import type { EncryptEvent } from "./matrix/send.ts";
import { deviceMetrics, intakeEnvelopeMetrics, type Metrics, recordDevices } from "./metrics.ts";

export interface EncryptionOptions {
  readonly config: BridgeConfig;
  readonly database: Pick<Database, "url">;
  readonly ledger: Ledger;
  readonly homeserver: Homeserver;
  readonly ghosts: Ghosts;
  readonly agents: AgentDirectory;
  readonly namespace: Namespace;
  readonly metrics: Metrics;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  /** What a derivation led to. */
  readonly onDerived: (admitted: Admitted) => void;
  /** An intake envelope ended without delegations: there may be a notice, and there is an audit record. */
  readonly onExpired: () => void;
}

export type Encryption = NonNullable<ReturnType<typeof createEncryption>>;

/** Undefined when `encryption.mode` is `refuse`. */
export function createEncryption(options: EncryptionOptions) {
  const { config, agents, metrics, clock, random, log } = options;
  const { encryption, limits } = config;
  const { mode, storeKeys } = encryption;
  if (mode === "refuse" || storeKeys === undefined) return undefined;
  const takesPart = mode === "on";
  const ending = new AbortController();

  const countError = () => metrics.workerErrors.inc({ worker: "intake_envelopes" });
  const devices = new GhostDevices({
    ...options,
    machines: (onLost) =>
      new Machines({
        threads: encryption.threads,
        databaseUrl: options.database.url,
        storeKeys: ContentKeys.parse(readSecret(storeKeys, config.directory)),
        policy: encryption,
        clock,
        random,
        log,
        onLost,
      }),
    observe: deviceMetrics(metrics),
    onNewKeys: (rooms) => void worker?.keysCame(rooms).catch(countError),
    configured: async () => [...(await agents.current()).byGhost.keys()],
  });
  const worker: IntakeEnvelopeWorker | undefined = takesPart
    ? new IntakeEnvelopeWorker({
        ...options,
        devices,
        fetchEvent: (ghost, room, event, signal) =>
          options.ghosts.acting(ghost, (actor) => options.homeserver.event(actor, room, event), signal),
        observe: intakeEnvelopeMetrics(metrics, { derived: options.onDerived, expired: options.onExpired }),
        capacity: { room: limits.roomQueue, global: limits.globalQueue },
        noticeIntervalMs: limits.noticeInterval,
        keyRequests: encryption.keyRequests,
      })
    : undefined;

  const intake: EncryptedIntake = {
    devices,
    takesPart,
    plainInEncrypted: encryption.senderDevices === "allow_all",
    keyWaitMs: encryption.keyWait,
  };
  const encryptEvent: EncryptEvent = (actor, room, event) => devices.encryptEvent(actor, room, event);
  return {
    intake,
    /** The catchup of a ghost's to-device messages. */
    catchup: (ghost: GhostMxid, signal: AbortSignal) => devices.catchup(ghost, signal),
    /** Makes what is sent ready for its room; undefined where encrypted rooms are refused. */
    encryptEvent: takesPart ? encryptEvent : undefined,
    start: () => {
      devices.start(ending.signal);
      worker?.start();
    },
    /** To be called when intake envelopes were admitted. */
    wake: () => worker?.wake(),
    /** To be called when these events were redacted. */
    redacted: (events: readonly EventId[]) => void worker?.redacted(events).catch(countError),
    readiness: async () => deviceReadiness(devices, [...(await agents.current()).byGhost.keys()]),
    /** Sets the gauges of devices, before a scrape. */
    record: () => recordDevices(metrics, devices.statuses(), devices.keyDelivery().result),
    drainWorker: async () => await worker?.drain(),
    /** Closes the devices: nothing can be sent into encrypted rooms after it. */
    close: async () => {
      ending.abort();
      await devices.drain();
    },
  };
}
