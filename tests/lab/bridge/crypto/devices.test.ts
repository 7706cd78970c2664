// What becomes of a ghost's device on a real Synapse: made once, reloaded, stocked, stopped, reset.
import assert from "node:assert/strict";
import { after, before, describe, it, type TestContext } from "node:test";
import type { DeviceStopReason } from "../../../../src/bridge/ledger/states.ts";
import type { PublishedDevice } from "../../../../src/bridge/matrix/device-api.ts";
import type { GhostMxid } from "../../../../src/domain/identifiers.ts";
import { testDatabase } from "../../../support/database.ts";
import { eventually, toDeviceOf } from "../../../support/encrypted-bridge.ts";
import { EncryptingClient, encryptedRoom } from "../../../support/encrypting-client.ts";
import { startSynapse, type TestSynapse } from "../../../support/synapse.ts";
import { type DeviceSide, deviceWorld, otherStoreKey } from "./ghost-devices.ts";

let synapse: TestSynapse;
before(async () => {
  synapse = await startSynapse();
});
after(() => synapse.dispose());

let ghosts = 0;
/** A ghost that no other test has used. */
const freshGhost = (): GhostMxid => `@agent_device${++ghosts}:a.test` as GhostMxid;

async function opened(side: DeviceSide, ghost: GhostMxid): Promise<string> {
  const outcome = await side.devices.ensure(ghost);
  assert.equal(outcome.kind, "ok", JSON.stringify(outcome));
  return outcome.kind === "ok" ? outcome.value.deviceId : "";
}

async function published(side: DeviceSide, ghost: GhostMxid, device: string) {
  const outcome = await side.homeserver.devices.publishedDevice(ghost, device);
  assert.equal(outcome.kind, "ok");
  return outcome.kind === "ok" ? outcome.value : undefined;
}

const statusOf = (side: DeviceSide, ghost: GhostMxid) =>
  side.devices.statuses().find((status) => status.ghost === ghost);

async function assertStopped(side: DeviceSide, ghost: GhostMxid, reason: DeviceStopReason): Promise<void> {
  assert.notEqual((await side.devices.ensure(ghost)).kind, "ok");
  assert.deepEqual([statusOf(side, ghost)?.state, statusOf(side, ghost)?.stopped], ["stopped", reason]);
  assert.deepEqual(side.stops, [reason]);
  assert.equal((await side.ledger.ghosts.recordedDevice(ghost))?.stopped?.reason, reason);
}

