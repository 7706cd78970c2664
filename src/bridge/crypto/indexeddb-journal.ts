// A machine's databases as the library sees them: IndexedDB, held in memory by fake-indexeddb. They are rebuilt from
// what is durable, and every change of a record is noted in a journal.
// Invariants: a database is rebuilt as it was, version and indices included, so that the library upgrades it by its
// own rules; a change is noted the moment it is made, and a change that was rolled back is noted too.
// fake-indexeddb has no types for its inner parts; what is used of them is described here.
import { deserialize, serialize } from "node:v8";
import "fake-indexeddb/auto";
import type { CryptoRecord, StoreLayout } from "../ledger/crypto-stores.ts";

interface RawIndex {
  readonly name: string;
  readonly keyPath: string | readonly string[];
  readonly unique: boolean;
  readonly multiEntry: boolean;
}

interface RawRecord {
  readonly key: unknown;
  readonly value: unknown;
}

interface RawObjectStore {
  readonly name: string;
  readonly keyPath: string | readonly string[] | null;
  readonly autoIncrement: boolean;
  readonly rawIndexes: ReadonlyMap<string, RawIndex>;
  readonly records: { values(range?: unknown): Iterable<RawRecord> };
  storeRecord(record: { key: unknown; value: unknown }, noOverwrite: boolean, rollbackLog?: unknown): unknown;
  deleteRecord(keyOrRange: unknown, rollbackLog?: unknown): void;
  clear(rollbackLog?: unknown): void;
}

interface RawTransaction {
  readonly mode: "readonly" | "readwrite" | "versionchange";
  readonly _scope: ReadonlySet<string>;
  readonly _started: boolean;
  readonly _state: "active" | "inactive" | "committing" | "finished";
  addEventListener(type: "complete" | "abort", listener: () => void): void;
  _start(): void;
}

interface RawDatabase {
  readonly version: number;
  readonly rawObjectStores: ReadonlyMap<string, RawObjectStore>;
  transactions: RawTransaction[];
  processTransactions(): void;
}

interface OpenRequest {
  onupgradeneeded: (() => void) | null;
  onsuccess: (() => void) | null;
  onerror: (() => void) | null;
  readonly result: {
    createObjectStore(
      name: string,
      options: object,
    ): { createIndex(name: string, path: unknown, o: object): void };
    close(): void;
  };
}

interface Factory {
  readonly _databases: Map<string, RawDatabase>;
  open(name: string, version: number): OpenRequest;
}

const factory = (): Factory => (globalThis as unknown as { indexedDB: Factory }).indexedDB;

interface ObjectStoreLayout {
  readonly name: string;
  readonly keyPath: string | readonly string[] | null;
  readonly autoIncrement: boolean;
  readonly indices: readonly RawIndex[];
}

interface DatabaseLayout {
  /** The part of its name that follows the store's name. */
  readonly suffix: string;
  readonly version: number;
  readonly objectStores: readonly ObjectStoreLayout[];
}

/** The value of a record that was deleted. */
const DELETED = Symbol("deleted");

/** Keys of this library are strings; whatever is not plain JSON could not be restored. */
function keyText(key: unknown): string {
  const plain = (part: unknown): boolean =>
    typeof part === "string" || typeof part === "number" || (Array.isArray(part) && part.every(plain));
  if (!plain(key)) throw new TypeError("a machine's record has a key of a kind that cannot be stored");
  return JSON.stringify(key);
}

function rebuild(name: string, layout: DatabaseLayout): Promise<void> {
  const request = factory().open(`${name}${layout.suffix}`, layout.version);
  return new Promise((resolve, reject) => {
    request.onupgradeneeded = () => {
      for (const { name: objectStore, keyPath, autoIncrement, indices } of layout.objectStores) {
        const made = request.result.createObjectStore(objectStore, { keyPath, autoIncrement });
        for (const { name: index, keyPath: path, unique, multiEntry } of indices) {
          made.createIndex(index, path, { unique, multiEntry });
        }
      }
    };
    request.onsuccess = () => {
      request.result.close();
      resolve();
    };
    request.onerror = () => reject(new Error("the databases of a machine cannot be rebuilt"));
  });
}

/** The same text for layouts that differ in nothing but order. */
function layoutText(layout: StoreLayout): string {
  return JSON.stringify(
    (layout as readonly DatabaseLayout[])
      .flatMap(({ suffix, version, objectStores }) => [
        `${suffix} ${version}`,
        ...objectStores.flatMap(({ name, keyPath, autoIncrement, indices }) => [
          JSON.stringify([suffix, name, keyPath, autoIncrement]),
          ...indices.map((index) =>
            JSON.stringify([suffix, name, index.name, index.keyPath, index.unique, index.multiEntry]),
          ),
        ]),
      ])
      .sort(),
  );
}

/** Whether `later` has to wait for `earlier`, by the rules of IndexedDB. */
function blocks(earlier: RawTransaction, later: RawTransaction): boolean {
  if (earlier.mode === "readonly" && later.mode === "readonly") return false;
  return [...later._scope].some((objectStore) => earlier._scope.has(objectStore));
}

