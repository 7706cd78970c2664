// Which process serves: a lock that lives as long as its holder's connection, and a number that says who asked
// for it last. Invariants: a process that has ended, however it did, holds nothing a moment later; whoever
// begins to serve alone frees, in one transaction, every lease of those before, each under a higher fence, so
// that nobody waits for a lease of the dead and no write of theirs counts any more.
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

/** `alone`: nobody else serves at the same time. `shared`: others may that are content with it as well. */
export type LeadershipMode = "alone" | "shared";

const CONNECT_TIMEOUT_MS = 5_000;
const STATEMENT_TIMEOUT_MS = 10_000;
/** The server ends a connection that says nothing for so long: its process hangs, or its machine is gone. */
const SILENCE_MS_MAX = 20_000;
/** How long the server may take to say that a connection has ended. */
const CLOSE_MS_MAX = 2_000;
const APPLICATION = "drawbridge-leadership";

const LIMITS = `SELECT set_config('idle_session_timeout', '${SILENCE_MS_MAX}', false)
  WHERE current_setting('server_version_num')::int >= 140000`;

const suffix = (mode: LeadershipMode) => (mode === "shared" ? "_shared" : "");

const ASK: Statement = {
  name: "leadership_ask",
  text: "UPDATE bridge_leadership SET asked = asked + 1, asked_at = $1 RETURNING asked::text",
};

const ASKED: Statement = { name: "leadership_asked", text: "SELECT asked::text FROM bridge_leadership" };

const STOOD: Statement = {
  name: "leadership_stood",
  text: "UPDATE bridge_leadership SET stood = greatest(stood, $1::bigint)",
};

// Each bridge has such a connection, whether it serves, asks or stands in line.
const EARLIER: Statement = {
  name: "leadership_earlier",
  text: `SELECT least(asked - stood, 1000)::int AS in_vain, asked_at AS last_at, NOT EXISTS (
      SELECT FROM pg_stat_activity WHERE starts_with(application_name, '${APPLICATION}')
        AND datname = current_database() AND pid <> pg_backend_pid()) AS alone
    FROM bridge_leadership`,
};

// A 64-bit key stands in two halves, with objsubid 1.
const HOLDERS = `FROM pg_locks
  WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND pid <> pg_backend_pid()
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND (classid::bigint << 32) + objid::bigint = ${ADVISORY_LOCKS.leadership}`;

const HELD: Statement = { name: "leadership_held", text: `SELECT count(*)::int AS held ${HOLDERS}` };

const END_OTHERS: Statement = {
  name: "leadership_end_others",
  text: `SELECT count(*) FILTER (WHERE pg_terminate_backend(pid))::int AS ended ${HOLDERS}`,
};

// One that does not say where it listens may listen anywhere.
const HELD_FROM: Statement = {
  name: "leadership_held_from",
  text: `SELECT EXISTS (SELECT FROM pg_stat_activity
    WHERE application_name IN ($1, '${APPLICATION}') AND pid IN (SELECT pid ${HOLDERS})) AS held`,
};

const SELF: Statement = {
  name: "leadership_self",
  text: `SELECT pid, backend_start::text AS since FROM pg_stat_activity WHERE pid = pg_backend_pid()`,
};

const END_PAST_SELF: Statement = {
  name: "leadership_end_past_self",
  text: `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1 AND backend_start::text = $2`,
};

