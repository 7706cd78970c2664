// One ghost's device: when its machine may be used, and who is told of keys.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { GhostDevices } from "../../../../src/bridge/crypto/ghost-devices.ts";
import type { DeviceRecord } from "../../../../src/bridge/matrix/device-api.ts";
import type { DeviceChanges } from "../../../../src/bridge/matrix/device-changes.ts";
import type { Outcome } from "../../../../src/bridge/matrix/request-result.ts";
import { DrawbridgeError } from "../../../../src/domain/errors.ts";
import type { GhostMxid, RoomId } from "../../../../src/domain/identifiers.ts";
import { closedDevice, openDevice } from "../../../support/fake-devices.ts";
import { ManualClock } from "../../../support/manual-clock.ts";

const ROOM = "!room" as RoomId;
const CHANGES: DeviceChanges = {
  toDevice: [{ type: "m.room.encrypted", sender: "@alice:a.test", content: {} }],
  changedUsers: [],
  leftUsers: [],
  oneTimeKeyCounts: undefined,
  unusedFallbackKeys: undefined,
};

describe("GhostDevice", () => {
  it("a key that comes with a transaction wakes the intake envelopes of its room [ENC-10]", async () => {
    const rooms: RoomId[] = [];
    let brought: readonly RoomId[] = [ROOM];
    const machines = { outgoing: async () => [], receive: async () => brought };
    const device = await openDevice(machines, async () => ({ kind: "ok", value: "{}" }), {
      onNewKeys: (found) => rooms.push(...found),
    });
    await device.receive(CHANGES);
    assert.deepEqual(rooms, [ROOM]);
    brought = [];
    await device.receive(CHANGES);
    assert.deepEqual(rooms, [ROOM], "nobody is woken for nothing");
  });

  it("what comes from a server that no agent allows does not reach the machine, and is counted [ENC-10]", async () => {
    const reached: unknown[] = [];
    const refused: number[] = [];
    const machines = {
      outgoing: async () => [],
      receive: async (_ghost: GhostMxid, { toDevice }: DeviceChanges) => {
        reached.push(...toDevice.map(({ sender }) => sender));
        return [];
      },
    };
    const device = await openDevice(machines, async () => ({ kind: "ok", value: "{}" }), {
      onRefused: (count) => refused.push(count),
    });
    const from = (sender: unknown) => ({ type: "m.room.encrypted", sender, content: {} });
    const senders = ["@mallory:evil.test", "@alice:a.test", "@bob:b.test", "@bob:b.test:8448", "b.test", 7];
    await device.receive({ ...CHANGES, toDevice: senders.map(from) });
    assert.deepEqual(reached, ["@alice:a.test", "@bob:b.test"]);
    assert.deepEqual(refused, [4]);
  });

  it("a machine receives and sends nothing before its store was found consistent [ENC-2]", async () => {
    const calls: string[] = [];
    const machines = {
      outgoing: async () => [{ id: "upload", kind: "keys_upload", body: "{}" }],
      receive: async () => {
        calls.push("receive");
        return [];
      },
      track: async () => calls.push("track"),
      shut: async () => calls.push("shut"),
    };
    const judging = Promise.withResolvers<void>();
    const asked = Promise.withResolvers<void>();
    // Behind what the homeserver has seen: a backup was put back.
    const store = { deviceId: "DEVICE", epoch: 0, publishedAt: 1, identity: undefined };
    const device = closedDevice(
      machines,
      async (kind) => {
        calls.push(kind);
        return { kind: "ok", value: "{}" };
      },
      {
        recordedDevice: async () => {
          asked.resolve();
          await judging.promise;
          return { store };
        },
      },
    );
    const opening = device.ensure();
    await asked.promise;
    await device.receive(CHANGES);
    await device.requests.drive();
    judging.resolve();
    assert.equal((await opening).kind, "retry");
    assert.equal(device.status()?.stopped, "store_behind");
    assert.deepEqual(calls, ["shut"]);
  });

  it("a device that was reset while another process had the ghost is opened as the new one, and nothing stops [ENC-2] [DEL-9]", async () => {
    const device = closedDevice({ outgoing: async () => [] }, async () => ({ kind: "ok", value: "{}" }), {
      knownDevice: "BEFORE",
    });
    assert.equal((await device.ensure()).kind, "ok");
    assert.deepEqual([device.deviceId, device.status()?.stopped], ["DEVICE", undefined]);
    await device.catchup.ended();
  });

  it("a device that the database kept from being opened, or whose machine was taken away, is opened a second later [DEL-9]", async () => {
    let now = 0;
    let fails = true;
    const identity = { curve25519: "curve", ed25519: "ed" };
    const store = { deviceId: "DEVICE", epoch: 1, publishedAt: 1, identity };
    const device = closedDevice({ outgoing: async () => [] }, async () => ({ kind: "ok", value: "{}" }), {
      now: () => now,
      recordedDevice: async () => {
        if (fails) throw new DrawbridgeError("database_unavailable", "the database is away");
        return { deviceId: "DEVICE", store };
      },
    });
    assert.equal((await device.ensure()).kind, "retry");
    fails = false;
    assert.equal((await device.ensure()).kind, "retry", "a failing database is not asked by every caller");
    assert.equal(device.opensAgainIn, 1_000);
    now = 1_000;
    assert.equal((await device.ensure()).kind, "ok");
    assert.equal(device.opensAgainIn, undefined);
    await device.catchup.ended();
    device.lost();
    assert.equal((await device.ensure()).kind, "retry");
    assert.equal(device.opensAgainIn, 1_000);
    now = 2_000;
    assert.equal((await device.ensure()).kind, "ok");
    await device.catchup.ended();
  });

  it("a machine that is taken away while its device is recorded as published is opened again [DEL-9]", async () => {
    let now = 0;
    let recorded = 0;
    const device = closedDevice({ outgoing: async () => [] }, async () => ({ kind: "ok", value: "{}" }), {
      now: () => now,
      recordPublished: async () => {
        recorded += 1;
        if (recorded === 1) device.lost();
      },
    });
    assert.equal((await device.ensure()).kind, "retry");
    assert.equal(device.opensAgainIn, 1_000);
    now = 1_000;
    assert.equal((await device.ensure()).kind, "ok");
    assert.equal(device.isOpen, true);
    await device.catchup.ended();
  });

  it("the store of a ghost that went to another process while its account was looked at is left to that [ENC-2] [DEL-9]", async () => {
    let [isOwn, opened] = [true, 0];
    const device = closedDevice({ outgoing: async () => [] }, async () => ({ kind: "ok", value: "{}" }), {
      owns: () => isOwn,
      recordedDevice: async () => {
        isOwn = false;
        return { deviceId: "DEVICE", store: undefined };
      },
      open: async () => {
        opened += 1;
        return { kind: "no_store" };
      },
    });
    assert.equal((await device.ensure()).kind, "retry");
    assert.equal(opened, 0);
  });

  it("a machine is opened while the homeserver is asked, and work waits until that was tried [DEL-9]", async () => {
    const record = Promise.withResolvers<Outcome<DeviceRecord | undefined>>();
    const opened = Promise.withResolvers<void>();
    let readied = 0;
    const device = closedDevice({ outgoing: async () => [] }, async () => ({ kind: "ok", value: "{}" }), {
      deviceRecord: () => record.promise,
      open: async () => {
        opened.resolve();
        return { kind: "opened", identity: { curve25519: "curve", ed25519: "ed" } };
      },
      onReady: () => {
        readied += 1;
      },
    });
    const opening = device.ensure();
    await opened.promise;
    assert.deepEqual([device.isSettled, readied], [false, 0]);
    record.resolve({ kind: "ok", value: { deviceId: "DEVICE", epoch: 1 } });
    assert.equal((await opening).kind, "ok");
    assert.deepEqual([device.isSettled, readied], [true, 1]);
    await device.catchup.ended();
  });

  it("a store that another process makes and publishes while it is looked for is not taken for a lost one [ENC-2]", async () => {
    const identity = { curve25519: "curve", ed25519: "ed" };
    const found = [{ kind: "no_store" }, { kind: "opened", identity }];
    const device = closedDevice({ outgoing: async () => [] }, async () => ({ kind: "ok", value: "{}" }), {
      open: async () => found.shift(),
    });
    assert.equal((await device.ensure()).kind, "ok");
    assert.equal(device.status()?.stopped, undefined);
    await device.catchup.ended();
  });

  it("a catchup is due when a machine could not take in a transaction's part, refused or not [ENC-8]", async () => {
    const failure = new DrawbridgeError("database_unavailable", "the database is away");
    const machines = { outgoing: async () => [], receive: () => Promise.reject(failure) };
    const device = await openDevice(machines, async () => ({ kind: "ok", value: "{}" }));
    assert.equal(device.catchup.isDue, false);
    await assert.rejects(device.receive(CHANGES), failure);
    assert.equal(device.catchup.isDue, true);
  });

  it("requests stay due when the machine cannot be called", async () => {
    let fails = true;
    const outgoing = async () => {
      if (fails) throw new DrawbridgeError("device_unavailable", "its thread has ended");
      return [];
    };
    const device = await openDevice({ outgoing }, async () => ({ kind: "ok", value: "{}" }));
    await assert.rejects(device.requests.drive(), { code: "device_unavailable" });
    assert.equal(device.requests.isDue, true);
    fails = false;
    assert.equal((await device.requests.drive()).kind, "ok");
    assert.equal(device.requests.isDue, false);
  });

  it("a device's record that overtakes its reset is corrected at the homeserver [ENC-2]", async () => {
    const reported: DeviceRecord[] = [];
    let recorded = "DEVICE";
    const machines = { outgoing: async () => [] };
    const identity = { curve25519: "curve", ed25519: "ed" };
    const device = await openDevice(machines, async () => ({ kind: "ok", value: "{}" }), {
      recordedDevice: async () => ({
        deviceId: recorded,
        store: recorded === "DEVICE" ? { deviceId: recorded, epoch: 1, publishedAt: 1, identity } : undefined,
      }),
      setDeviceRecord: async (_ghost, record) => {
        reported.push(record);
        return { kind: "ok", value: undefined };
      },
    });
    assert.equal((await device.raiseEpoch()).kind, "ok");
    assert.deepEqual(reported.at(-1), { deviceId: "DEVICE", epoch: 2 });
    recorded = "NEWDEVICE";
    assert.equal((await device.raiseEpoch()).kind, "retry");
    assert.deepEqual(reported.slice(-2), [
      { deviceId: "DEVICE", epoch: 2 },
      { deviceId: "NEWDEVICE", epoch: 0 },
    ]);
  });
});

describe("GhostDevices", () => {
  it("a ghost whose machine hangs is left to another process after five seconds [DEL-9]", async () => {
    const clock = new ManualClock(0);
    const never = new Promise<never>(() => {});
    const devices = new GhostDevices({
      machines: () => ({ shut: () => never }),
      ...{ clock, homeserver: {}, ghosts: {}, ledger: {} },
    } as unknown as ConstructorParameters<typeof GhostDevices>[0]);
    let isClosed = false;
    const closed = devices.close("@agent_docs:a.test" as GhostMxid, false).then(() => {
      isClosed = true;
    });
    await clock.advance(4_999);
    assert.equal(isClosed, false);
    await clock.advance(1);
    await closed;
  });
});
