// The status and the reset of ghosts' devices for an operator, whether the bridge runs or not.
// Invariants: the status changes nothing; a reset deletes the old device at the homeserver before it deletes it from the
// ledger, so that an interrupted reset leaves a stopped device and can be repeated.
import { systemClock, systemRandom } from "../domain/clock.ts";
import { DrawbridgeError } from "../domain/errors.ts";
import { type GhostMxid, ghostOf, parseAgentId, parseUserId } from "../domain/identifiers.ts";
import { readSecret } from "../runtime/secrets.ts";
import type { BridgeConfig } from "./config.ts";
import { onDatabase } from "./database.ts";
import { createGhosts, type RecordedDevice } from "./ledger/ghosts.ts";
import type { GhostLedger } from "./ledger/ledger.ts";
import { freshDeviceId } from "./matrix/ghosts.ts";
import { Homeserver } from "./matrix/homeserver.ts";
import { type Outcome, reasonOf } from "./matrix/request-result.ts";

export type DeviceReport = Awaited<ReturnType<typeof reportOf>>;

function onDevices<T>(config: BridgeConfig, work: (ledger: GhostLedger, at: Homeserver) => Promise<T>) {
  return onDatabase(config, async (pool) => {
    const asToken = readSecret(config.appservice.asToken, config.directory);
    const { url, requestTimeout } = config.homeserver;
    const homeserver = new Homeserver({ url, asToken, requestTimeoutMs: requestTimeout, clock: systemClock });
    try {
      return await work(createGhosts(pool), homeserver);
    } finally {
      await homeserver.close();
    }
  });
}

export const reportDevices = (config: BridgeConfig) =>
  onDevices(config, async (ledger, homeserver) => {
    const reports: DeviceReport[] = [];
    for (const device of await ledger.recordedDevices()) reports.push(await reportOf(device, homeserver));
    return reports;
  });

/** Gives a ghost, by its user ID or its agent's name, a new device; the old one and all its keys are gone. */
export const resetDevice = (config: BridgeConfig, name: string) =>
  onDevices(config, async (ledger, { devices }) => {
    const ghost = ghostNamed(name, config);
    const from = (await ledger.recordedDevice(ghost))?.deviceId;
    if (from === undefined) {
      throw new DrawbridgeError("usage", `${ghost} has no device here`, {
        hint: "Name a ghost that `drawbridge ghost device status` lists.",
      });
    }
    const to = freshDeviceId(systemRandom);
    assertDone("delete the old device", await devices.deleteDevice(ghost, from));
    const record = async () =>
      assertDone("record the new device", await devices.setDeviceRecord(ghost, { deviceId: to, epoch: 0 }));
    await record();
    if (await ledger.resetDevice(ghost, from, to)) {
      // Once more: until the ledger was changed, a running bridge may have recorded the old device again.
      await record();
      return { ghost, from, to };
    }
    throw new DrawbridgeError("lease_lost", `the device of ${ghost} was reset by somebody else meanwhile`, {
      hint: "Check it with `drawbridge ghost device status`.",
    });
  });

async function reportOf(device: RecordedDevice, homeserver: Homeserver) {
  const { ghost, deviceId, store, stopped } = device;
  const answer = await homeserver.devices.publishedDevice(ghost, deviceId);
  const published = answer.kind === "ok" ? answer.value : undefined;
  /** The device's keys there, compared with the store. */
  const view = () => {
    if (answer.kind !== "ok") return "unreachable";
    if (published === undefined) return "no_keys";
    return published.identity.ed25519 === store?.identity?.ed25519 ? "as_stored" : "other_keys";
  };
  return {
    ghost,
    device: deviceId,
    stopped: stopped?.reason ?? null,
    stoppedAt: isoTime(stopped?.at),
    store: store?.identity !== undefined,
    epoch: store === undefined ? null : String(store.epoch),
    publishedAt: isoTime(store?.publishedAt),
    homeserver: view(),
    crossSigned: published?.crossSigned ?? null,
  };
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
  throw new DrawbridgeError(
    outcome.kind === "refused" ? "homeserver_refused" : "homeserver_unavailable",
    `the homeserver did not ${what} (${reasonOf(outcome)})`,
    { hint: "Run `drawbridge doctor`; then repeat the command: nothing is lost by that." },
  );
}

const isoTime = (at: number | undefined) => (at === undefined ? null : new Date(at).toISOString());
