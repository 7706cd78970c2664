// Leader election in PostgreSQL. The leader holds an advisory lock on a connection of its own, and a number in
// bridge_leadership tells which bridge has requested leadership last.
// Invariants: the lock is free a moment after its holder has ended, however it ended; a new leader that is alone
// releases, in one transaction, every lease of earlier leaders under a higher fence, so that no work waits for a dead
// process and no late write of one is accepted.
import { createHash } from "node:crypto";
import { Socket } from "node:net";
import { hostname } from "node:os";
import { Client } from "pg";
import type { Clock } from "../../domain/clock.ts";
import {
  ADVISORY_LOCKS,
  oneRow,
  type Queryable,
  rows,
  type Statement,
  toEpochMs,
  toTime,
} from "./postgres.ts";

/** The mode of the lock. `exclusive`: there is one leader. `shared`: other bridges may hold the lock shared as well. */
export type LeadershipMode = "exclusive" | "shared";

const LOCK = ADVISORY_LOCKS.leadership;
const CONNECT_TIMEOUT_MS = 5_000;
const STATEMENT_TIMEOUT_MS = 10_000;
/** The server ends a connection that is idle for so long: its process hangs, or its machine is gone. */
const IDLE_MS_MAX = 20_000;
/** How long to wait for the server to confirm that a connection has ended. */
const CLOSE_MS_MAX = 2_000;
const APPLICATION = "drawbridge-leadership";

const SESSION_LIMITS = `SELECT set_config('idle_session_timeout', '${IDLE_MS_MAX}', false)
  WHERE current_setting('server_version_num')::int >= 140000`;

const lockSuffix = (mode: LeadershipMode) => (mode === "shared" ? "_shared" : "");

const REQUEST: Statement = {
  name: "leadership_request",
  text: "UPDATE bridge_leadership SET requested = requested + 1, requested_at = $1 RETURNING requested::text",
};

const LAST_REQUEST: Statement = {
  name: "leadership_last_request",
  text: "SELECT requested::text FROM bridge_leadership",
};

const ESTABLISHED: Statement = {
  name: "leadership_established",
  text: "UPDATE bridge_leadership SET established = greatest(established, $1::bigint)",
};

// Each bridge has a connection of this application name, as leader and as standby.
const HISTORY: Statement = {
  name: "leadership_history",
  text: `SELECT least(requested - established, 1000)::int AS failed, requested_at AS last_at, NOT EXISTS (
      SELECT FROM pg_stat_activity WHERE starts_with(application_name, '${APPLICATION}')
        AND datname = current_database() AND pid <> pg_backend_pid()) AS is_only_bridge
    FROM bridge_leadership`,
};

// pg_locks shows a 64-bit key in two halves, with objsubid 1.
const OTHER_HOLDERS = `FROM pg_locks
  WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND pid <> pg_backend_pid()
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND (classid::bigint << 32) + objid::bigint = ${LOCK}`;

const COUNT_OTHERS: Statement = {
  name: "leadership_count_others",
  text: `SELECT count(*)::int AS others ${OTHER_HOLDERS}`,
};

const TERMINATE_OTHERS: Statement = {
  name: "leadership_terminate_others",
  text: `SELECT count(*) FILTER (WHERE pg_terminate_backend(pid))::int AS terminated ${OTHER_HOLDERS}`,
};

// A leader whose application name states no port may listen on any port.
const LEADER_ON_PORT: Statement = {
  name: "leadership_leader_on_port",
  text: `SELECT EXISTS (SELECT FROM pg_stat_activity
    WHERE application_name IN ($1, '${APPLICATION}') AND pid IN (SELECT pid ${OTHER_HOLDERS})) AS found`,
};

const OWN_BACKEND: Statement = {
  name: "leadership_own_backend",
  text: `SELECT pid, backend_start::text AS "startedAt" FROM pg_stat_activity WHERE pid = pg_backend_pid()`,
};

