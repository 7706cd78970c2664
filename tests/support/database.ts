// A real PostgreSQL database for a test, of its own and already migrated; and everything that a database holds as text, in
// which planted content can be searched for.
// Invariants: databases are cloned from one template, so tests never see each other's rows; a connection
// that a test leaves open fails that test. The server is the run's (TEST_POSTGRES_URL, set by `./task test`)
// or, for a file run by itself, one that lives as long as this process. Binary columns are searched as what they encode:
// bytes, and records of cryptographic stores as their keys and values.
import { after, type TestContext } from "node:test";
import { deserialize } from "node:v8";
import pg, { type QueryResultRow } from "pg";
import { decodeStringKey } from "../../src/bridge/crypto/idb-keys.ts";
import { migrate } from "../../src/bridge/ledger/migrate.ts";
import { createLedgerPool } from "../../src/bridge/ledger/postgres.ts";
import { systemClock, systemRandom } from "../../src/domain/clock.ts";
import { startTestServer, TEST_POSTGRES_URL, type TestServer } from "./test-server.ts";

export interface TestDatabase {
  readonly url: string;
  readonly pool: pg.Pool;
  readonly name: string;
}

const TEMPLATE = "drawbridge_template";
// Any number will do, as long as every test process locks the same one.
const TEMPLATE_LOCK = 4_711;
const LEAK_PATIENCE_MS = 3_000;

let ownServer: Promise<TestServer> | undefined;
/** One connection a server, on which this process makes and drops databases. */
const admins = new Map<string, pg.Pool>();
/** Servers that have the template. */
const prepared = new Set<string>();
after(async () => {
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
      await migrate(pool);
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
       FROM pg_stat_activity WHERE datname = $1 AND backend_type = 'client backend'`,
    [name],
  );
  return rows.map((row) => `${row.application || "unnamed"} (${row.state})`);
}

/** Drops a test's database; a connection still open to it was leaked by the test. */
async function dropDatabase(server: string, name: string): Promise<void> {
  await withAdmin(server, async (admin) => {
    // Ending a connection takes the server a moment.
    const deadline = systemClock.now() + LEAK_PATIENCE_MS;
    let leaked = await openConnections(admin, name);
    while (leaked.length > 0 && systemClock.now() < deadline) {
      await systemClock.sleep(20);
      leaked = await openConnections(admin, name);
    }
    await admin.query(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`);
    if (leaked.length > 0) {
      throw new Error(`leaked ${leaked.length} database connection(s): ${leaked.join(", ")}; end every pool`);
    }
  });
}

async function createDatabase(migrated: boolean): Promise<{ server: string; name: string }> {
  const server = await serverUrl();
  const name = `test_${systemRandom.bytes(8).toString("hex")}`;
  await withAdmin(server, async (admin) => {
    if (migrated) await ensureTemplate(server, admin);
    await admin.query(`CREATE DATABASE ${name}${migrated ? ` TEMPLATE ${TEMPLATE} STRATEGY file_copy` : ""}`);
  });
  return { server, name };
}

/**
 * A migrated database of the test's own, dropped after it.
 * @param t the test's context; a suite that shares one database passes `{ after }` from node:test.
 * @param options `migrated: false` gives an empty database, for tests of the migrations themselves; `settings` are
 *   command-line options of the sessions, such as `-c synchronous_commit=off`.
 */
export async function testDatabase(
  t: Pick<TestContext, "after">,
  options: { readonly migrated?: boolean; readonly poolSize?: number; readonly settings?: string } = {},
): Promise<TestDatabase> {
  const { server, name } = await createDatabase(options.migrated ?? true);
  const url = databaseUrl(server, name);
  const pool = createLedgerPool({
    connectionString: url,
    max: options.poolSize ?? 10,
    application_name: "test",
    options: options.settings,
  });
  // Without a listener, a test that stops the server would end the process by an idle connection's error.
  pool.on("error", () => {});
  t.after(async () => {
    if (!pool.ended) await pool.end();
    await dropDatabase(server, name);
  });
  return { url, pool, name };
}

/** Runs a query on the database. */
export type Query = <Row extends QueryResultRow>(text: string) => Promise<readonly Row[]>;

/** Characters are those of Latin 1, so that bytes can be found in it. */
function binaryText(bytes: Buffer): string {
  const forms = [bytes.toString("latin1"), bytes.toString("utf8")];
  const decoders = [(): unknown => deserialize(bytes), () => decodeStringKey(bytes)];
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
