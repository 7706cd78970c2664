// A PostgreSQL server for tests alone. It lives as long as the process that starts it, however that ends.
import { chmodSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { startEmbeddedPostgres } from "../../lab/postgres/embedded-postgres.ts";

/** The variable that carries the shared server's URL from the task runner to the test files. */
export const TEST_POSTGRES_URL = "DRAWBRIDGE_TEST_POSTGRES_URL";

export interface TestServer {
  readonly url: string;
  /** Ends the server and removes its data. */
  stop(): Promise<void>;
}

/** Starts a server on a new directory under the system's temporary folder. */
export async function startTestServer(): Promise<TestServer> {
  const directory = mkdtempSync(join(tmpdir(), "drawbridge-test-"));
  chmodSync(directory, 0o711); // As root, the server's user must be able to enter it.
  const server = await startEmbeddedPostgres({ directory: join(directory, "postgres") });
  await adapt(server.url);
  return {
    url: server.url,
    stop: async () => {
      await server.stop();
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

/**
 * Each of several thousand connections proves the password: 4,096 rounds of a hash are a third of what one costs. And a
 * database that is emptied again and again needs no vacuum: what it holds is bounded.
 */
async function adapt(url: string): Promise<void> {
  const client = new pg.Client(url);
  await client.connect();
  const { username, password } = new URL(url);
  await client.query(`SET scram_iterations = 1; ALTER ROLE ${username} PASSWORD '${password}'`);
  await client.query("ALTER SYSTEM SET autovacuum = off");
  await client.query("SELECT pg_reload_conf()");
  await client.end();
}

/**
 * The run's server, or, for a file run by itself, one for all of the file: whatever looks for a server in this
 * process finds it. To be ended after everything that uses it.
 */
export async function serverOfFile(): Promise<Pick<TestServer, "stop">> {
  if (process.env[TEST_POSTGRES_URL]) return { stop: async () => {} };
  const server = await startTestServer();
  process.env[TEST_POSTGRES_URL] = server.url;
  return server;
}
