// The records of one machine's store: read when they are asked for, cached, and written once for each call of the machine.
// Invariants: an uncommitted record is found before the cache or the database is asked; what a read brings is cached only
// if nothing was written to its object store meanwhile; after a failure nothing is committed; of the Olm sessions with one
// device, those not written since the machine was opened are deleted first, then the one written longest ago.
import { LRUCache } from "lru-cache";
import type { Pool } from "pg";
import type { Clock } from "../../domain/clock.ts";
import type { DrawbridgeError } from "../../domain/errors.ts";
import type { DeviceIdentity, StoreLayout } from "../ledger/crypto-stores.ts";
import {
  type CryptoRecord,
  cryptoRecord,
  cryptoRecords,
  deleteCryptoRecords,
  type KeyRange,
  layOutCryptoStore,
  toDay,
} from "../ledger/crypto-stores.ts";
import { isWithin, sameFirstPart } from "./idb-keys.ts";
import { recordName, retryQuery, type StoreHolder, type StoreWriter, storeFailure } from "./store-writer.ts";

/** Room sessions, hashes of Olm messages and offers of a room's history: what comes without end, and is deleted by age. */
const AGING = new Set(["inbound_group_sessions3", "olm_hashes", "received_room_key_bundles"]);
/** The day of the last use is written when it is this much out of date, not at each use. */
const USE_NOTED_DAYS = 7;
/** A read of more would fill the memory; the machine ends instead. */
const RECORDS_MAX = 50_000;
const CACHE_BYTES = 16 * 1024 * 1024;
const ENTRY_BYTES = 300;

/** Single records and ranges that were read, of all machines of a thread. */
export type RecordCache = LRUCache<string, readonly CryptoRecord[]>;

export const createRecordCache = (maxSize = CACHE_BYTES): RecordCache =>
  new LRUCache({
    maxSize,
    // One large range must not push everything else out.
    maxEntrySize: maxSize / 8,
    sizeCalculation: (records, name) =>
      records.reduce((size, { value }) => size + ENTRY_BYTES + (value?.length ?? 0), name.length),
  });

export interface StoreRecordsDependencies {
  readonly pool: Pool;
  readonly writer: StoreWriter;
  readonly cache: RecordCache;
  readonly clock: Clock;
}

type RecordKey = Pick<CryptoRecord, "objectStore" | "key">;

/** The object store of Olm sessions. The first part of a key names the other device. */
const OLM_SESSIONS = "session";
/** Matrix asks for at least 4. */
const SESSIONS_PER_DEVICE = 50;

const deviceOf = (key: Buffer) => (sameFirstPart(key)?.from ?? key).toString("latin1");

export class StoreRecords {
  /** Unique in this thread: the fence keeps an earlier machine of the same ghost apart. */
  readonly name: string;
  readonly #deps: StoreRecordsDependencies;
  readonly #holder: StoreHolder;
  #fresh = new Map<string, CryptoRecord>();
  readonly #committing = new Map<string, CryptoRecord>();
  readonly #writes = new Map<string, number>();
  /** The keys of the Olm sessions with each device, whose owner begins as many as he likes; the one to delete next first. */
  readonly #olmSessions = new Map<string, readonly string[]>();
  /** The keys that are asked for, while somebody wants to know them. */
  #asked: RecordKey[] | undefined;
  /** Why nothing is committed any more. */
  failure: DrawbridgeError | undefined;

  constructor(holder: StoreHolder, deps: StoreRecordsDependencies) {
    this.name = `${holder.ghost}#${holder.fence}`;
    this.#holder = holder;
    this.#deps = deps;
  }

  /** Ends this store for its machine, in whose memory something may be wrong. */
  fail(cause: unknown): void {
    this.failure ??= storeFailure(cause, `the store of ${this.#holder.ghost} could not be read`);
  }

