// Ghosts' devices as an operator sees and repairs them, whether the bridge runs or not.
// Invariants: looking changes nothing; a reset deletes the old device at the homeserver before the ledger
// forgets it, so that one that breaks off leaves a device that is stopped, and can be repeated.
import type { Logger } from "pino";
import type { Clock, Random } from "../domain/clock.ts";
import { DrawbridgeError } from "../domain/errors.ts";
import { type GhostMxid, ghostOf, parseAgentId, parseUserId } from "../domain/identifiers.ts";
import { readSecret } from "../runtime/secrets.ts";
import type { BridgeConfig } from "./config.ts";
import { openDatabase } from "./database.ts";
import { createGhosts, type RecordedDevice } from "./ledger/ghosts.ts";
import type { GhostLedger } from "./ledger/ledger.ts";
import { migrate } from "./ledger/migrate.ts";
import type { DeviceStopReason } from "./ledger/states.ts";
import { freshDeviceId } from "./matrix/ghosts.ts";
import { Homeserver } from "./matrix/homeserver.ts";
import type { Outcome } from "./matrix/outcome.ts";

/** What the homeserver has of a device, against what the store says. */
export type HomeserverView = "as_stored" | "no_keys" | "other_keys" | "unreachable";

export interface DeviceReport {
  readonly ghost: GhostMxid;
  readonly device: string;
  readonly stopped: DeviceStopReason | null;
  readonly stoppedAt: string | null;
  /** Whether there is a store of the device's keys. */
  readonly store: boolean;
  readonly epoch: string | null;
  readonly publishedAt: string | null;
  readonly homeserver: HomeserverView;
  readonly crossSigned: boolean | null;
}

export interface DeviceAdmin {
  status(): Promise<readonly DeviceReport[]>;
  /**
   * Gives a ghost a new device; the old one and all keys it had are gone.
   * @param name the ghost's user ID, or its agent's name
   * @returns the old and the new device ID
   * @throws DrawbridgeError
   */
  reset(name: string): Promise<{ readonly ghost: GhostMxid; readonly from: string; readonly to: string }>;
  close(): Promise<void>;
}

export interface DeviceAdminOptions {
  readonly config: BridgeConfig;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
}

/** Opens the bridge's database, and the homeserver as the bridge. */
export async function openDeviceAdmin(options: DeviceAdminOptions): Promise<DeviceAdmin> {
  const { config, clock, random, log } = options;
  const asToken = readSecret(config.appservice.asToken, config.directory);
  const database = openDatabase(config, log);
  const { url, requestTimeout } = config.homeserver;
  const homeserver = new Homeserver({ url, asToken, requestTimeoutMs: requestTimeout, clock });
  const close = async () => {
    await homeserver.close();
    await database.close();
  };
  try {
    await migrate(database.pool);
  } catch (cause) {
    await close();
    if (cause instanceof DrawbridgeError) throw cause;
    throw new DrawbridgeError("database_unavailable", "the bridge's database cannot be reached", {
      hint: "Start PostgreSQL, or correct `database` in the configuration.",
      cause,
    });
  }
  const ledger = createGhosts(database.pool);
  return {
    status: async () => {
      const devices = await ledger.recordedDevices();
      const reports: DeviceReport[] = [];
      for (const device of devices) reports.push(await reportOf(device, homeserver));
      return reports;
    },
    reset: (name) => reset(name, { config, ledger, homeserver, random }),
    close,
  };
}

async function reportOf(device: RecordedDevice, homeserver: Homeserver): Promise<DeviceReport> {
  const { ghost, deviceId, store, stopped } = device;
  const seen = await homeserver.devices.publishedDevice(ghost, deviceId);
  const published = seen.kind === "ok" ? seen.value : undefined;
  const view = (): HomeserverView => {
    if (seen.kind !== "ok") return "unreachable";
    if (published === undefined) return "no_keys";
    return published.identity.ed25519 === store?.identity?.ed25519 ? "as_stored" : "other_keys";
  };
  return {
    ghost,
    device: deviceId,
    stopped: stopped?.reason ?? null,
    stoppedAt: stopped === undefined ? null : isoTime(stopped.at),
    store: store?.identity !== undefined,
    epoch: store === undefined ? null : String(store.epoch),
    publishedAt: store?.publishedAt === undefined ? null : isoTime(store.publishedAt),
    homeserver: view(),
    crossSigned: seen.kind === "ok" && published !== undefined ? published.crossSigned : null,
  };
}

async function reset(
  name: string,
  parts: {
    readonly config: BridgeConfig;
    readonly ledger: GhostLedger;
    readonly homeserver: Homeserver;
    readonly random: Random;
  },
): Promise<{ readonly ghost: GhostMxid; readonly from: string; readonly to: string }> {
  const { ledger, homeserver, random } = parts;
  const ghost = ghostNamed(name, parts.config);
  const recorded = await ledger.recordedDevice(ghost);
  if (recorded === undefined) {
    throw new DrawbridgeError("usage", `${ghost} has no device here`, {
      hint: "Name a ghost that `drawbridge ghost device status` lists.",
    });
  }
  const from = recorded.deviceId;
  const to = freshDeviceId(random);
  assertDone("delete the old device", await homeserver.devices.deleteDevice(ghost, from));
  const tell = async () =>
    assertDone(
      "write down the new device",
      await homeserver.devices.setDeviceRecord(ghost, { deviceId: to, epoch: 0n }),
    );
  await tell();
  if (await ledger.resetDevice(ghost, from, to)) {
    // Once more: until the ledger said so, a bridge that runs may have told of the old one again.
    await tell();
    return { ghost, from, to };
  }
  throw new DrawbridgeError("lease_lost", `the device of ${ghost} was reset by somebody else meanwhile`, {
    hint: "Look at it with `drawbridge ghost device status`.",
  });
}

function ghostNamed(name: string, { appservice, homeserver }: BridgeConfig): GhostMxid {
  const agent = parseAgentId(name);
  const ghost =
    agent === undefined
      ? (parseUserId(name) as GhostMxid | undefined)
      : ghostOf(appservice.ghostPrefix, agent, homeserver.serverName);
  if (ghost !== undefined) return ghost;
  throw new DrawbridgeError("usage", "that names no ghost", {
    hint: "Name an agent of agents.yaml, or a ghost by its user ID.",
  });
}

function assertDone(what: string, outcome: Outcome<unknown>): void {
  if (outcome.kind === "ok") return;
  const why = outcome.kind === "refused" ? outcome.errcode : (outcome.errcode ?? outcome.cause);
  throw new DrawbridgeError(
    outcome.kind === "refused" ? "homeserver_refused" : "homeserver_unavailable",
    `the homeserver did not ${what} (${why})`,
    { hint: "Run `drawbridge doctor`; then repeat the command: nothing is lost by that." },
  );
}

function isoTime(at: number): string {
  return new Date(at).toISOString();
}