const TERMINATE_BACKEND: Statement = {
  name: "leadership_terminate_backend",
  text: `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1 AND backend_start::text = $2`,
};

// Leased delegations are heads of rooms, or were accepted by an agent; an index finds both. Rooms are locked in
// ascending order, as admissions lock them.
const RELEASE_DELEGATIONS: Statement = {
  name: "leadership_release_delegations",
  text: `
  WITH rooms AS MATERIALIZED (
    SELECT room_id, head_seq, head_ordinal FROM bridge_rooms WHERE head_at IS NOT NULL
    ORDER BY room_id FOR UPDATE
  ), heads AS (
    UPDATE bridge_delegations d SET lease_holder = NULL, lease_until = NULL, fence = d.fence + 1
    FROM rooms r
    WHERE d.room_id = r.room_id AND d.room_seq = r.head_seq AND d.room_ordinal = r.head_ordinal
      AND d.lease_holder IS NOT NULL AND d.due_at IS NULL AND d.terminal_at IS NULL
    RETURNING d.room_id
  ), turns AS (
    UPDATE bridge_rooms r SET head_at = $1 FROM heads h WHERE r.room_id = h.room_id
  ), accepted AS (
    UPDATE bridge_delegations SET lease_holder = NULL, lease_until = NULL, fence = fence + 1, due_at = $1
    WHERE due_at IS NOT NULL AND lease_holder IS NOT NULL
    RETURNING 1
  )
  SELECT (SELECT count(*) FROM heads)::int + (SELECT count(*) FROM accepted)::int AS released`,
};

const releaseIn = (name: string, table: string): Statement => ({
  name: `leadership_release_${name}`,
  text: `
  WITH released AS (
    UPDATE ${table} SET is_held = false, due_at = $1, fence = fence + 1
    WHERE due_at IS NOT NULL AND is_held RETURNING 1
  )
  SELECT count(*)::int AS released FROM released`,
});

const RELEASE_ALL = [
  RELEASE_DELEGATIONS,
  releaseIn("envelopes", "bridge_encrypted_intake"),
  releaseIn("memberships", "bridge_ghost_rooms"),
  releaseIn("notices", "bridge_notices"),
];

/** The connection that holds a bridge's leadership. Each method rejects once the connection is broken. */
export interface LeadershipConnection {
  /** Aborts when the connection is broken, which frees the lock. */
  readonly broken: AbortSignal;
  readonly backend: Backend;
  /** Records a request for leadership, and returns its number. */
  requestLeadership(now: number): Promise<bigint>;
  /** The number of the last request of any bridge. */
  lastRequest(): Promise<bigint>;
  requestHistory(): Promise<RequestHistory>;
  /** Records that the bridge which made this request is an established leader. */
  recordEstablished(request: bigint): Promise<void>;
  /** Whether no other bridge holds the lock. */
  isVacant(): Promise<boolean>;
  /** Takes the lock if that is possible now. */
  acquire(mode: LeadershipMode): Promise<boolean>;
  /** Changes the lock from `exclusive` to `shared` without freeing it in between. */
  downgrade(): Promise<void>;
  /** Releases all leases of earlier leaders and returns how many. Only while the lock is held in mode `exclusive`. */
  releaseLeases(now: number): Promise<number>;
  /** Terminates the connections of all other holders and returns how many. */
  terminateOthers(): Promise<number>;
  /** Terminates a lost connection of this process that the server may not have noticed yet. */
  terminate(backend: Backend): Promise<void>;
  /** Frees the lock. Does not wait long for a server that does not answer. */
  close(): Promise<void>;
}

export interface RequestHistory {
  /** How many requests were made since the last one whose bridge became an established leader; at most 1,000. */
  readonly failed: number;
  /** When the last request was made, by the clock of its machine; undefined when there was none. */
  readonly lastAt: number | undefined;
  /** Whether no other bridge, leader or standby, is connected to this database. */
  readonly isOnlyBridge: boolean;
}

/** A connection as the server knows it; a process ID alone may be reused. */
export interface Backend {
  readonly pid: number;
  readonly startedAt: string;
}

