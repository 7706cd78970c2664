// The part of IndexedDB that the cryptographic library uses, over the records of the machines' stores; it finds these
// classes by their names as globals.
// Invariants: values are cloned when they are put; whatever else of IndexedDB the library asks for fails.
import { deserialize, serialize } from "node:v8";
import type { CryptoRecord, KeyRange } from "../ledger/crypto-stores.ts";
import { ALL_KEYS, decodeKey, encodeKey, IDBKeyRange, indexKeyOf, isWithin, toKeyRange } from "./idb-keys.ts";
import { fire, IDBRequest, type Mode, Transaction } from "./idb-transaction.ts";
import type { StoreRecords } from "./store-records.ts";

type KeyPath = string | readonly string[];

/** A machine's database as it is kept beside its records. */
export interface DatabaseLayout {
  readonly suffix: string;
  version: number;
  /** Of each object store the key paths of its indices. */
  readonly objectStores: Record<string, Record<string, KeyPath>>;
}

type ObjectStore = { readonly name: string; readonly indices: Record<string, KeyPath> };

const toValue = (value: Buffer | undefined): unknown =>
  value === undefined ? undefined : deserialize(value);

/** What is read of an object store, by its keys or those of an index. */
class IDBIndex {
  protected readonly transaction: Transaction;
  protected readonly store: ObjectStore;
  readonly #keyPath: KeyPath | undefined;

  constructor(transaction: Transaction, store: ObjectStore, keyPath?: KeyPath) {
    this.transaction = transaction;
    this.store = store;
    this.#keyPath = keyPath;
  }

  /** An index over several members is a column; the others are of small object stores, read as a whole. */
  protected async find(range: KeyRange, count?: number): Promise<readonly CryptoRecord[]> {
    const { records } = this.transaction;
    const keyPath = this.#keyPath;
    if (keyPath === undefined) return records.range(this.store.name, "key", range, count);
    if (typeof keyPath !== "string") return records.range(this.store.name, "indexKey", range, count);
    const found = (await records.range(this.store.name, "key", ALL_KEYS)).flatMap((record) => {
      const indexKey = indexKeyOf(keyPath, toValue(record.value));
      return indexKey && isWithin(range, indexKey) ? { record, indexKey } : [];
    });
    found.sort((a, b) => Buffer.compare(a.indexKey, b.indexKey));
    return found.slice(0, count).map(({ record }) => record);
  }

  #answer(query: unknown, toResult: (records: readonly CryptoRecord[]) => unknown, count?: number) {
    const range = toKeyRange(query);
    return this.transaction.request(async () => toResult(await this.find(range, count)));
  }

  getAll(query?: unknown, count?: number): IDBRequest {
    return this.#answer(query, (records) => records.map(({ value }) => toValue(value)), count || undefined);
  }

  getAllKeys(query?: unknown, count?: number): IDBRequest {
    const toKeys = (records: readonly CryptoRecord[]) => records.map(({ key }) => decodeKey(key));
    return this.#answer(query, toKeys, count || undefined);
  }

  get(query: unknown): IDBRequest {
    return this.#answer(query, ([record]) => toValue(record?.value), 1);
  }

  count(query?: unknown): IDBRequest {
    return this.#answer(query, ({ length }) => length);
  }

  /** The library walks over records only to upgrade a store of an older layout; there is none. */
  openCursor(query?: unknown): IDBRequest {
    const empty = ({ length }: readonly CryptoRecord[]) => {
      if (length > 0) throw new DOMException("cursors over records", "NotSupportedError");
      return null;
    };
    return this.#answer(query, empty, 1);
  }
}

class IDBObjectStore extends IDBIndex {
  override get(query: unknown): IDBRequest {
    if (query instanceof IDBKeyRange) return super.get(query);
    const { transaction, store } = this;
    const key = encodeKey(query);
    return transaction.request(async () => toValue(await transaction.records.get(store.name, key)));
  }

  index(name: string): IDBIndex {
    const keyPath = this.store.indices[name];
    if (keyPath === undefined) throw new DOMException(`no index ${name}`, "NotFoundError");
    return new IDBIndex(this.transaction, this.store, keyPath);
  }

  /** The library looks for an equal record itself before it writes to a unique index. */
  createIndex(name: string, keyPath: KeyPath): IDBIndex {
    this.store.indices[name] = keyPath;
    this.transaction.request(async () => {
      for (const { key, value } of await this.find(ALL_KEYS)) this.#prepare(key, toValue(value))();
    });
    return this.index(name);
  }

  put(value: unknown, key: unknown): IDBRequest {
    if (this.transaction.mode === "readonly") throw new DOMException("read only", "ReadOnlyError");
    const write = this.#prepare(encodeKey(key), value);
    return this.transaction.request(() => {
      write();
      return key;
    });
  }

