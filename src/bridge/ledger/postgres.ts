// How the ledger speaks to PostgreSQL: its pool, its prepared statements and its transactions.
// Invariants: query plans do not depend on table statistics; a transaction counts as committed only when the server
// has answered COMMIT; a transaction whose process hangs is ended by the server, because others wait for its locks.
import { Client, type Pool, type PoolClient, type PoolConfig, type QueryResultRow } from "pg";
import type { Clock } from "../../domain/clock.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import type { EventId, GhostMxid, RoomId } from "../../domain/identifiers.ts";
import { isDemoted, isRolledBack, ServerPool } from "./postgres-servers.ts";

/** The keys of the advisory locks that this product takes. The values are arbitrary and must never change. */
export const ADVISORY_LOCKS = {
  migration: "7237127932340562276",
  /** With the process's number as second key; bridge_live_processes() looks for it. */
  process: "1685223266",
} as const;

// Without these settings the planner would choose a sequential scan for a small table, and keep that plan while it grows.
const PLANNER = [
  "enable_seqscan=off",
  // Claims read their rows in the order of an index, and no more than they take.
  "enable_bitmapscan=off",
  "enable_hashjoin=off",
  "enable_mergejoin=off",
  "jit=off",
  // A worker process takes longer to start than any of these statements.
  "max_parallel_workers_per_gather=0",
  // Each connection plans a statement once: with the settings above there is only one plan to choose.
  "plan_cache_mode=force_generic_plan",
]
  .map((setting) => `-c ${setting}`)
  .join(" ");

/** Longer than any transaction is idle between two statements. Other processes wait for its locks meanwhile. */
const IDLE_IN_TRANSACTION_MS = 1_000;

export function createLedgerPool({ connectionString = "", ...config }: PoolConfig): Pool {
  return new ServerPool(connectionString, {
    idle_in_transaction_session_timeout: IDLE_IN_TRANSACTION_MS,
    ...config,
    pipeline: true,
    options: [PLANNER, config.options].filter(Boolean).join(" "),
  });
}

export type Queryable = Pick<Pool | PoolClient, "query">;

/** How often what lost against another statement is made again. */
const REPETITIONS_MAX = 3;

/** Makes again what was surely not committed. A try is open when it has begun and COMMIT was not sent. */
async function again<Result>(make: (one: { isOpen: boolean }) => Promise<Result>): Promise<Result> {
  for (let left = REPETITIONS_MAX; ; left--) {
    const one = { isOpen: false };
    try {
      return await make(one);
    } catch (error) {
      if (left === 0 || !isRolledBack(error, one.isOpen)) throw error;
    }
  }
}

/** Sends in one write what one turn of the event loop sends on a connection: a write costs more than its bytes do. */
function inOneWrite(on: Queryable): void {
  if (!(on instanceof Client)) return;
  const { stream } = on.connection;
  stream.cork();
  process.nextTick(() => stream.uncork());
}

/** An array as PostgreSQL reads it: where nothing is escaped, JSON has the same form, in a fraction of the driver's time. */
function toParameter(value: unknown): unknown {
  if (!Array.isArray(value) || value.some((one) => typeof one === "object" && one !== null)) return value;
  const json = JSON.stringify(value);
  return json.includes("\\") ? value : `{${json.slice(1, -1)}}`;
}

export type Statement<Row extends object = QueryResultRow> = ReturnType<ReturnType<typeof statement<Row>>>;

/**
 * A prepared statement that yields rows. Undefined among its values becomes NULL, and NULL in a column undefined; a timestamp
 * becomes milliseconds since the Unix epoch.
 */
export const statement =
  <Row extends object = QueryResultRow>(name: string) =>
  (template: TemplateStringsArray, ...sql: readonly (string | number)[]) => {
    const text = String.raw({ raw: template }, ...sql);
    const rows = async (on: Queryable, values: readonly unknown[]): Promise<Row[]> => {
      const make = () => on.query<Row & QueryResultRow>({ name, text, values: values.map(toParameter) });
      inOneWrite(on);
      // Inside a transaction the whole of it is rolled back.
      const { rows: found } = await (on instanceof ServerPool ? again(make) : make());
      for (const row of found as QueryResultRow[]) {
        for (const [column, value] of Object.entries(row)) {
          if (value === null) row[column] = undefined;
          else if (value instanceof Date) row[column] = value.getTime();
        }
      }
      return found;
    };
    return {
      rows,

      async run(on: Queryable, values: readonly unknown[]): Promise<void> {
        await rows(on, values);
      },

      async one(on: Queryable, values: readonly unknown[]): Promise<Row> {
        const [row] = await rows(on, values);
        if (row === undefined) throw new DrawbridgeError("internal", `statement ${name} yielded no row`);
        return row;
      },

      first: async (on: Queryable, values: readonly unknown[]) => (await rows(on, values))[0],

      /** The one row that a holder's write has touched. @throws DrawbridgeError `lease_lost` when it has not touched exactly one */
      async held(on: Queryable, values: readonly unknown[], what: string): Promise<Row> {
        const [row, ...others] = await rows(on, values);
        if (row === undefined || others.length > 0) throw leaseLost(what);
        return row;
      },
    };
  };