  #writesOf(objectStore: string): number {
    return this.#writes.get(objectStore) ?? 0;
  }

  async get(objectStore: string, key: Buffer): Promise<Buffer | undefined> {
    const { pool, cache, clock } = this.#deps;
    this.#asked?.push({ objectStore, key });
    const name = recordName({ objectStore, key });
    const known =
      this.#fresh.get(name) ?? this.#committing.get(name) ?? cache.get(`${this.name} ${name}`)?.[0];
    if (known !== undefined) return this.#used(known);
    const writes = this.#writesOf(objectStore);
    const { ghost } = this.#holder;
    const found = await retryQuery(clock, () => cryptoRecord(pool, ghost, objectStore, key));
    const record = found ?? { objectStore, key, value: undefined, indexKey: undefined, usedDay: undefined };
    // The reader's transaction may be over, and another may have written: then this record is old.
    if (writes !== this.#writesOf(objectStore)) return record.value;
    cache.set(`${this.name} ${name}`, [record]);
    return this.#used(record);
  }

  #used(record: CryptoRecord): Buffer | undefined {
    const { usedDay, value } = record;
    const isOld = usedDay !== undefined && usedDay + USE_NOTED_DAYS <= toDay(this.#deps.clock.now());
    if (isOld && value !== undefined) this.write(record);
    return value;
  }

  async range(objectStore: string, by: "key" | "indexKey", range: KeyRange, count = RECORDS_MAX + 1) {
    const { pool, cache, clock } = this.#deps;
    const writes = this.#writesOf(objectStore);
    const bounds = `${range.from.toString("latin1")}..${range.to.toString("latin1")}`;
    const name = `${this.name} ${objectStore} after ${writes} by ${by}: ${bounds} ${count}`;
    const known = cache.get(name);
    if (known !== undefined) return known;
    // As it is now: what is committed while the database is asked may be missing from its answer.
    const uncommitted = [...this.#committing, ...this.#fresh];
    const changed = new Map(uncommitted.filter(([, one]) => one.objectStore === objectStore));
    const limit = count + changed.size;
    const { ghost } = this.#holder;
    const stored = await retryQuery(clock, () => cryptoRecords(pool, ghost, objectStore, by, range, limit));
    const inRange = (record: CryptoRecord) => record[by] !== undefined && isWithin(range, record[by]);
    const records = [
      ...stored.filter((record) => !changed.has(recordName(record))),
      ...[...changed.values()].filter((record) => record.value !== undefined && inRange(record)),
    ];
    const compare = (a: CryptoRecord, b: CryptoRecord) =>
      Buffer.compare(a[by] ?? a.key, b[by] ?? b.key) || Buffer.compare(a.key, b.key);
    if (changed.size > 0) records.sort(compare);
    if (records.length > RECORDS_MAX && count > RECORDS_MAX) {
      throw new Error(`a read of more than ${RECORDS_MAX} records of ${objectStore}`);
    }
    const found = records.slice(0, count);
    if (objectStore === OLM_SESSIONS) this.#olmSessionsRead(found.map(({ key }) => key));
    if (writes === this.#writesOf(objectStore)) cache.set(name, found);
    return found;
  }

  write(record: Omit<CryptoRecord, "usedDay">): void {
    const { objectStore, key, value, indexKey } = record;
    const usedDay = AGING.has(objectStore) ? toDay(this.#deps.clock.now()) : undefined;
    this.#writes.set(objectStore, this.#writesOf(objectStore) + 1);
    this.#fresh.set(recordName(record), { objectStore, key, value, indexKey, usedDay });
    if (objectStore === OLM_SESSIONS && value !== undefined) this.#olmSessionWritten(key);
  }

  #olmSessionsRead(keys: readonly Buffer[]): void {
    for (const [device, ofDevice] of Map.groupBy(keys, deviceOf)) {
      const known = this.#olmSessions.get(device) ?? [];
      const read = ofDevice.map((key) => key.toString("latin1")).filter((name) => !known.includes(name));
      this.#keepOlmSessions(device, [...read, ...known]);
    }
  }

  #olmSessionWritten(key: Buffer): void {
    const [device, name] = [deviceOf(key), key.toString("latin1")];
    const others = (this.#olmSessions.get(device) ?? []).filter((other) => other !== name);
    this.#keepOlmSessions(device, [...others, name]);
  }

  #keepOlmSessions(device: string, names: readonly string[]): void {
    this.#olmSessions.set(device, names.slice(-SESSIONS_PER_DEVICE));
    for (const name of names.slice(0, -SESSIONS_PER_DEVICE)) {
      const key = Buffer.from(name, "latin1");
      this.write({ objectStore: OLM_SESSIONS, key, value: undefined, indexKey: undefined });
    }
  }

  commit(): Promise<void> {
    return this.#commit((records) => this.#deps.writer.write(this.#holder, records));
  }

  /** As `commit`, with a new layout and identity. Made again, it changes nothing. */
  layOut(layout: StoreLayout, identity: DeviceIdentity): Promise<void> {
    const { pool, clock } = this.#deps;
    return this.#commit((records) => {
      const query = () => layOutCryptoStore(pool, { ...this.#holder, records }, { layout, identity });
      return retryQuery(clock, query).catch((cause: unknown) => Promise.reject(storeFailure(cause)));
    });
  }

  async #commit(commit: (records: readonly CryptoRecord[]) => Promise<void>): Promise<void> {
    if (this.failure !== undefined) throw this.failure;
    const records = this.#fresh;
    this.#fresh = new Map();
    for (const [name, record] of records) this.#committing.set(name, record);
    await commit([...records.values()]);
    for (const [name, record] of records) {
      if (this.#committing.get(name) !== record) continue;
      this.#committing.delete(name);
      this.#deps.cache.set(`${this.name} ${name}`, [record]);
    }
  }

  async keysAskedBy(work: () => Promise<unknown>): Promise<readonly RecordKey[]> {
    const asked: RecordKey[] = [];
    this.#asked = asked;
    await work().finally(() => {
      this.#asked = undefined;
    });
    return asked;
  }

  /** Deletes the records of a range of keys; resolves when that is committed. */
  async deleteRange(objectStore: string, range: KeyRange): Promise<void> {
    const { pool, cache } = this.#deps;
    await this.commit();
    await deleteCryptoRecords(pool, this.#holder, objectStore, range);
    this.#writes.set(objectStore, this.#writesOf(objectStore) + 1);
    for (const [name, [record]] of cache.entries()) {
      const isOurs = name.startsWith(`${this.name} ${objectStore} `) && record !== undefined;
      if (isOurs && isWithin(range, record.key)) cache.delete(name);
    }
  }
}