describe("ghosts' devices on a real homeserver", () => {
  // First, with the next one: a homeserver whose transactions have failed sends the next ones late.
  it("the bridge detects whether keys come with transactions", async (t) => {
    const world = await deviceWorld(t, synapse);
    const ghost = freshGhost();
    const side = world.side({ ghosts: [ghost], start: true });
    await eventually("the answer", async () =>
      side.devices.keyDelivery().result === "works" ? true : undefined,
    );
  });

  it("a key whose transaction was refused is caught up, and not lost [ENC-8]", async (t) => {
    const world = await deviceWorld(t, synapse);
    const ghost = freshGhost();
    const side = world.side();
    await opened(side, ghost);
    const alice = await EncryptingClient.start(await synapse.user("sender"));
    t.after(() => alice.close());
    // A homeserver that still holds back, since the last listener has gone, would drop the key by itself.
    let isHeard = false;
    world.answer = (body) => {
      isHeard ||= JSON.stringify(body["events"] ?? []).includes(ghost);
      return 200;
    };
    const room = await encryptedRoom(alice.user, [ghost]);
    await side.ghosts.acting(ghost, (actor) => side.homeserver.join(actor, room, []));
    await eventually("the ghost's invitation or join", async () => (isHeard ? true : undefined), 120_000);
    let refused = 0;
    world.answer = (body) => {
      if (toDeviceOf(body).length === 0) return 200;
      refused += 1;
      return 502;
    };
    const event = await alice.send(room, { msgtype: "m.text", body: "can you read this?" });
    await eventually("the refusal", async () => (refused > 0 ? true : undefined));
    const path = `/rooms/${encodeURIComponent(room)}/event/${encodeURIComponent(event)}`;
    const raw = await alice.user.call("GET", path);
    const asked = { event, room, sender: alice.user.userId, raw };
    assert.equal((await side.devices.decrypt([ghost], asked, 5_000)).kind, "missing_key");

    const caught = await side.devices.catchup(ghost);
    assert.deepEqual(caught.kind === "ok" && caught.value, [room]);
    assert.deepEqual(side.newKeys, [room]);
    const read = await side.devices.decrypt([freshGhost(), ghost], asked, 5_000);
    assert.equal(read.kind === "decrypted" && read.content["body"], "can you read this?");
    // The position has moved, so nothing is read twice.
    const again = await side.devices.catchup(ghost);
    assert.deepEqual(again.kind === "ok" && again.value, []);
  });

  it("a ghost's device is made once, cross-signed, and reloaded by the next process [ENC-2]", async (t) => {
    const world = await deviceWorld(t, synapse);
    const ghost = freshGhost();
    const first = world.side();
    const device = await opened(first, ghost);
    const before = await published(first, ghost, device);
    assert.equal(before?.crossSigned, true);
    assert.equal(statusOf(first, ghost)?.crossSigned, true);
    await first.close();

    for (let process = 0; process < 3; process++) {
      const next = world.side();
      assert.equal(await opened(next, ghost), device);
      assert.deepEqual(await published(next, ghost, device), before);
      assert.deepEqual(
        next.operations.filter((one) => ["put_device", "signing_keys_upload", "keys_upload"].includes(one)),
        [],
      );
      await next.close();
    }
  });

  it("a ghost's one-time and fallback keys are uploaded, and again after they were claimed [ENC-2]", async (t) => {
    const world = await deviceWorld(t, synapse);
    const ghost = freshGhost();
    const side = world.side();
    const device = await opened(side, ghost);
    const alice = await synapse.user("claimer");
    const count = async () => {
      const page = await side.homeserver.devices.toDeviceSince({ ghost, deviceId: device }, undefined);
      assert.equal(page.kind, "ok");
      const { oneTimeKeyCounts, unusedFallbackKeys } = page.kind === "ok" ? page.value.changes : {};
      return { one: oneTimeKeyCounts?.["signed_curve25519"] ?? 0, fallback: unusedFallbackKeys };
    };
    await eventually("a stock", async () => {
      const { one, fallback } = await count();
      return one >= 50 && fallback?.includes("signed_curve25519") === true ? true : undefined;
    });
    for (let claim = 0; claim < 30; claim++) {
      const body = { one_time_keys: { [ghost]: { [device]: "signed_curve25519" } } };
      const claimed = await alice.call("POST", "/keys/claim", body);
      assert.ok(JSON.stringify(claimed).includes("signed_curve25519:"));
    }
    assert.equal((await count()).one <= 20, true);
    assert.equal((await side.devices.catchup(ghost)).kind, "ok");
    await eventually("a new stock", async () => ((await count()).one >= 50 ? true : undefined));
  });

  it("a lost store stops its ghost, and no new device is made [ENC-2]", async (t) => {
    const world = await deviceWorld(t, synapse);
    const ghost = freshGhost();
    const first = world.side();
    const device = await opened(first, ghost);
    const before = await published(first, ghost, device);
    await first.close();
    await world.database.pool.query("DELETE FROM bridge_crypto_stores");
    await world.database.pool.query("DELETE FROM bridge_crypto_records");
    const second = world.side();
    await assertStopped(second, ghost, "store_lost");
    assert.deepEqual(await published(second, ghost, device), before);
    await second.close();

    // A whole database that is lost is no licence for a new device either.
    const empty = world.side({ database: await testDatabase(t) });
    await assertStopped(empty, ghost, "store_lost");
  });

  it("a store that no key unseals stops its ghost until the key is restored [ENC-2]", async (t) => {
    const world = await deviceWorld(t, synapse);
    const ghost = freshGhost();
    const first = world.side();
    const device = await opened(first, ghost);
    await first.close();
    const second = world.side({ keys: otherStoreKey });
    await assertStopped(second, ghost, "store_foreign");
    await second.close();
    const third = world.side();
    assert.equal(await opened(third, ghost), device);
    assert.equal((await third.ledger.ghosts.recordedDevice(ghost))?.stopped, undefined);
  });

  it("a store older than the homeserver's record stops its ghost [ENC-2]", async (t) => {
    const world = await deviceWorld(t, synapse);
    const ghost = freshGhost();
    const first = world.side();
    await opened(first, ghost);
    await first.close();
    const { pool } = world.database;
    for (const table of ["bridge_crypto_stores", "bridge_crypto_records", "bridge_ghosts"]) {
      await pool.query(`CREATE TABLE backup_${table} AS TABLE ${table}`);
    }
    const second = world.side();
    await opened(second, ghost);
    await second.close();
    for (const table of ["bridge_crypto_stores", "bridge_crypto_records", "bridge_ghosts"]) {
      await pool.query(`DELETE FROM ${table}`);
      await pool.query(`INSERT INTO ${table} SELECT * FROM backup_${table}`);
    }
    const third = world.side();
    await assertStopped(third, ghost, "store_behind");
  });

  it("a device deleted on the homeserver stops its ghost, and is never made again [ENC-2]", async (t: TestContext) => {
    const world = await deviceWorld(t, synapse);
    const ghost = freshGhost();
    const first = world.side();
    const device = await opened(first, ghost);
    assert.equal((await first.homeserver.devices.deleteDevice(ghost, device)).kind, "ok");
    // Whatever the ghost does next tells.
    const acted = await first.ghosts.acting(ghost, (actor) => first.homeserver.whoami(actor));
    assert.equal(acted.kind, "retry");
    await eventually("the stop", async () => (await first.ledger.ghosts.recordedDevice(ghost))?.stopped);
    await assertStopped(first, ghost, "device_deleted");
    await first.close();

    const second = world.side();
    await assertStopped(second, ghost, "device_deleted");
    assert.deepEqual(
      second.operations.filter((one) => one === "put_device"),
      [],
    );
    const kept: PublishedDevice | undefined = await published(second, ghost, device);
    assert.equal(kept, undefined);
  });

  it("a running bridge detects a stopped device's reset by itself, and takes up the new device [ENC-2]", async (t) => {
    const world = await deviceWorld(t, synapse);
    const ghost = freshGhost();
    const side = world.side({ ghosts: [ghost], start: true });
    const device = await opened(side, ghost);
    await side.homeserver.devices.deleteDevice(ghost, device);
    await side.ghosts.acting(ghost, (actor) => side.homeserver.whoami(actor));
    await eventually("the stop", async () => (side.stops.length > 0 ? true : undefined));
    const rename = () => side.homeserver.devices.setDeviceRecord(ghost, { deviceId: "NEWDEVICE", epoch: 0 });
    await rename();
    assert.equal(await side.ledger.ghosts.resetDevice(ghost, device, "NEWDEVICE"), true);
    await rename();
    assert.equal(await side.ledger.ghosts.resetDevice(ghost, device, "ANOTHER"), false);
    await eventually("the new device", async () => {
      const status = statusOf(side, ghost);
      return status?.deviceId === "NEWDEVICE" && status.state === "ready" ? true : undefined;
    });
    assert.equal((await published(side, ghost, "NEWDEVICE"))?.crossSigned, true);
  });
});
