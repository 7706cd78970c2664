import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { BridgeConfigFile } from "../../../../src/bridge/config.ts";
import {
  ALL_KEYS,
  decodeKey,
  encodeKey,
  IDBKeyRange,
  sameFirstPart,
} from "../../../../src/bridge/crypto/idb-keys.ts";
import { Transaction } from "../../../../src/bridge/crypto/idb-transaction.ts";
import {
  createRecordCache,
  type RecordCache,
  StoreRecords,
} from "../../../../src/bridge/crypto/store-records.ts";
import { StoreWriter } from "../../../../src/bridge/crypto/store-writer.ts";
import { cryptoRecords } from "../../../../src/bridge/ledger/crypto-stores.ts";
import { createRetention } from "../../../../src/bridge/ledger/retention.ts";
import type { GhostMxid } from "../../../../src/domain/identifiers.ts";
import { testDatabase } from "../../../support/database.ts";
import { finishedStore, interrupted, record, stored } from "../../../support/ledger.ts";

const ONE = "@agent_one:a.test" as GhostMxid;
const DAY_MS = 24 * 60 * 60 * 1_000;
const SESSIONS = "inbound_group_sessions3";

interface Scene {
  /** Another machine of the same ghost, with a cache of its own. */
  readonly records: (cache?: RecordCache) => StoreRecords;
  /** What happens before each statement that reads. */
  before: (statement: string) => unknown;
  /** Reads so far. */
  reads: number;
  now: number;
}

async function scene(t: TestContext) {
  const { pool } = await testDatabase(t);
  const holder = await finishedStore(pool, ONE);
  const clock = { now: () => made.now, sleep: () => Promise.resolve() };
  const observed = interrupted(pool, (statement) => {
    if (!/^crypto_records?(_by_\w+)?$/.test(statement)) return undefined;
    made.reads += 1;
    return made.before(statement);
  });
  const made: Scene = {
    records: (cache = createRecordCache()) => {
      const writer = new StoreWriter(observed, clock);
      return new StoreRecords(holder, { pool: observed, writer, cache, clock });
    },
    before: () => undefined,
    reads: 0,
    now: 100 * DAY_MS,
  };
  return { pool, made };
}

const text = (value: Buffer | undefined) => value?.toString();