  /** The clone is made now, because the caller may change the value afterwards. */
  #prepare(key: Buffer, value: unknown): () => void {
    const { transaction, store } = this;
    const several = Object.values(store.indices).filter((keyPath) => typeof keyPath !== "string");
    if (several.length > 1) throw new DOMException("two indices over several members", "NotSupportedError");
    const indexKey = several[0] === undefined ? undefined : indexKeyOf(several[0], value);
    const record = { objectStore: store.name, key, value: serialize(value), indexKey };
    return () => transaction.write(record);
  }

  delete(query: unknown): IDBRequest {
    if (this.transaction.mode === "readonly") throw new DOMException("read only", "ReadOnlyError");
    const range = toKeyRange(query);
    const { transaction, store } = this;
    const drop = (key: Buffer) =>
      transaction.write({ objectStore: store.name, key, value: undefined, indexKey: undefined });
    if (!(query instanceof IDBKeyRange) && range !== ALL_KEYS)
      return transaction.request(() => drop(range.from));
    return transaction.request(async () => {
      for (const { key } of await this.find(range)) drop(key);
    });
  }

  clear(): IDBRequest {
    return this.delete(undefined);
  }
}

class IDBTransaction extends Transaction {
  readonly #stores: DatabaseLayout["objectStores"];

  constructor(database: IDBDatabase, mode: Mode, scope: ReadonlySet<string> = new Set()) {
    super(database.records, database.transactions, scope, mode);
    this.#stores = database.layout.objectStores;
  }

  objectStore(name: string): IDBObjectStore {
    const indices = this.#stores[name];
    if (indices !== undefined && (this.mode === "versionchange" || this.scope.has(name))) {
      return new IDBObjectStore(this, { name, indices });
    }
    throw new DOMException(`no object store ${name}`, "NotFoundError");
  }
}

class IDBOpenDBRequest extends IDBRequest {}

/** A database, and all connections to it. */
class IDBDatabase {
  readonly records: StoreRecords;
  readonly layout: DatabaseLayout;
  readonly transactions = new Set<Transaction>();
  #upgrade: IDBTransaction | undefined;

  constructor(records: StoreRecords, layout: DatabaseLayout) {
    this.records = records;
    this.layout = layout;
  }

  get version(): number {
    return this.layout.version;
  }

  get objectStoreNames() {
    const names = Object.keys(this.layout.objectStores).sort();
    return { length: names.length, item: (index: number) => names[index] ?? null };
  }

  open(request: IDBOpenDBRequest, version = this.version || 1): void {
    if (version > this.version) void this.#upgradeTo(version, request);
    else if (version === this.version) request.succeed(this);
    else request.fail(new DOMException("a version that is too old", "VersionError"));
  }

  transaction(names: string | Iterable<string>, mode: Mode = "readonly"): IDBTransaction {
    const scope = new Set(typeof names === "string" ? [names] : names);
    for (const name of scope) {
      if (name in this.layout.objectStores) continue;
      throw new DOMException(`no object store ${name}`, "NotFoundError");
    }
    return new IDBTransaction(this, mode, scope);
  }

  async #upgradeTo(version: number, request: IDBOpenDBRequest): Promise<void> {
    const upgrade = new IDBTransaction(this, "versionchange");
    upgrade.request(() => {
      const event = { oldVersion: this.version };
      this.#upgrade = upgrade;
      this.layout.version = version;
      Object.assign(request, { readyState: "done", result: this, transaction: upgrade });
      fire(request, "upgradeneeded", event);
    });
    const how = await upgrade.ended.promise;
    this.#upgrade = undefined;
    request.transaction = null;
    if (how === "complete") request.succeed(this);
    else request.fail(new DOMException("the upgrade was aborted", "AbortError"));
  }

  createObjectStore(name: string): IDBObjectStore {
    if (this.#upgrade === undefined) throw new DOMException("not an upgrade", "InvalidStateError");
    this.layout.objectStores[name] = {};
    return this.#upgrade.objectStore(name);
  }

  deleteObjectStore(name: string): void {
    this.#upgrade?.objectStore(name).clear();
    Reflect.deleteProperty(this.layout.objectStores, name);
  }

  close(): void {}
}

// The library only asks whether these classes exist.
class IDBCursor {}
class IDBCursorWithValue extends IDBCursor {}

export class StoredDatabases {
  readonly records: StoreRecords;
  readonly #databases = new Map<string, IDBDatabase>();

  constructor(records: StoreRecords, layout: readonly DatabaseLayout[]) {
    this.records = records;
    for (const one of structuredClone(layout)) this.#databases.set(one.suffix, new IDBDatabase(records, one));
  }

  layout(): readonly DatabaseLayout[] {
    return structuredClone([...this.#databases.values()].map(({ layout }) => layout));
  }

  get(suffix: string): IDBDatabase {
    const none = { suffix, version: 0, objectStores: {} };
    const database = this.#databases.get(suffix) ?? new IDBDatabase(this.records, none);
    this.#databases.set(suffix, database);
    return database;
  }
}

/** The databases that the library may open, by the names of their stores. */
export const mounted = new Map<string, StoredDatabases>();

class IDBFactory {
  open(name: string, version?: number): IDBOpenDBRequest {
    const request = new IDBOpenDBRequest();
    // The last: a server's name may be an IPv6 address.
    const at = name.lastIndexOf("::");
    const databases = mounted.get(name.slice(0, at));
    if (databases === undefined)
      throw new DOMException("no store of this name is open", "InvalidAccessError");
    queueMicrotask(() => databases.get(name.slice(at)).open(request, version));
    return request;
  }
}

Object.assign(globalThis, {
  ...{ IDBCursor, IDBCursorWithValue, IDBDatabase, IDBFactory, IDBIndex, IDBKeyRange, IDBObjectStore },
  ...{ IDBOpenDBRequest, IDBRequest, IDBTransaction, indexedDB: new IDBFactory() },
});
