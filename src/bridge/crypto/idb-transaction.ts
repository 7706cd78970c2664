// Requests and transactions of IndexedDB, over the records of one machine's store.
// Invariants: a transaction starts when those before it that it conflicts with have ended; its requests are answered in
// their order, each handler called at most once; a write counts at once, so a transaction that wrote and is aborted ends
// its store, and so does a request that failed, because the library takes some failed reads for missing records.
import type { CryptoRecord } from "../ledger/crypto-stores.ts";
import type { StoreRecords } from "./store-records.ts";

/** Calls a handler that the library has set. What it throws, a panic above all, must end the thread. */
export function fire(target: object, type: string, event: object = {}): void {
  const handler = (target as Record<string, ((event: object) => void) | null | undefined>)[`on${type}`];
  try {
    handler?.call(target, Object.assign(event, { type, target }));
  } catch (error) {
    setImmediate(() => {
      throw error;
    });
  }
}

/** A machine that finds everything in the cache would otherwise never let the event loop turn. */
const ANSWERS_PER_TURN = 32;
let answersInTurn = 0;

function yieldAfterMany(): Promise<void> | undefined {
  answersInTurn += 1;
  if (answersInTurn === 1) {
    setImmediate(() => {
      answersInTurn = 0;
    });
  }
  return answersInTurn < ANSWERS_PER_TURN ? undefined : new Promise((resolve) => setImmediate(resolve));
}

export class IDBRequest {
  readyState: "pending" | "done" = "pending";
  result: unknown = undefined;
  error: DOMException | null = null;
  transaction: Transaction | null = null;

  succeed(result: unknown): void {
    this.readyState = "done";
    this.result = result;
    fire(this, "success");
  }

  fail(error: unknown): void {
    this.readyState = "done";
    this.error = error instanceof DOMException ? error : new DOMException(String(error), "UnknownError");
    fire(this, "error");
  }
}

export type Mode = "readonly" | "readwrite" | "versionchange";

export class Transaction {
  error: DOMException | null = null;
  readonly mode: Mode;
  readonly scope: ReadonlySet<string>;
  readonly records: StoreRecords;
  readonly ended = Promise.withResolvers<"complete" | "abort">();
  /** The transactions of its database that have not ended. */
  readonly #open: Set<Transaction>;
  /** Resolves when the requests made so far are answered. */
  #answered: Promise<unknown>;
  #unanswered = 0;
  #hasWritten = false;
  #state: "active" | "committing" | "ended" = "active";

  constructor(records: StoreRecords, open: Set<Transaction>, scope: ReadonlySet<string>, mode: Mode) {
    this.records = records;
    this.scope = scope;
    this.mode = mode;
    this.#open = open;
    const before = [...open].filter((earlier) => this.#conflictsWith(earlier));
    this.#answered = Promise.all(before.map(({ ended }) => ended.promise));
    open.add(this);
  }

  #conflictsWith(other: Transaction): boolean {
    if (this.mode === "versionchange" || other.mode === "versionchange") return true;
    if (this.mode === "readonly" && other.mode === "readonly") return false;
    return [...this.scope].some((name) => other.scope.has(name));
  }

  #assertActive(): void {
    if (this.#state === "active") return;
    throw new DOMException("the transaction is over", "TransactionInactiveError");
  }

  request(work: () => unknown): IDBRequest {
    this.#assertActive();
    const request = new IDBRequest();
    request.transaction = this;
    this.#unanswered += 1;
    this.#answered = this.#answered.then(() => this.#answer(request, work));
    return request;
  }

  async #answer(request: IDBRequest, work: () => unknown): Promise<void> {
    if (this.#state === "ended") return;
    const [outcome] = await Promise.allSettled([Promise.resolve().then(work)]);
    await yieldAfterMany();
    if (outcome.status === "rejected") this.records.fail(outcome.reason);
    if (!this.#open.has(this)) return;
    this.#unanswered -= 1;
    if (outcome.status === "rejected") {
      request.fail(outcome.reason);
      this.#end("abort");
      return;
    }
    request.succeed(outcome.value);
    // The library ends its other transactions itself.
    if (this.mode === "versionchange") setImmediate(() => this.#unanswered === 0 && this.#end("complete"));
  }

  write(record: Omit<CryptoRecord, "usedDay">): void {
    this.#hasWritten = true;
    this.records.write(record);
  }

  commit(): void {
    this.#assertActive();
    this.#state = "committing";
    void this.#answered.then(() => this.#end("complete"));
  }

  abort(): void {
    this.#assertActive();
    if (this.#hasWritten) this.records.fail(new Error("the library aborted a transaction that wrote"));
    this.#end("abort");
  }

  #end(how: "complete" | "abort"): void {
    if (this.#state === "ended") return;
    this.#state = "ended";
    this.#open.delete(this);
    this.ended.resolve(how);
    queueMicrotask(() => fire(this, how));
  }
}
