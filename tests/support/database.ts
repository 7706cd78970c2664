// A real PostgreSQL database for a test, of its own and already migrated; and everything that a database holds as text, in
// which planted content can be searched for. Databases are cloned from one template. One that a test had is restored, which
// costs a tenth of a new one, and given to a later test of this process.
// Invariants: a restored database has the rows, next values and schema of the template; one is not restored where a test has
// changed the schema, gathered statistics or filled more than a few pages; tests never see each other's rows; a connection
// that a test leaves open fails that test. The server is the run's (TEST_POSTGRES_URL, set by `./task test`) or, for a file
// run by itself, one that lives as long as this process. Binary columns are searched as what they encode: bytes, and records
// of cryptographic stores as their keys and values.
import { after, type TestContext } from "node:test";
import { deserialize } from "node:v8";
import pg, { type QueryResultRow } from "pg";
import { decodeKey } from "../../src/bridge/crypto/idb-keys.ts";
import { migrate } from "../../src/bridge/ledger/migrate.ts";
import { createLedgerPool } from "../../src/bridge/ledger/postgres.ts";
import { systemClock, systemRandom } from "../../src/domain/clock.ts";
import { startTestServer, TEST_POSTGRES_URL, type TestServer } from "./test-server.ts";

export interface TestDatabase {
  readonly url: string;
  readonly pool: pg.Pool;
  readonly name: string;
}

interface OwnDatabase extends TestDatabase {
  readonly server: string;
}

interface DatabaseOptions {
  readonly migrated?: boolean;
  readonly poolSize?: number;
  readonly settings?: string;
}

const TEMPLATE = "drawbridge_template";
/** Of the connections of a database's own pool, which outlive a test. */
const POOL_NAME = "test-database";
// Any number will do, as long as every test process locks the same one.
const TEMPLATE_LOCK = 4_711;
const LEAK_PATIENCE_MS = 3_000;
/** Deleted rows take room until they are vacuumed, and plans are made for tables of that size. */
const FILLED_BYTES_MAX = 1024 * 1024;

/** What each clone has beside its tables, in a schema of its own. */
const OWN = `
  CREATE SCHEMA template;
  CREATE TABLE template.schema_changes ();
  CREATE FUNCTION template.note_schema_change() RETURNS event_trigger LANGUAGE plpgsql AS $$
    BEGIN INSERT INTO template.schema_changes DEFAULT VALUES; END $$;`;

interface Names {
  readonly name: string;
}

let ownServer: Promise<TestServer> | undefined;
/** One connection a server, on which this process makes and drops databases. */
const admins = new Map<string, pg.Pool>();
/** Servers that have the template. */
const prepared = new Set<string>();
/** Databases without a test, by what their pools were made with; the connections stay open. */
const spare = new Map<string, OwnDatabase[]>();
let isOver = false;
after(async () => {
  isOver = true;
  await Promise.all([...spare.values()].flat().map(discard));
  // A file's own hooks may drop their databases after this one; they open a connection again.
  const pools = [...admins.values()];
  admins.clear();
  await Promise.all(pools.map((admin) => admin.end()));
  await (await ownServer)?.stop();
});

function adminOf(server: string): pg.Pool {
  const known = admins.get(server);
  if (known !== undefined) return known;
  const admin = new pg.Pool({
    connectionString: server,
    max: 1,
    idleTimeoutMillis: 0,
    allowExitOnIdle: true,
  });
  // Without a listener, a test that stops the server would end the process.
  admin.on("error", () => {});
  // Where the server can, it has the kernel copy the files of a template.
  admin.on("connect", (client) => void client.query("SET file_copy_method = clone").catch(() => undefined));
  admins.set(server, admin);
  return admin;
}

async function serverUrl(): Promise<string> {
  const shared = process.env[TEST_POSTGRES_URL];
  if (shared !== undefined && shared !== "") return shared;
  ownServer ??= startTestServer();
  return (await ownServer).url;
}

function databaseUrl(server: string, name: string): string {
  const url = new URL(server);
  url.pathname = `/${name}`;
  return url.href;
}

async function withAdmin<Result>(
  server: string,
  work: (client: pg.PoolClient) => Promise<Result>,
): Promise<Result> {
  const client = await adminOf(server).connect();
  try {
    return await work(client);
  } finally {
    client.release();
  }
}

