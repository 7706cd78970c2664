// What encrypted rooms add to the bridge, wired together: machines, devices, the intake envelope worker.
// Invariants: with mode `refuse` there is none of it; with `devices` ghosts have devices, and take no part; the devices
// outlive whatever may still send, and their machines end last.
import type { Logger } from "pino";
import type { Clock, Random } from "../domain/clock.ts";
import type { EventId, GhostMxid, RoomId } from "../domain/identifiers.ts";
import { readSecret } from "../runtime/secrets.ts";
import type { AgentDirectory } from "./agents/directory.ts";
import type { BridgeConfig } from "./config.ts";
import { deviceReadiness } from "./crypto/device-readiness.ts";
import type { GhostDevices } from "./crypto/device-types.ts";
import { createGhostDevices } from "./crypto/devices.ts";
import { IntakeEnvelopeWorker } from "./crypto/intake-envelope-worker.ts";
import { createMachines } from "./crypto/machines.ts";
import type { Database } from "./database.ts";
import type { Readiness } from "./health/health-server.ts";
import type { EncryptedIntake } from "./intake/handle-transaction.ts";
import type { Namespace } from "./intake/namespace.ts";
import type { Admitted } from "./ledger/admission.ts";
import { ContentKeys } from "./ledger/content-keys.ts";
import type { Ledger } from "./ledger/ledger.ts";
import type { Ghosts } from "./matrix/ghosts.ts";
import type { Homeserver } from "./matrix/homeserver.ts";
import type { Seal } from "./matrix/send.ts";
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

export interface Encryption {
  readonly intake: EncryptedIntake;
  /** Reads back a ghost's to-device messages. */
  readonly catchup: (ghost: GhostMxid, signal: AbortSignal) => Promise<unknown>;
  /** Makes what is sent ready for its room; undefined where encrypted rooms are refused. */
  readonly seal: Seal | undefined;
  start(): void;
  /** Intake intake envelopes were admitted. */
  wake(): void;
  /** These events were redacted. */
  redacted(events: readonly EventId[]): void;
  readiness(): Promise<readonly Readiness[]>;
  /** Before a scrape: gauges of devices. */
  record(): void;
  /** Looks at nothing more that waits. */
  drainWorker(): Promise<void>;
  /** Closes the devices: nothing can be sent into encrypted rooms after it. */
  close(): Promise<void>;
}

/** Undefined when `encryption.mode` is `refuse`. */
export function createEncryption(options: EncryptionOptions): Encryption | undefined {
  const { config, agents, metrics, clock, random, log } = options;
  const { encryption, limits } = config;
  const { mode, storeKeys } = encryption;
  if (mode === "refuse" || storeKeys === undefined) return undefined;
  const takesPart = mode === "on";
  const ending = new AbortController();

  const keysCame = (rooms: readonly RoomId[]) => {
    void worker?.keysCame(rooms).catch(() => metrics.workerErrors.inc({ worker: "intake_envelopes" }));
  };
  const devices: GhostDevices = createGhostDevices({
    ...options,
    machines: (onLost) =>
      createMachines({
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
    onNewKeys: keysCame,
    configured: async () => [...(await agents.current()).byGhost.keys()],
  });
  const worker = takesPart
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

  return {
    intake: {
      devices,
      takesPart,
      plainInEncrypted: encryption.senderDevices === "allow_all",
      keyWaitMs: encryption.keyWait,
    },
    catchup: (ghost, signal) => devices.catchup(ghost, signal),
    seal: takesPart ? (actor, room, event) => devices.encryptFor(actor, room, event) : undefined,
    start: () => {
      devices.start(ending.signal);
      worker?.start();
    },
    wake: () => worker?.wake(),
    redacted: (events) => {
      void worker?.redacted(events).catch(() => metrics.workerErrors.inc({ worker: "intake_envelopes" }));
    },
    readiness: async () => deviceReadiness(devices, [...(await agents.current()).byGhost.keys()]),
    record: () => recordDevices(metrics, devices.statuses(), devices.delivery().result),
    drainWorker: async () => await worker?.drain(),
    close: async () => {
      ending.abort();
      await devices.drain();
    },
  };
}
