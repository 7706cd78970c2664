// Ghosts' devices and read positions: a write about one device never touches another.
import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import {
  claimCryptoStore,
  cryptoRecord,
  writeCryptoRecords,
} from "../../../../src/bridge/ledger/crypto-stores.ts";
import {
  createDeviceInbox,
  createGhosts,
  createReadPositions,
} from "../../../../src/bridge/ledger/ghosts.ts";
import type { Queryable } from "../../../../src/bridge/ledger/postgres.ts";
import { testDatabase } from "../../../support/database.ts";
import { BEGIN_PATIENT, ghost, ledgerFixture, T0, untilWaiting } from "../../../support/ledger.ts";

const OTHER = ghost("other");

/** Two ghosts with devices; the first has a store. */
async function fixture(t: TestContext) {
  const { pool } = await testDatabase(t);
  const ledger = createGhosts(pool);
  for (const [one, device] of [
    [ghost(), "DEVICE"],
    [OTHER, "OTHERDEVICE"],
  ] as const) {
    await ledger.ensureDevice(one, device, T0);
  }
  await pool.query(
    `INSERT INTO bridge_crypto_stores (ghost_mxid, device_id, sealed_key, curve25519, ed25519, created_at)
     VALUES ($1, 'DEVICE', 'key', 'curve', 'ed', now())`,
    [ghost()],
  );
  await pool.query(
    "INSERT INTO bridge_crypto_records (ghost_mxid, object_store, record_key, value) VALUES ($1, 's', 'k', 'v')",
    [ghost()],
  );
  await createReadPositions(pool, "to_device_since").set(ghost(), "s1", undefined);
  return { pool, ledger };
}