/** Makes the migrated template once a server, whichever process comes first. */
async function ensureTemplate(server: string, admin: pg.PoolClient): Promise<void> {
  if (prepared.has(server)) return;
  await admin.query("SELECT pg_advisory_lock($1)", [TEMPLATE_LOCK]);
  try {
    const found = await admin.query("SELECT 1 FROM pg_database WHERE datname = $1", [TEMPLATE]);
    if (found.rowCount !== 0) return;
    const building = `${TEMPLATE}_building`;
    await admin.query(`DROP DATABASE IF EXISTS ${building} WITH (FORCE)`);
    await admin.query(`CREATE DATABASE ${building}`);
    const pool = new pg.Pool({ connectionString: databaseUrl(server, building), max: 2 });
    try {
      await makeTemplate(pool);
    } finally {
      await pool.end();
    }
    // A first connection caches the catalog in a file, and clones get that too.
    const first = new pg.Client(databaseUrl(server, building));
    await first.connect();
    await first.end();
    await admin.query(`ALTER DATABASE ${building} RENAME TO ${TEMPLATE}`);
  } finally {
    await admin.query("SELECT pg_advisory_unlock($1)", [TEMPLATE_LOCK]);
  }
  prepared.add(server);
}

async function openConnections(admin: pg.PoolClient, name: string): Promise<string[]> {
  const { rows } = await admin.query<{ state: string; application: string }>(
    `SELECT coalesce(state, 'starting') AS state, application_name AS application
       FROM pg_stat_activity WHERE datname = $1 AND backend_type = 'client backend' AND application_name <> $2`,
    [name, POOL_NAME],
  );
  return rows.map((row) => `${row.application || "unnamed"} (${row.state})`);
}

/** Connections to a database that has no test any more: the test has leaked them. */
async function leakedConnections({ server, name, pool }: OwnDatabase): Promise<string[]> {
  return await withAdmin(server, async (admin) => {
    const poll = async () => [
      ...(await openConnections(admin, name)),
      ...Array.from({ length: pool.totalCount - pool.idleCount }, () => "the database's own (taken)"),
    ];
    // Ending a connection takes the server a moment.
    const deadline = systemClock.now() + LEAK_PATIENCE_MS;
    let leaked = await poll();
    while (leaked.length > 0 && systemClock.now() < deadline) {
      await systemClock.sleep(20);
      leaked = await poll();
    }
    return leaked;
  });
}

