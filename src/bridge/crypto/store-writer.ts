// Makes the changes of one thread's machines durable: one statement at a time, which takes all writes that wait.
// Invariants: a ghost's writes are made in the order of their calls; a write resolves when it is committed under the
// ghost's fence; after a write that failed, every later write of that ghost fails as well.
import type { Pool } from "pg";
import type { Clock } from "../../domain/clock.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { Batches } from "../../runtime/concurrency.ts";
import { type CryptoRecord, type CryptoWrite, writeCryptoRecords } from "../ledger/crypto-stores.ts";
import { createLedgerPool, leaseLost, type Queryable } from "../ledger/postgres.ts";

const ATTEMPTS = 4;
const RETRY_FIRST_MS = 50;
const RECORDS_PER_STATEMENT = 5_000;
const CONNECTIONS = 2;

export function createStorePool(connectionString: string, name: string): Pool {
  const pool = createLedgerPool({ connectionString, max: CONNECTIONS, application_name: name });
  return pool.on("error", () => {});
}

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

export type StoreHolder = Pick<CryptoWrite, "ghost" | "fence">;

type Write = { readonly holder: StoreHolder; readonly records: readonly CryptoRecord[] };

export const recordName = ({ objectStore, key }: Pick<CryptoRecord, "objectStore" | "key">) =>
  `${objectStore} ${key.toString("latin1")}`;

export class StoreWriter {
  readonly #database: Queryable;
  readonly #clock: Clock;
  readonly #batches = new Batches((writes: readonly Write[]) => this.#commit(writes));
  // By holder, so that an earlier holder's writes never travel under a later fence.
  readonly #last = new WeakMap<StoreHolder, Promise<DrawbridgeError | undefined>>();
  readonly #failed = new WeakMap<StoreHolder, DrawbridgeError>();

  constructor(database: Queryable, clock: Clock) {
    this.#database = database;
    this.#clock = clock;
  }

  /** Resolves when all that this holder wrote is committed. @throws DrawbridgeError `lease_lost`, `database_unavailable` */
  async write(holder: StoreHolder, records: readonly CryptoRecord[]): Promise<void> {
    if (records.length > 0) this.#last.set(holder, this.#batches.run({ holder, records }));
    const failure = await this.#last.get(holder);
    if (failure !== undefined) throw failure;
  }

  async #commit(writes: readonly Write[]): Promise<readonly (DrawbridgeError | undefined)[]> {
    for (const statement of statementsOf(writes.filter(({ holder }) => !this.#failed.has(holder)))) {
      const of = statement.map(({ holder, records }) => ({ ...holder, records }));
      const write = () => writeCryptoRecords(this.#database, of);
      const held = await retryQuery(this.#clock, write).catch(storeFailure);
      for (const { holder } of statement) {
        if (held instanceof DrawbridgeError) this.#failed.set(holder, held);
        else if (!held.has(holder.ghost)) this.#failed.set(holder, leaseLost(`the store of ${holder.ghost}`));
      }
    }
    return writes.map(({ holder }) => this.#failed.get(holder));
  }
}

/** Each holder's writes as one, with the last value of each record, in as few statements as may be. */
function statementsOf(writes: readonly Write[]): readonly (readonly Write[])[] {
  const statements: Write[][] = [];
  let size = 0;
  for (const [holder, ofHolder] of Map.groupBy(writes, (write) => write.holder)) {
    const all = ofHolder.flatMap(({ records }) => records);
    const records = [...new Map(all.map((record) => [recordName(record), record])).values()];
    const last = statements.at(-1);
    size += records.length;
    // Of two holders of the same ghost the older has lost.
    const isApart = size > RECORDS_PER_STATEMENT || last?.some((one) => one.holder.ghost === holder.ghost);
    if (last !== undefined && !isApart) {
      last.push({ holder, records });
      continue;
    }
    statements.push([{ holder, records }]);
    size = records.length;
  }
  return statements;
}
