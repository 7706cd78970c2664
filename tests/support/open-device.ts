// One ghost's device over a machine, a homeserver and a ledger of the test's own: no cryptography, no database.
import assert from "node:assert/strict";
import { GhostDevice } from "../../src/bridge/crypto/ghost-device.ts";
import type { DeviceRecord } from "../../src/bridge/matrix/device-api.ts";
import type { GhostActor } from "../../src/bridge/matrix/http.ts";
import { type Outcome, retry } from "../../src/bridge/matrix/outcome.ts";
import type { GhostMxid, RoomId } from "../../src/domain/identifiers.ts";

export const ACTOR: GhostActor = { ghost: "@agent_docs:a.test" as GhostMxid, deviceId: "DEVICE" };
const ok = <T>(value: T): Outcome<T> => ({ kind: "ok", value });

/** A device over a machine and a homeserver of the test's; not opened yet. */
export function closedDevice(
  machines: Readonly<Record<string, unknown>>,
  submit: (kind: string) => Promise<Outcome<string>>,
  others: Readonly<{
    recordedDevice?: () => Promise<unknown>;
    onNewKeys?: (rooms: readonly RoomId[]) => void;
    setDeviceRecord?: (ghost: GhostMxid, record: DeviceRecord) => Promise<Outcome<undefined>>;
  }> = {},
): GhostDevice {
  const identity = { curve25519: "curve", ed25519: "ed" };
  const store = { deviceId: "DEVICE", epoch: 1n, publishedAt: 1, identity };
  const parts = {
    machines: {
      ...machines,
      open: async () => ({ kind: "opened", identity }),
    },
    api: {
      deviceRecord: async () => ok({ deviceId: "DEVICE", epoch: 1n }),
      publishedDevice: async () => ok({ identity, crossSigned: true }),
      setDeviceRecord: others.setDeviceRecord ?? (async () => ok(undefined)),
      toDeviceSince: async () => retry("network"),
      submit: async (_actor: unknown, { kind }: { kind: string }) => await submit(kind),
    },
    ghosts: { ensureGhost: async () => ok(ACTOR) },
    ledger: {
      ghosts: {
        recordedDevice: others.recordedDevice ?? (async () => ({ deviceId: "DEVICE", store })),
        raiseEpoch: async () => 2n,
        recordStopped: async () => {},
        recordPublished: async () => {},
      },
      toDevicePositions: { get: async () => undefined },
    },
    clock: { now: () => 0, sleep: async () => {} },
    log: { info: () => {}, warn: () => {}, error: () => {} },
    observe: { keyCatchupEnded: () => {}, toDevice: () => {}, toDeviceSkipped: () => {}, stopped: () => {} },
    onNewKeys: others.onNewKeys ?? (() => {}),
  };
  return new GhostDevice(ACTOR.ghost, parts as unknown as ConstructorParameters<typeof GhostDevice>[1]);
}

/** The same, open; what its machine wants sent is asked for from then on. */
export async function openDevice(
  machines: Readonly<Record<string, unknown>>,
  submit: (kind: string) => Promise<Outcome<string>>,
  others: Parameters<typeof closedDevice>[2] = {},
): Promise<GhostDevice> {
  let isOpen = false;
  const outgoing = async () => (isOpen ? await (machines["outgoing"] as () => Promise<unknown>)() : []);
  const device = closedDevice({ ...machines, outgoing }, submit, others);
  assert.equal((await device.ensure()).kind, "ok");
  await device.catchup.ended();
  isOpen = true;
  return device;
}