async function discard({ server, name, pool }: OwnDatabase): Promise<void> {
  if (!pool.ended) await pool.end();
  await withAdmin(server, (admin) => admin.query(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`));
}

/** Connections that have restored their database: the first time, a connection plans all statements of it. */
const restorers = new WeakSet<pg.PoolClient>();

/** Whether the database is as new, and its connections too. */
async function isRestored({ pool }: OwnDatabase): Promise<boolean> {
  const idle = await Promise.all(Array.from({ length: pool.idleCount }, () => pool.connect()));
  const fresh = idle.map(async (client) => {
    try {
      await client.query("ROLLBACK; RESET ALL; UNLISTEN *; SELECT pg_advisory_unlock_all()");
      return [client];
    } catch {
      client.release(true); // A test has ended it at the server.
      return [];
    }
  });
  const clients = (await Promise.all(fresh)).flat();
  const restorer = clients.find((client) => restorers.has(client)) ?? clients[0];
  try {
    const text = "SELECT template.restore() AS restored";
    const { rows } = await (restorer ?? pool).query<{ restored: boolean }>(text);
    if (restorer !== undefined) restorers.add(restorer);
    return rows[0]?.restored === true;
  } finally {
    for (const client of clients) client.release();
  }
}

async function takeSpare(kind: string): Promise<OwnDatabase | undefined> {
  for (;;) {
    const database = spare.get(kind)?.pop();
    if (database === undefined || (await isRestored(database))) return database;
    await discard(database);
  }
}

async function createDatabase(server: string, options: DatabaseOptions): Promise<OwnDatabase> {
  const { migrated = true, poolSize = 10, settings } = options;
  const name = `test_${systemRandom.bytes(8).toString("hex")}`;
  await withAdmin(server, async (admin) => {
    if (migrated) await ensureTemplate(server, admin);
    await admin.query(`CREATE DATABASE ${name}${migrated ? ` TEMPLATE ${TEMPLATE} STRATEGY file_copy` : ""}`);
  });
  const url = databaseUrl(server, name);
  const pool = createLedgerPool({
    connectionString: url,
    max: poolSize,
    application_name: POOL_NAME,
    options: settings,
  });
  // Without a listener, a test that stops the server would end the process by an idle connection's error.
  pool.on("error", () => {});
  return { server, url, pool, name };
}

/**
 * A migrated database that no other test has, until this one is over.
 * @param t the test's context; a suite that shares one database passes `{ after }` from node:test.
 * @param options `migrated: false` gives an empty database, for tests of the migrations themselves; `settings` are
 *   command-line options of the sessions, such as `-c synchronous_commit=off`.
 */
export async function testDatabase(
  t: Pick<TestContext, "after">,
  options: DatabaseOptions = {},
): Promise<TestDatabase> {
  const server = await serverUrl();
  const kind = JSON.stringify([server, options.poolSize, options.settings]);
  const kept = options.migrated === false ? undefined : await takeSpare(kind);
  const database = kept ?? (await createDatabase(server, options));
  t.after(async () => {
    const leaked = await leakedConnections(database);
    if (isOver || leaked.length > 0 || database.pool.ended || options.migrated === false) {
      await discard(database);
    } else {
      spare.set(kind, [...(spare.get(kind) ?? []), database]);
    }
    if (leaked.length > 0) {
      throw new Error(`leaked ${leaked.length} database connection(s): ${leaked.join(", ")}; end every pool`);
    }
  });
  return database;
}

/** Runs a query on the database. */
export type Query = <Row extends QueryResultRow>(text: string) => Promise<readonly Row[]>;

/** Characters are those of Latin 1, so that bytes can be found in it. */
function binaryText(bytes: Buffer): string {
  const forms = [bytes.toString("latin1"), bytes.toString("utf8")];
  const decoders = [(): unknown => deserialize(bytes), () => decodeKey(bytes)];
  for (const decode of decoders) {
    try {
      forms.push(JSON.stringify(decode()));
    } catch {
      // It is something else.
    }
  }
  return forms.join("\n");
}

const cellText = (cell: unknown): string => (Buffer.isBuffer(cell) ? binaryText(cell) : JSON.stringify(cell));

/** The text of each table, by its name. */
export async function databaseText(query: Query): Promise<ReadonlyMap<string, string>> {
  const tables = await query<{ name: string }>(
    "SELECT quote_ident(relname) AS name FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace",
  );
  const texts = new Map<string, string>();
  for (const { name } of tables) {
    // As one text too, in which bytes are hexadecimal.
    const rows = await query<{ all_columns: string }>(
      `SELECT t::text AS all_columns, t.* FROM public.${name} t`,
    );
    texts.set(name, rows.map((row) => Object.values(row).map(cellText).join(" ")).join("\n"));
  }
  return texts;
}

/** Migrates an empty database and adds template.restore(), which is true where the clone is like its template again. */
async function makeTemplate(pool: pg.Pool): Promise<void> {
  await migrate(pool);
  await pool.query(OWN);
  // What refers to a table was made after it.
  const { rows: tables } = await pool.query<Names>(
    `SELECT quote_ident(relname) AS name FROM pg_class
     WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY oid DESC`,
  );
  const { rows: sequences } = await pool.query<Names>(
    `SELECT quote_literal(quote_ident(sequencename)) AS name FROM pg_sequences
     WHERE schemaname = 'public' AND last_value IS NULL`,
  );
  const fill: string[] = [];
  for (const { name } of tables) {
    const text = `SELECT quote_literal(jsonb_agg(t)) AS rows FROM public.${name} t HAVING count(*) > 0`;
    for (const { rows } of (await pool.query<{ rows: string }>(text)).rows) {
      fill.unshift(
        `INSERT INTO public.${name} SELECT * FROM jsonb_populate_recordset(NULL::public.${name}, ${rows});`,
      );
    }
  }
  await pool.query(`
    CREATE FUNCTION template.restore() RETURNS boolean LANGUAGE plpgsql AS $$
    BEGIN
      IF EXISTS (SELECT FROM template.schema_changes)
        OR EXISTS (SELECT FROM pg_statistic s JOIN pg_class c ON c.oid = s.starelid WHERE c.relnamespace = 'public'::regnamespace)
        OR (SELECT sum(pg_relation_size(oid)) FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r') > ${FILLED_BYTES_MAX}
      THEN RETURN false; END IF;
      ${tables.map(({ name }) => `DELETE FROM public.${name};`).join(" ")}
      ${fill.join(" ")}
      ${sequences.map(({ name }) => `PERFORM setval(${name}, 1, false);`).join(" ")}
      RETURN true;
    END $$;
    CREATE EVENT TRIGGER schema_changes ON ddl_command_end EXECUTE FUNCTION template.note_schema_change()`);
}
