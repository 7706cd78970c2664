// What transactions brought through other processes for the ghosts' devices of this one, on a real ledger, with machines that
// take as long as a test wants.
import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { pino } from "pino";
import { GhostDevices } from "../../../../src/bridge/crypto/ghost-devices.ts";
import { type DeviceChanges, NO_CHANGES } from "../../../../src/bridge/matrix/device-changes.ts";
import { ok, retry } from "../../../../src/bridge/matrix/request-result.ts";
import { systemClock, systemRandom } from "../../../../src/domain/clock.ts";
import type { GhostMxid, UserId } from "../../../../src/domain/identifiers.ts";
import { eventually } from "../../../support/encrypted-bridge.ts";
import { ghost, ledgerFixture, T0 } from "../../../support/ledger.ts";

const IDENTITY = { curve25519: "curve", ed25519: "ed" };
const NOTHING = () => undefined;

/** @param owned the ghosts that this process has at first */
async function setUp(t: TestContext, names: readonly string[], owned: readonly string[] = names) {
  const { ledger, admit, rows } = await ledgerFixture(t);
  const ghosts = names.map(ghost);
  /** Users whose devices changed, as each ghost's machine was told. */
  const taken = new Map<GhostMxid, string[]>();
  const owns = new Set(owned.map(ghost));
  const hanging = new Set<GhostMxid>();
  /** Ghosts that query keys which the homeserver never has. */
  const querying = new Set<GhostMxid>();
  /** Ghosts whose machines take until then to open. */
  const opening = new Map<GhostMxid, Promise<void>>();
  const opened: GhostMxid[] = [];
  /** Ghosts of whose devices the homeserver was told something. */
  const written: GhostMxid[] = [];
  /** Whose machines are open. */
  const open = new Set<GhostMxid>();
  const over = Promise.withResolvers<void>();
  /** Catchups of keys that the homeserver does not answer yet, once it is slow. */
  const slow = { reads: 0, isSlow: false };
  let checks = 0;
  const machines = {
    open: async (one: GhostMxid) => {
      opened.push(one);
      await opening.get(one);
      open.add(one);
      return { kind: "opened", identity: IDENTITY };
    },
    outgoing: async (one: GhostMxid) =>
      querying.has(one) ? [{ id: "1", kind: "keys_query", body: "{}" }] : [],
    crossSign: async () => [],
    shut: async (one: GhostMxid) => open.delete(one),
    close: async () => undefined,
    receive: async (one: GhostMxid, { changedUsers }: DeviceChanges) => {
      if (hanging.has(one)) await over.promise;
      taken.set(one, [...(taken.get(one) ?? []), ...changedUsers]);
      return [];
    },
  };
  const observe = {
    ...{ keyCatchupEnded: NOTHING, toDevice: NOTHING, toDeviceRefused: NOTHING },
    ...{ toDeviceSkipped: NOTHING, stopped: NOTHING },
  };
  const devices = new GhostDevices({
    ledger,
    observe,
    machines: () => machines,
    homeserver: {
      devices: {
        deviceRecord: async () => ok(undefined),
        setDeviceRecord: async (one: GhostMxid) => {
          written.push(one);
          return ok(undefined);
        },
        publishedDevice: async () => ok({ identity: IDENTITY, crossSigned: true }),
        toDeviceSince: async () => {
          if (!slow.isSlow) return retry("network");
          slow.reads += 1;
          await over.promise;
          slow.reads -= 1;
          return retry("network");
        },
        submit: async () => {
          await over.promise;
          return retry("timeout");
        },
        sendToDevice: async () => ok(undefined),
      },
    },
    ghosts: { ensureGhost: async (one: GhostMxid) => ok({ ghost: one, deviceId: "DEVICE" }) },
    configured: async () => {
      checks += 1;
      return ghosts;
    },
    owns: (one: GhostMxid) => owns.has(one),
    serversAllowed: async () => new Set<string>(),
    onReady: NOTHING,
    onNewKeys: NOTHING,
    ...{ clock: systemClock, random: systemRandom, log: pino({ level: "silent" }) },
  } as unknown as ConstructorParameters<typeof GhostDevices>[0]);
  t.after(async () => {
    over.resolve();
    await devices.drain();
  });
  devices.start();
  const ready = () => devices.statuses().filter(({ state }) => state === "ready").length;
  const areReady = (count: number) =>
    eventually("all are open", async () => ready() === count || undefined, 5_000);
  await areReady(owned.length);
  const checkAll = async () => {
    const before = checks;
    devices.loop.wake();
    await eventually("the devices are looked at", async () => checks > before || undefined, 5_000);
  };
  const bring = async (user: string) => {
    const changes = JSON.stringify({ ...NO_CHANGES, changedUsers: [user as UserId] });
    await admit([], { receivedAt: T0, mail: ghosts.map((one) => ({ ghost: one, changes })) });
    devices.inbox.wake();
  };
  const waiting = async () => (await rows("SELECT FROM bridge_device_inbox")).length;
  const of = { devices, owns, opening, opened, open, written, querying, taken, hanging };
  return { ...of, over, slow, areReady, checkAll, bring, waiting };
}

