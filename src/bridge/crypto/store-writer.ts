// Makes the changes of one thread's machines durable: one statement at a time, which takes all writes that wait.
// Invariants: a ghost's writes are made in the order of their calls; a write resolves when it is committed under the
// ghost's fence; after a write that failed, every later write of that ghost fails as well.
import type { Clock } from "../../domain/clock.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import type { GhostMxid } from "../../domain/identifiers.ts";
import { type CryptoRecord, writeCryptoRecords } from "../ledger/crypto-stores.ts";
import { leaseLost, type Queryable } from "../ledger/postgres.ts";

const ATTEMPTS = 4;
const RETRY_FIRST_MS = 50;
const RECORDS_PER_STATEMENT = 5_000;

/** Makes an idempotent query, again when the connection broke. A refusal of the ledger is final. */
export async function retryQuery<Result>(clock: Clock, query: () => Promise<Result>): Promise<Result> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await query();
    } catch (error) {
      if (attempt === ATTEMPTS || error instanceof DrawbridgeError) throw error;
      await clock.sleep(RETRY_FIRST_MS * 2 ** attempt);
    }
  }
}

export function storeFailure(cause: unknown, problem = "keys could not be made durable"): DrawbridgeError {
  if (cause instanceof DrawbridgeError) return cause;
  const hint = "Check the database; the ghosts' devices are opened again by themselves.";
  return new DrawbridgeError("database_unavailable", problem, { hint, cause });
}

export interface StoreHolder {
  readonly ghost: GhostMxid;
  readonly fence: string;
}

interface Pending {
  readonly holder: StoreHolder;
  readonly records: Map<string, CryptoRecord>;
  readonly written: PromiseWithResolvers<void>;
}

export class StoreWriter {
  readonly #database: Queryable;
  readonly #clock: Clock;
  /** By holder, so that an earlier holder's writes never travel under a later fence. */
  #pending = new Map<StoreHolder, Pending>();
  readonly #failed = new WeakMap<StoreHolder, unknown>();
  #underWay = new Map<StoreHolder, Promise<void>>();
  #running = false;

  constructor(database: Queryable, clock: Clock) {
    this.#database = database;
    this.#clock = clock;
  }

  /**
   * Resolves when these records, and all that this holder wrote before, are committed.
   * @throws DrawbridgeError `lease_lost` when another holds the store; `database_unavailable`
   */
  async write(holder: StoreHolder, records: readonly CryptoRecord[]): Promise<void> {
    if (this.#failed.has(holder)) throw this.#failed.get(holder);
    if (records.length === 0) return this.#pending.get(holder)?.written.promise ?? this.#underWay.get(holder);
    let pending = this.#pending.get(holder);
    if (pending === undefined) {
      pending = { holder, records: new Map(), written: Promise.withResolvers() };
      this.#pending.set(holder, pending);
    }
    for (const record of records) {
      pending.records.set(`${record.objectStore} ${record.key.toString("latin1")}`, record);
    }
    if (!this.#running) void this.#run();
    return pending.written.promise;
  }

  #next(): Pending[] {
    const batch: Pending[] = [];
    let size = 0;
    for (const pending of this.#pending.values()) {
      // Of two holders of the same ghost the older has lost.
      if (batch.some(({ holder }) => holder.ghost === pending.holder.ghost)) continue;
      if (size > 0 && size + pending.records.size > RECORDS_PER_STATEMENT) break;
      size += pending.records.size;
      batch.push(pending);
    }
    for (const { holder } of batch) this.#pending.delete(holder);
    return batch;
  }

  async #run(): Promise<void> {
    this.#running = true;
    while (this.#pending.size > 0) {
      const batch = this.#next();
      this.#underWay = new Map(batch.map(({ holder, written }) => [holder, written.promise]));
      const outcome = await this.#commit(batch);
      this.#underWay = new Map();
      for (const { holder, written } of batch) {
        const failure =
          outcome instanceof DrawbridgeError
            ? outcome
            : outcome.has(holder.ghost)
              ? undefined
              : leaseLost(`the store of ${holder.ghost}`);
        if (failure === undefined) written.resolve();
        else this.#fail(holder, written, failure);
      }
    }
    this.#running = false;
  }

  #fail(holder: StoreHolder, written: PromiseWithResolvers<void>, failure: DrawbridgeError): void {
    this.#failed.set(holder, failure);
    written.reject(failure);
    const later = this.#pending.get(holder);
    if (later === undefined) return;
    this.#pending.delete(holder);
    later.written.reject(failure);
  }

  async #commit(batch: readonly Pending[]): Promise<ReadonlySet<string> | DrawbridgeError> {
    const writes = batch.map(({ holder, records }) => ({ ...holder, records: [...records.values()] }));
    try {
      return await retryQuery(this.#clock, () => writeCryptoRecords(this.#database, writes));
    } catch (cause) {
      return storeFailure(cause);
    }
  }
}