/** The databases of one machine's store, and what changed in them since it was last taken. */
export class JournaledDatabases {
  /** Unique in this thread. */
  readonly name: string;
  /** By object store and key: of several changes of a record the last one counts. */
  readonly #journal = new Map<
    string,
    { readonly record: Omit<CryptoRecord, "value">; readonly value: unknown }
  >();

  constructor(name: string) {
    this.name = name;
  }

  *#databases(): Generator<[suffix: string, database: RawDatabase]> {
    for (const [full, database] of factory()._databases) {
      if (full.startsWith(`${this.name}::`)) yield [full.slice(this.name.length), database];
    }
  }

  *#objectStores(): Generator<[path: string, store: RawObjectStore]> {
    for (const [suffix, database] of this.#databases()) {
      for (const store of database.rawObjectStores.values()) yield [`${suffix} ${store.name}`, store];
    }
  }

  /** Builds the databases as they were, and puts the records back. */
  async rebuild(
    layout: StoreLayout,
    pages: AsyncIterable<readonly { objectStore: string; key: string; value: Buffer }[]>,
  ): Promise<void> {
    for (const database of layout as readonly DatabaseLayout[]) await rebuild(this.name, database);
    const stores = new Map(this.#objectStores());
    for await (const page of pages) {
      for (const { objectStore, key, value } of page) {
        stores
          .get(objectStore)
          ?.storeRecord({ key: JSON.parse(key) as unknown, value: deserialize(value) as unknown }, false);
      }
    }
  }

  /** How the databases are laid out now. */
  layout(): StoreLayout {
    return [...this.#databases()].map(
      ([suffix, { version, rawObjectStores }]): DatabaseLayout => ({
        suffix,
        version,
        objectStores: [...rawObjectStores.values()].map(({ name, keyPath, autoIncrement, rawIndexes }) => ({
          ...{ name, keyPath, autoIncrement },
          indices: [...rawIndexes.values()].map((index) => ({
            name: index.name,
            keyPath: index.keyPath,
            unique: index.unique,
            multiEntry: index.multiEntry,
          })),
        })),
      }),
    );
  }

  /** Whether the databases still have this layout: a store that was upgraded is written anew as a whole. */
  hasLayout(layout: StoreLayout): boolean {
    return layoutText(layout) === layoutText(this.layout());
  }

  /**
   * Starts transactions by the same rules as fake-indexeddb, but searches once a turn and forgets at once those that
   * have finished. By itself it searches once for each that was made and each that ended, over all that ended
   * lately, and under steady work it falls ever further behind.
   */
  speedUp(): void {
    for (const [, database] of this.#databases()) {
      let isDue = false;
      const startReady = () => {
        isDue = false;
        database.transactions = database.transactions.filter(({ _state }) => _state !== "finished");
        for (const [index, transaction] of database.transactions.entries()) {
          if (transaction._started) continue;
          if (database.transactions.slice(0, index).some((earlier) => blocks(earlier, transaction))) continue;
          transaction.addEventListener("complete", database.processTransactions);
          transaction.addEventListener("abort", database.processTransactions);
          transaction._start();
        }
      };
      database.processTransactions = () => {
        if (isDue) return;
        isDue = true;
        setImmediate(startReady);
      };
    }
  }

  /** Notes in the journal, from now on, each change of a record. */
  watch(): void {
    const note = (objectStore: string, key: unknown, value: unknown) => {
      const text = keyText(key);
      this.#journal.set(`${objectStore} ${text}`, { record: { objectStore, key: text }, value });
    };
    for (const [path, store] of this.#objectStores()) {
      const { storeRecord, deleteRecord, clear } = store;
      store.storeRecord = (record, noOverwrite, rollbackLog) => {
        const key = storeRecord.call(store, record, noOverwrite, rollbackLog);
        note(path, key, record.value);
        return key;
      };
      store.deleteRecord = (keyOrRange, rollbackLog) => {
        const isRange = typeof keyOrRange === "object" && keyOrRange !== null && "lower" in keyOrRange;
        const keys = isRange ? [...store.records.values(keyOrRange)].map(({ key }) => key) : [keyOrRange];
        deleteRecord.call(store, keyOrRange, rollbackLog);
        for (const key of keys) note(path, key, DELETED);
      };
      store.clear = (rollbackLog) => {
        const keys = [...store.records.values()].map(({ key }) => key);
        clear.call(store, rollbackLog);
        for (const key of keys) note(path, key, DELETED);
      };
    }
  }

  /** Takes the changes out of the journal, in the form in which they are stored. */
  takeChanges(): CryptoRecord[] {
    const records = [...this.#journal.values()].map(({ record, value }) => ({
      ...record,
      value: value === DELETED ? undefined : serialize(value),
    }));
    this.#journal.clear();
    return records;
  }

  allRecords(): CryptoRecord[] {
    return [...this.#objectStores()].flatMap(([objectStore, store]) =>
      [...store.records.values()].map(({ key, value }) => ({
        objectStore,
        key: keyText(key),
        value: serialize(value),
      })),
    );
  }

  /** Frees the memory, once the machine was closed. */
  delete(): void {
    for (const [suffix] of [...this.#databases()]) factory()._databases.delete(`${this.name}${suffix}`);
  }
}