/**
 * In the FROM of a statement whose commit need not wait for the disk: whatever follows from it is committed later, and with
 * it this. Only for what is done again, or comes again, when the server ends before that.
 * @param unless a condition in which it does wait
 */
export const notFlushed = (unless = "false") => `(SELECT set_config('synchronous_commit',
    CASE WHEN ${unless} THEN current_setting('synchronous_commit') ELSE 'off' END, true)) not_flushed`;

/** One array of each of these fields, for `unnest`; undefined becomes NULL. */
export function columnsOf<Item>(items: readonly Item[], ...fields: readonly (keyof Item)[]): unknown[][] {
  return fields.map((field) => items.map((item) => item[field]));
}

/**
 * These bytes, one behind the other, with the places, from 1, and lengths for `substring`. As an array they would be sent
 * as text, twice as long, which the server reads character by character.
 */
export function inOneValue(parts: readonly (Buffer | undefined)[]): [Buffer, unknown[], unknown[]] {
  let end = 1;
  const places = parts.map((part) => {
    end += part?.length ?? 0;
    return part && end - part.length;
  });
  return [
    Buffer.concat(parts.filter((part) => part !== undefined)),
    places,
    parts.map((part) => part?.length),
  ];
}

/** A holder's write touched no row: the lease has passed to another holder, or the row is terminal. */
export function leaseLost(what: string): DrawbridgeError {
  return new DrawbridgeError("lease_lost", `${what} is no longer held by this process`, {
    hint: "Nothing to do: the present holder continues the work.",
  });
}

export const toTime = (epochMs: number): Date => new Date(epochMs);

export interface ClaimRequest {
  readonly limit: number;
  readonly now: number;
  readonly leaseUntil: number;
  readonly holder?: string;
  /** The ghosts whose work in encrypted rooms it can do; undefined: any ghost's. */
  readonly ghosts?: readonly GhostMxid[] | undefined;
  /** Of encrypted events: those that are left to other processes. */
  readonly except?: readonly EventId[];
}

export function dueNow(clock: Pick<Clock, "now">, limit: number, leaseMs: number): ClaimRequest {
  const now = clock.now();
  return { limit, now, leaseUntil: now + leaseMs };
}

export function claimValues({ limit, now, leaseUntil, holder = "", ghosts }: ClaimRequest): unknown[] {
  return [limit, toTime(now), toTime(leaseUntil), holder, ghosts];
}

/** Whether a claimant with these ghosts, a parameter such as `$5`, can send as `ghost` into `room`. */
export const canServe = (ghosts: string, ghost: string, room: string): string => `(${ghosts}::text[] IS NULL
    OR ${ghost} = ANY (${ghosts})
    OR NOT EXISTS (SELECT FROM bridge_rooms served WHERE served.room_id = ${room} AND served.encrypted))`;

export interface Work<Result> {
  readonly result: Result;
  /** The transaction's last statement, sent but not awaited, so that COMMIT travels with it. */
  readonly sent?: Promise<unknown>;
}

/** The last statement may fail unawaited, because an earlier one has failed: that failure is the reported one. */
async function withoutUnhandled<Result>(work: Promise<Work<Result>>): Promise<Work<Result>> {
  const done = await work;
  done.sent?.catch(() => {});
  return done;
}

/** `work` awaits no remote call. When it throws, nothing was committed, unless the answer to COMMIT was lost. */
export function inTransaction<Result>(
  pool: Pool,
  begin: string,
  work: (client: PoolClient) => Promise<Work<Result>>,
): Promise<Result> {
  return again(async (one) => {
    const client = await pool.connect();
    one.isOpen = true;
    let broken: Error | undefined;
    try {
      inOneWrite(client);
      const begun = client.query(begin);
      // When BEGIN fails, `work` fails too; the failure is reported once.
      const [, { result, sent }] = await Promise.all([begun, withoutUnhandled(work(client))]);
      one.isOpen = false;
      const [, committed] = await Promise.all([sent, client.query("COMMIT")]);
      // An aborted transaction answers COMMIT with ROLLBACK, and no error.
      if (committed.command !== "COMMIT")
        throw new DrawbridgeError("internal", "a transaction was not committed");
      return result;
    } catch (error) {
      await client.query("ROLLBACK").catch((failure: Error) => {
        broken = failure;
      });
      if (isDemoted(error)) broken = error as Error;
      throw error;
    } finally {
      // A connection that could not roll back, or whose server takes no writes, is closed instead of returned to the pool.
      client.release(broken);
    }
  });
}

// Taken in ascending order, so that two transactions never deadlock. Two rooms with the same hash share a lock.
const LOCK_ROOMS = statement("lock_rooms")`
  SELECT pg_advisory_xact_lock(key) FROM (
    SELECT DISTINCT hashtextextended(room, 0) AS key FROM unnest($1::text[]) AS u (room) ORDER BY key) keys`;

/** With the locks of these rooms, which whatever gives out places in a room, or computes its gate, must hold. */
export function inRooms<Result>(
  pool: Pool,
  roomIds: readonly RoomId[],
  work: (client: PoolClient) => Promise<Work<Result>>,
): Promise<Result> {
  return inTransaction(pool, "BEGIN", async (client) => {
    const locking = LOCK_ROOMS.rows(client, [[...new Set(roomIds)]]);
    const [, done] = await Promise.all([locking, withoutUnhandled(work(client))]);
    return done;
  });
}