describe("ghosts", () => {
  it("raises the epoch of the named device alone [ENC-2]", async (t) => {
    const { ledger } = await fixture(t);
    assert.equal(await ledger.raiseEpoch(ghost(), "DEVICE"), 1);
    assert.equal(await ledger.raiseEpoch(ghost(), "DEVICE"), 2);
    assert.equal(await ledger.raiseEpoch(ghost(), "ANOTHER"), undefined);
    assert.equal(await ledger.raiseEpoch(OTHER, "OTHERDEVICE"), undefined);
    assert.equal((await ledger.recordedDevice(ghost()))?.store?.epoch, 2);
    assert.equal(await ledger.recordedDevice(ghost("nobody")), undefined);
  });

  it("remembers the first time that the homeserver had a device's keys [ENC-2]", async (t) => {
    const { ledger } = await fixture(t);
    assert.equal(await ledger.hadKeys(ghost(), "DEVICE"), false);
    await ledger.recordPublished(ghost(), "ANOTHER", T0);
    assert.equal(await ledger.hadKeys(ghost(), "DEVICE"), false);
    await ledger.recordPublished(ghost(), "DEVICE", T0);
    await ledger.recordPublished(ghost(), "DEVICE", T0 + 1);
    assert.equal(await ledger.hadKeys(ghost(), "DEVICE"), true);
    assert.equal(await ledger.hadKeys(ghost(), "ANOTHER"), false);
    assert.equal((await ledger.recordedDevice(ghost()))?.store?.publishedAt, T0);
  });

  it("records a stop once per reason, and lifts it [ENC-2]", async (t) => {
    const { ledger } = await fixture(t);
    const stopped = async () => (await ledger.recordedDevice(ghost()))?.stopped;
    await ledger.recordStopped(ghost(), "ANOTHER", "store_lost", T0);
    assert.equal(await stopped(), undefined);
    await ledger.recordStopped(ghost(), "DEVICE", "store_lost", T0);
    await ledger.recordStopped(ghost(), "DEVICE", "store_lost", T0 + 1);
    assert.deepEqual(await stopped(), { reason: "store_lost", at: T0 });
    await ledger.recordStopped(ghost(), "DEVICE", "device_deleted", T0 + 2);
    assert.deepEqual(await stopped(), { reason: "device_deleted", at: T0 + 2 });
    await ledger.recordStopped(ghost(), "DEVICE", undefined, T0 + 3);
    assert.equal(await stopped(), undefined);
  });

  it("deletes exactly the named device at a reset, with its store [ENC-2]", async (t) => {
    const { ledger, pool } = await fixture(t);
    await ledger.recordStopped(ghost(), "DEVICE", "store_behind", T0);
    const records = async () => (await pool.query("SELECT FROM bridge_crypto_records")).rowCount;
    assert.equal(await ledger.resetDevice(ghost(), "ANOTHER", "NEW"), false);
    assert.equal(await records(), 1);
    assert.equal(await ledger.resetDevice(ghost(), "DEVICE", "NEW"), true);
    assert.equal(await records(), 0);
    const expected = { ghost: ghost(), deviceId: "NEW", store: undefined, stopped: undefined };
    assert.deepEqual(await ledger.recordedDevice(ghost()), expected);
    const { rows } = await pool.query("SELECT to_device_since FROM bridge_ghosts WHERE ghost_mxid = $1", [
      ghost(),
    ]);
    assert.deepEqual(rows, [{ to_device_since: null }]);
    assert.deepEqual(
      (await ledger.recordedDevices()).map(({ deviceId }) => deviceId),
      ["NEW", "OTHERDEVICE"],
    );
  });

  it("waits at a reset for a writer of the store, and leaves none of its records [ENC-2]", async (t) => {
    const { ledger, pool } = await fixture(t);
    const writer = await pool.connect();
    const write = (key: string) =>
      writer.query(
        `INSERT INTO bridge_crypto_records (ghost_mxid, object_store, record_key, value) VALUES ($1, 's', $2, 'w')
       ON CONFLICT (ghost_mxid, object_store, record_key) DO UPDATE SET value = excluded.value`,
        [ghost(), key],
      );
    try {
      await writer.query(BEGIN_PATIENT);
      await writeCryptoRecords(writer, [{ ghost: ghost(), fence: "1", records: [] }]);
      const reset = ledger.resetDevice(ghost(), "DEVICE", "NEW");
      await untilWaiting(pool, 1, reset);
      // Both: one that was there, which a reset the other way round has locked by now, and one that is new.
      await write("k");
      await write("new");
      await writer.query("COMMIT");
      assert.equal(await reset, true);
    } finally {
      writer.release();
    }
    assert.equal((await pool.query("SELECT FROM bridge_crypto_records")).rowCount, 0);
    assert.equal((await pool.query("SELECT FROM bridge_crypto_stores")).rowCount, 0);
  });

  it("waits for a writer of the store before the next process opens it, which reads what was written [ENC-2] [DEL-9]", async (t) => {
    const { pool } = await fixture(t);
    const writer = await pool.connect();
    const write = async (on: Queryable, value: string) => {
      const key = Buffer.from("k");
      const record = {
        objectStore: "s",
        key,
        value: Buffer.from(value),
        indexKey: undefined,
        usedDay: undefined,
      };
      return (await writeCryptoRecords(on, [{ ghost: ghost(), fence: "1", records: [record] }])).size;
    };
    try {
      await writer.query(BEGIN_PATIENT);
      assert.equal(await write(writer, "in time"), 1);
      const found = { deviceId: "DEVICE", sealedKey: Buffer.from("key") };
      const claiming = claimCryptoStore(pool, ghost(), found, found.sealedKey);
      await untilWaiting(pool, 1, claiming);
      await writer.query("COMMIT");
      assert.equal((await claiming)?.fence, "2");
    } finally {
      writer.release();
    }
    assert.equal(await write(pool, "too late"), 0);
    const record = await cryptoRecord(pool, ghost(), "s", Buffer.from("k"));
    assert.equal(record?.value?.toString(), "in time");
  });

  it("moves a read position only from the position that the caller has read [ENC-2]", async (t) => {
    const { ledger } = await ledgerFixture(t);
    const overtaken = { code: "lease_lost" };
    await assert.rejects(ledger.roomPositions.set(ghost(), "s1", undefined), overtaken, "no such ghost");
    await ledger.ghosts.ensureDevice(ghost(), "DEVICE", T0);
    for (const [set, read] of [
      [ledger.roomPositions.set, ledger.roomPositions.get],
      [ledger.toDevicePositions.set, ledger.toDevicePositions.get],
    ] as const) {
      await set(ghost(), "s1", undefined);
      await set(ghost(), "s5", "s1");
      // What another had read before that: back, on, and away.
      for (const since of ["s3", "s9", null]) {
        await assert.rejects(set(ghost(), since, "s1"), overtaken);
        await assert.rejects(set(ghost(), since, undefined), overtaken);
      }
      assert.equal(await read(ghost()), "s5");
    }
  });

  it("keeps the two read positions of a ghost apart, and deletes them", async (t) => {
    const { ledger } = await ledgerFixture(t);
    assert.equal(await ledger.toDevicePositions.get(ghost()), undefined);
    await ledger.ghosts.ensureDevice(ghost(), "DEVICE", T0);
    await ledger.toDevicePositions.set(ghost(), "s1", undefined);
    await ledger.roomPositions.set(ghost(), "s2", undefined);
    assert.deepEqual(
      [await ledger.toDevicePositions.get(ghost()), await ledger.roomPositions.get(ghost())],
      ["s1", "s2"],
    );
    await ledger.toDevicePositions.set(ghost(), null, "s1");
    assert.deepEqual(
      [await ledger.toDevicePositions.get(ghost()), await ledger.roomPositions.get(ghost())],
      [undefined, "s2"],
    );
  });
});

it("what waits for a ghost's machine is read a few megabytes at a time, in its order, however much there is [ENC-8] [DEL-10]", async (t) => {
  const { pool } = await testDatabase(t);
  const inbox = createDeviceInbox(pool);
  await pool.query(
    `INSERT INTO bridge_device_inbox (ghost_mxid, changes, received_at)
     SELECT $1, n || repeat('x', 7 * 1024 * 1024), now() FROM generate_series(1, 7) n`,
    [ghost()],
  );
  const read: number[][] = [];
  for (;;) {
    const mail = await inbox.read([ghost()], 100);
    if (mail.length === 0) break;
    read.push(mail.map(({ changes }) => Number.parseInt(changes, 10)));
    await inbox.delete(mail.map(({ id }) => id));
  }
  assert.deepEqual(read, [[1, 2, 3], [4, 5, 6], [7]]);
});