describe("StoreRecords", () => {
  it("reads a record once, finds what was written before it is committed, and reads it as committed afterwards", async (t) => {
    const { pool, made } = await scene(t);
    const records = made.records();
    const key = Buffer.from("a");
    assert.equal(await records.get("core", key), undefined);
    assert.equal(await records.get("core", key), undefined);
    assert.equal(made.reads, 1, "also that there is none is known");
    records.write(record("a", "1"));
    assert.equal(text(await records.get("core", key)), "1");
    assert.deepEqual(await stored(pool, ONE), {}, "nothing is stored before the commit");
    made.reads = 0;
    const committing = records.commit();
    records.write(record("a", "2"));
    assert.equal(text(await records.get("core", key)), "2");
    await committing;
    assert.deepEqual(await stored(pool, ONE), { a: "1" }, "what came later is not part of it");
    await records.commit();
    assert.equal(text(await records.get("core", key)), "2");
    records.write(record("a"));
    await records.commit();
    assert.equal(await records.get("core", key), undefined);
    assert.equal(made.reads, 0);
    assert.deepEqual(await stored(pool, ONE), {});
  });

  it("commits nothing any more after a read that failed, because the library may have taken it for a missing record", async (t) => {
    const { pool, made } = await scene(t);
    const records = made.records();
    records.write(record("a", "1"));
    made.before = () => Promise.reject(new Error("the connection broke"));
    const transaction = new Transaction(records, new Set(), new Set(["core"]), "readonly");
    transaction.request(() => records.get("core", Buffer.from("b")));
    assert.equal(await transaction.ended.promise, "abort");
    made.before = () => undefined;
    await assert.rejects(records.commit(), { code: "database_unavailable" });
    records.write(record("c", "1"));
    await assert.rejects(records.commit(), { code: "database_unavailable" });
    assert.deepEqual(await stored(pool, ONE), {});
  });

  it("reads again when a connection broke", async (t) => {
    const { made } = await scene(t);
    let failures = 2;
    made.before = () => (failures-- > 0 ? Promise.reject(new Error("the connection broke")) : undefined);
    const records = made.records();
    assert.equal(await records.get("core", Buffer.from("a")), undefined);
    await records.commit();
  });

  it("forgets what a late read brings when its record was written meanwhile", async (t) => {
    const { made } = await scene(t);
    const records = made.records();
    const gate = Promise.withResolvers<void>();
    const key = Buffer.from("a");
    made.before = () => gate.promise;
    const late = records.get("core", key);
    const lateRange = records.range("core", "key", ALL_KEYS);
    records.write(record("a", "new"));
    gate.resolve();
    await Promise.all([late, lateRange]);
    await records.commit();
    assert.equal(text(await records.get("core", key)), "new");
    const [found] = await records.range("core", "key", ALL_KEYS);
    assert.equal(text(found?.value), "new");
  });

  it("a range holds what is stored, committed or only written, in order and up to its count, and is remembered until its object store is written", async (t) => {
    const { made } = await scene(t);
    const records = made.records();
    const put = (key: string, index?: number) =>
      records.write(
        record(key, key, { indexKey: index === undefined ? undefined : encodeKey(["s", index]) }),
      );
    for (const [n, key] of ["a", "b", "c", "e"].entries()) put(key, 9 - n);
    await records.commit();
    const again = made.records();
    const range = (
      by: "key" | "indexKey" = "key",
      of: Parameters<StoreRecords["range"]>[2] = ALL_KEYS,
      count?: number,
    ) => again.range("core", by, of, count).then((found) => found.map(({ key }) => key.toString()).join(""));
    assert.equal(await range(), "abce");
    assert.equal(await range(), "abce");
    assert.equal(made.reads, 1);
    again.write(record("d", "d"));
    again.write(record("b"));
    assert.equal(await range(), "acde");
    assert.equal(await range("key", ALL_KEYS, 2), "ac");
    assert.equal(await range("indexKey"), "eca");
    assert.equal(await range("indexKey", IDBKeyRange.bound(["s", 6], ["s", 9], true, true)), "c");
    again.write(record("c", "c", { indexKey: encodeKey(["s", 1]) }));
    assert.equal(await range("indexKey"), "cea", "also where a record moves in the index");
    await again.commit();
    assert.equal(await range("indexKey"), "cea");
  });

  it("keeps the 50 Olm sessions with a device that were used last, and all of another device", async (t) => {
    const { pool, made } = await scene(t);
    const keyOf = (device: string, n: number) => encodeKey(`${device}\u001d${String(n).padStart(3, "0")}`);
    const session = (device: string, n: number) =>
      record("", "pickle", { objectStore: "session", key: keyOf(device, n) });
    const names = async (device: string) => {
      const range = sameFirstPart(keyOf(device, 0)) ?? ALL_KEYS;
      const found = await cryptoRecords(pool, ONE, "session", "key", range, 1_000);
      return found.map(({ key }) => decodeKey(key).slice(-3)).join(" ");
    };
    const series = (from: number, to: number) =>
      [...Array(to - from + 1).keys()].map((n) => String(from + n).padStart(3, "0"));
    const records = made.records();
    for (let n = 1; n <= 40; n++) records.write(session("friend", n));
    for (let n = 1; n <= 50; n++) records.write(session("flood", n));
    records.write(session("flood", 1));
    for (let n = 51; n <= 120; n++) {
      records.write(session("flood", n));
      if (n % 20 === 0) records.write(session("flood", 1));
      await records.commit();
    }
    assert.equal(await names("flood"), ["001", ...series(72, 120)].join(" "));
    assert.equal(await names("friend"), series(1, 40).join(" "));
    // Of a machine that is opened again, those go first that it did not use since.
    const reopened = made.records();
    const device = sameFirstPart(keyOf("flood", 0)) ?? ALL_KEYS;
    assert.equal((await reopened.range("session", "key", device)).length, 50);
    reopened.write(session("flood", 1));
    for (let n = 121; n <= 169; n++) reopened.write(session("flood", n));
    await reopened.commit();
    assert.equal(await names("flood"), ["001", ...series(121, 169)].join(" "));
    assert.equal((await reopened.range("session", "key", device)).length, 50);
  });

  it("deletes the Olm sessions of a device that were stored beyond what it may have", async (t) => {
    const { pool, made } = await scene(t);
    await pool.query(
      `INSERT INTO bridge_crypto_records (ghost_mxid, object_store, record_key, value)
       SELECT $1, 'session', convert_to('0flood' || chr(29) || lpad(n::text, 4, '0'), 'UTF8'), 'x' FROM generate_series(1, 3000) n`,
      [ONE],
    );
    const records = made.records();
    await records.range("session", "key", ALL_KEYS);
    await records.commit();
    assert.equal(Object.keys(await stored(pool, ONE, "session")).length, 50);
  });

  it("keeps no more in memory than its cache may hold", async (t) => {
    const { made } = await scene(t);
    const writing = made.records();
    const value = "v".repeat(1_000);
    for (let n = 0; n < 300; n++) writing.write(record(`key ${n}`, value));
    await writing.commit();
    const cache = createRecordCache(100_000);
    const records = made.records(cache);
    for (let n = 0; n < 300; n++) await records.get("core", Buffer.from(`key ${n}`));
    await records.range("core", "key", ALL_KEYS);
    assert.ok(cache.calculatedSize > 50_000 && cache.calculatedSize <= 100_000);
  });

  it("remembers nothing of a read that ends after its record was written and committed", async (t) => {
    const { pool } = await testDatabase(t);
    const holder = await finishedStore(pool, ONE);
    const clock = { now: () => 0, sleep: () => Promise.resolve() };
    const [isRead, gate] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const slow = async (statement: { readonly name: string }) => {
      const found = await pool.query(statement as never);
      if (statement.name === "crypto_record") isRead.resolve();
      await gate.promise;
      return found;
    };
    const deps = { writer: new StoreWriter(pool, clock), cache: createRecordCache(), clock };
    const records = new StoreRecords(holder, {
      ...deps,
      pool: Object.assign(Object.create(pool), { query: slow }),
    });
    const late = records.get("core", Buffer.from("a"));
    await isRead.promise;
    records.write(record("a", "new"));
    await records.commit();
    gate.resolve();
    await late;
    assert.equal(text(await records.get("core", Buffer.from("a"))), "new");
  });

  it("notes the day on which a session was used, at most once in a week, and only sessions unused for the retention are deleted [ENC-10]", async (t) => {
    const { pool, made } = await scene(t);
    const times = { ...BridgeConfigFile.shape.retention.parse(undefined), sessions: 0, contexts: 0 };
    const deleteUnusedBefore = (now: number) => createRetention(pool).round(times, { now: () => now });
    const session = (key: string) => record(key, key, { objectStore: SESSIONS });
    const days = async () => {
      const { rows } = await pool.query(
        "SELECT record_key, used_day FROM bridge_crypto_records WHERE used_day IS NOT NULL",
      );
      return Object.fromEntries(rows.map((row) => [String(row["record_key"]), Number(row["used_day"])]));
    };
    const records = made.records();
    for (const key of ["used", "unused"]) records.write(session(key));
    records.write(record("account", "kept for ever"));
    // Of each Olm message, and of what a member offers of a room's history, there is one besides.
    const besides = { hash: 100, offer: 100 };
    records.write(record("hash", "hash", { objectStore: "olm_hashes" }));
    records.write(record("offer", "offer", { objectStore: "received_room_key_bundles" }));
    await records.commit();
    assert.deepEqual(await days(), { used: 100, unused: 100, ...besides });
    // Found in the cache, or read by a machine that was opened again.
    for (const [machine, day, noted] of [
      [records, 106, 100],
      [records, 107, 107],
      [made.records(), 120, 120],
    ] as const) {
      made.now = day * DAY_MS;
      assert.equal(text(await machine.get(SESSIONS, Buffer.from("used"))), "used");
      await machine.commit();
      assert.deepEqual(await days(), { used: noted, unused: 100, ...besides });
    }
    assert.equal((await deleteUnusedBefore(100 * DAY_MS)).hasMore, false);
    assert.deepEqual(await days(), { used: 120, unused: 100, ...besides });
    await deleteUnusedBefore(101 * DAY_MS);
    assert.deepEqual(await days(), { used: 120 });
    await deleteUnusedBefore(500 * DAY_MS);
    assert.deepEqual(await stored(pool, ONE), { account: "kept for ever" });
    // A machine that still has it in memory brings it back by using it.
    made.now = 130 * DAY_MS;
    assert.equal(text(await records.get(SESSIONS, Buffer.from("used"))), "used");
    await records.commit();
    assert.deepEqual(await days(), { used: 130 });
  });
});