// Held are heads, and what an agent has accepted: both stand in an index. Rooms are locked in ascending order,
// as admissions lock them.
const FREE_DELEGATIONS: Statement = {
  name: "leadership_free_delegations",
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
  SELECT (SELECT count(*) FROM heads)::int + (SELECT count(*) FROM accepted)::int AS freed`,
};

const free = (name: string, table: string): Statement => ({
  name: `leadership_free_${name}`,
  text: `
  WITH freed AS (
    UPDATE ${table} SET is_held = false, due_at = $1, fence = fence + 1
    WHERE due_at IS NOT NULL AND is_held RETURNING 1
  )
  SELECT count(*)::int AS freed FROM freed`,
});

const FREE = [
  FREE_DELEGATIONS,
  free("envelopes", "bridge_encrypted_intake"),
  free("memberships", "bridge_ghost_rooms"),
  free("notices", "bridge_notices"),
];

/** One connection on which a process holds its place. Each method rejects once the connection is broken. */
export interface LeadershipConnection {
  /** Aborts when the connection is broken: what it held is free. */
  readonly broken: AbortSignal;
  /** Says that somebody wants to serve; returns the number of this asking. */
  ask(now: number): Promise<bigint>;
  /** The number of the last asking. */
  asked(): Promise<bigint>;
  /** What came of those who asked before. */
  earlier(): Promise<EarlierAskings>;
  /** Says that whoever asked with this number goes on serving. */
  stood(ticket: bigint): Promise<void>;
  /** Whether nobody else has the place. */
  isVacant(): Promise<boolean>;
  /** Takes the place if it is free. */
  take(mode: LeadershipMode): Promise<boolean>;
  /** Goes from `alone` to `shared` without leaving the place free in between. */
  share(): Promise<void>;
  /** Frees what others held; returns how many leases that were. Call it while `alone`. */
  freeLeases(now: number): Promise<number>;
  /** Breaks the connection of whoever else has the place; returns of how many. */
  endOthers(): Promise<number>;
  /** Breaks an earlier connection of this process that the server has not yet missed. */
  endPast(self: LeadershipSelf): Promise<void>;
  readonly self: LeadershipSelf;
  /** Gives the place up; a server that does not answer is not waited for. */
  close(): Promise<void>;
}

export interface EarlierAskings {
  /** How many have asked since the last one that went on serving; counted up to a thousand. */
  readonly inVain: number;
  /** When the last one asked, by the clock of its machine; undefined when that is not known. */
  readonly lastAt: number | undefined;
  /** Whether there is no other bridge on this database, serving or not. */
  readonly alone: boolean;
}

export interface LeadershipSelf {
  readonly pid: number;
  readonly since: string;
}

/** What a connection is called whose process listens on this port of this machine. The server cuts at 63 bytes. */
function applicationOf(port: number): string {
  const digest = createHash("sha256").update(`${hostname()}:${port}`).digest("hex");
  return `${APPLICATION}-${digest.slice(0, 16)}`;
}

/** Whether somebody else has the place who may be the one that listens on this port of this machine. */
export async function isHeldFrom(on: Queryable, port: number): Promise<boolean> {
  return (await oneRow<{ held: boolean }>(on, HELD_FROM, [applicationOf(port)])).held;
}

/**
 * @param port where its process listens for the homeserver
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
    application_name: port === undefined ? APPLICATION : applicationOf(port),
  });
  const broken = new AbortController();
  client.on("error", () => broken.abort());
  client.on("end", () => broken.abort());
  await client.connect();
  const number = async (statement: Statement, values: readonly unknown[] = []) =>
    BigInt((await oneRow<{ asked: string }>(client, statement, values)).asked);
  const take = async (mode: LeadershipMode) => {
    const text = `SELECT pg_try_advisory_lock${suffix(mode)}(${ADVISORY_LOCKS.leadership}) AS taken`;
    return (await oneRow<{ taken: boolean }>(client, { name: `leadership_take_${mode}`, text }, [])).taken;
  };
  const close = async () => {
    const closed = new AbortController();
    const timeUp = clock.sleep(CLOSE_MS_MAX, closed.signal).catch(() => undefined);
    await Promise.race([client.end().catch(() => undefined), timeUp]);
    closed.abort();
    // The server's machine is gone, or it hangs: it ends what it still holds by itself.
    socket.destroy();
  };
  try {
    await client.query(LIMITS);
    const self = await oneRow<{ pid: number; since: string }>(client, SELF, []);
    return {
      broken: broken.signal,
      self,
      ask: (now) => number(ASK, [toTime(now)]),
      asked: () => number(ASKED),
      earlier: async () => {
        const found = await oneRow<{ in_vain: number; last_at: Date | null; alone: boolean }>(
          client,
          EARLIER,
          [],
        );
        return {
          inVain: found.in_vain,
          lastAt: found.last_at === null ? undefined : toEpochMs(found.last_at),
          alone: found.alone,
        };
      },
      stood: async (ticket) => {
        await rows(client, STOOD, [String(ticket)]);
      },
      isVacant: async () => (await oneRow<{ held: number }>(client, HELD, [])).held === 0,
      take,
      share: async () => {
        // One connection may hold both; who waits for it alone does not get between them.
        await take("shared");
        await client.query(`SELECT pg_advisory_unlock(${ADVISORY_LOCKS.leadership})`);
      },
      freeLeases: async (now) => {
        await client.query("BEGIN");
        let freed = 0;
        for (const statement of FREE) {
          freed += (await oneRow<{ freed: number }>(client, statement, [toTime(now)])).freed;
        }
        await client.query("COMMIT");
        return freed;
      },
      endOthers: async () => (await oneRow<{ ended: number }>(client, END_OTHERS, [])).ended,
      endPast: async ({ pid, since }) => {
        await rows(client, END_PAST_SELF, [pid, since]);
      },
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}