it("a ghost that is taken over is opened while another one's query of keys hangs [DEL-9] [DEL-10]", async (t) => {
  const { devices, owns, querying, areReady, checkAll } = await setUp(t, ["docs", "math"], ["docs"]);
  querying.add(ghost("docs"));
  await devices.receive(
    new Map([[ghost("docs"), { ...NO_CHANGES, changedUsers: ["@eve:evil.test" as UserId] }]]),
  );
  await checkAll();
  owns.add(ghost("math"));
  devices.loop.wake();
  await areReady(2);
});

it("a ghost that went to another process before its turn came is not opened here any more [DEL-9]", async (t) => {
  const names = ["docs", "math", "it", "law", "late"];
  const { devices, owns, opening, opened, areReady, checkAll } = await setUp(t, names, []);
  const over = Promise.withResolvers<void>();
  for (const name of names.slice(0, 4)) opening.set(ghost(name), over.promise);
  for (const name of names) owns.add(ghost(name));
  devices.loop.wake();
  await eventually("four are opened", async () => opened.length === 4 || undefined, 5_000);
  owns.delete(ghost("late"));
  await devices.close(ghost("late"), false);
  over.resolve();
  await areReady(4);
  await checkAll();
  assert.ok(!opened.includes(ghost("late")));
});

it("a catchup of keys that waits behind one that hangs opens no ghost that went to another process [DEL-9]", async (t) => {
  const { devices, owns, opened, over, slow } = await setUp(t, ["docs"]);
  slow.isSlow = true;
  const first = devices.catchup(ghost("docs"));
  await eventually("the first one reads", async () => slow.reads === 1 || undefined, 5_000);
  const second = devices.catchup(ghost("docs"));
  owns.delete(ghost("docs"));
  await devices.close(ghost("docs"), false);
  over.resolve();
  assert.deepEqual([(await first).kind, (await second).kind], ["retry", "retry"]);
  assert.deepEqual(opened, [ghost("docs")]);
});

it("a ghost that is lost while its machine is opened is closed and not used once that is open [DEL-9] [ENC-2]", async (t) => {
  const { devices, owns, opening, opened, open, written } = await setUp(t, ["docs"], []);
  const over = Promise.withResolvers<void>();
  opening.set(ghost(), over.promise);
  owns.add(ghost());
  devices.loop.wake();
  await eventually("it is opened", async () => opened.length === 1 || undefined, 5_000);
  owns.delete(ghost());
  const closed = devices.close(ghost(), true);
  over.resolve();
  await closed;
  assert.deepEqual([...open], []);
  assert.deepEqual(written, [], "the homeserver was told nothing of its device");
});

it("checks read the keys of four ghosts at a time, and of the others when these have ended [ENC-8] [DEL-10]", async (t) => {
  const names = ["a", "b", "c", "d", "e", "f"];
  const { devices, slow, over, checkAll } = await setUp(t, names);
  slow.isSlow = true;
  const peaks: number[] = [];
  for (const name of names) devices.catchUpSoon(ghost(name));
  for (let check = 0; check < 3; check++) {
    await checkAll();
    peaks.push(
      await eventually("keys are read", async () => (slow.reads >= 4 ? slow.reads : undefined), 5_000),
    );
  }
  assert.deepEqual(peaks, [4, 4, 4]);
  slow.isSlow = false;
  over.resolve();
  await eventually("all have ended", async () => slow.reads === 0 || undefined, 5_000);
});

describe("what other processes brought for devices", () => {
  it("a machine that hangs delays what came for no other ghost [DEL-9] [DEL-10]", async (t) => {
    const { hanging, over, taken, bring, waiting } = await setUp(t, ["docs", "math"]);
    hanging.add(ghost("docs"));
    await bring("@a:a.test");
    await bring("@b:a.test");
    await eventually(
      "the other has all",
      async () => taken.get(ghost("math"))?.length === 2 || undefined,
      3_000,
    );
    assert.deepEqual(taken.get(ghost("math")), ["@a:a.test", "@b:a.test"]);
    await eventually("the rest waits", async () => (await waiting()) === 2 || undefined, 3_000);
    over.resolve();
    await eventually("all is taken", async () => (await waiting()) === 0 || undefined, 3_000);
    assert.deepEqual(taken.get(ghost("docs")), ["@a:a.test", "@b:a.test"]);
  });
});