/** The application name of a bridge that listens on this port of this machine. PostgreSQL cuts names at 63 bytes. */
function applicationName(port: number): string {
  const digest = createHash("sha256").update(`${hostname()}:${port}`).digest("hex");
  return `${APPLICATION}-${digest.slice(0, 16)}`;
}

/** Whether another bridge that is a leader may be the one that listens on this port of this machine. */
export async function isLeaderOnPort(on: Queryable, port: number): Promise<boolean> {
  return (await oneRow<{ found: boolean }>(on, LEADER_ON_PORT, [applicationName(port)])).found;
}

/**
 * @param port on which the bridge listens for the homeserver
 * @throws the driver's error when the database cannot be reached
 */
export async function openLeadershipConnection(
  url: string,
  { clock, port }: { readonly clock: Clock; readonly port?: number },
): Promise<LeadershipConnection> {
  const socket = new Socket();
  const client = new Client({
    stream: () => socket,
    connectionString: url,
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    statement_timeout: STATEMENT_TIMEOUT_MS,
    query_timeout: STATEMENT_TIMEOUT_MS,
    keepAlive: true,
    application_name: port === undefined ? APPLICATION : applicationName(port),
  });
  const broken = new AbortController();
  client.on("error", () => broken.abort());
  client.on("end", () => broken.abort());
  await client.connect();
  const requestNumber = async (statement: Statement, values: readonly unknown[] = []) =>
    BigInt((await oneRow<{ requested: string }>(client, statement, values)).requested);
  const acquire = async (mode: LeadershipMode) => {
    const text = `SELECT pg_try_advisory_lock${lockSuffix(mode)}(${LOCK}) AS acquired`;
    const statement = { name: `leadership_acquire_${mode}`, text };
    return (await oneRow<{ acquired: boolean }>(client, statement, [])).acquired;
  };
  const close = async () => {
    const closed = new AbortController();
    const timeUp = clock.sleep(CLOSE_MS_MAX, closed.signal).catch(() => undefined);
    await Promise.race([client.end().catch(() => undefined), timeUp]);
    closed.abort();
    // When the server hangs or its machine is gone, it frees the lock by itself.
    socket.destroy();
  };
  try {
    await client.query(SESSION_LIMITS);
    const backend = await oneRow<{ pid: number; startedAt: string }>(client, OWN_BACKEND, []);
    return {
      broken: broken.signal,
      backend,
      requestLeadership: (now) => requestNumber(REQUEST, [toTime(now)]),
      lastRequest: () => requestNumber(LAST_REQUEST),
      requestHistory: async () => {
        type Row = { failed: number; last_at: Date | null; is_only_bridge: boolean };
        const row = await oneRow<Row>(client, HISTORY, []);
        return {
          failed: row.failed,
          lastAt: row.last_at === null ? undefined : toEpochMs(row.last_at),
          isOnlyBridge: row.is_only_bridge,
        };
      },
      recordEstablished: async (request) => {
        await rows(client, ESTABLISHED, [String(request)]);
      },
      isVacant: async () => (await oneRow<{ others: number }>(client, COUNT_OTHERS, [])).others === 0,
      acquire,
      downgrade: async () => {
        // One session may hold both modes, so no bridge that waits for an exclusive lock gets it in between.
        await acquire("shared");
        await client.query(`SELECT pg_advisory_unlock(${LOCK})`);
      },
      releaseLeases: async (now) => {
        await client.query("BEGIN");
        let released = 0;
        for (const statement of RELEASE_ALL) {
          released += (await oneRow<{ released: number }>(client, statement, [toTime(now)])).released;
        }
        await client.query("COMMIT");
        return released;
      },
      terminateOthers: async () =>
        (await oneRow<{ terminated: number }>(client, TERMINATE_OTHERS, [])).terminated,
      terminate: async ({ pid, startedAt }) => {
        await rows(client, TERMINATE_BACKEND, [pid, startedAt]);
      },
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}
