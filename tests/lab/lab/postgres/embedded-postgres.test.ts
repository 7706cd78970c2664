// The embedded PostgreSQL server: where it lives, how long, and what it never does.
// As root these run it as `nobody`, as any other user directly; both are meant to pass.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import pg from "pg";
import { freePort } from "../../../../lab/ports.ts";
import {
  type EmbeddedPostgres,
  type EmbeddedPostgresOptions,
  removeEmbeddedPostgres,
  startEmbeddedPostgres,
} from "../../../../lab/postgres/embedded-postgres.ts";
import { unprivilegedUser } from "../../../../lab/postgres/unprivileged-user.ts";
import { systemClock } from "../../../../src/domain/clock.ts";
import { ROOT, start, temporaryFolder } from "../../../support/temporary.ts";

const IS_ROOT = process.getuid?.() === 0;

/** Starts a server that is ended and removed after the test, wherever its data was put. */
async function startIn(
  t: TestContext,
  directory: string,
  options: Partial<EmbeddedPostgresOptions> = {},
): Promise<EmbeddedPostgres> {
  t.after(() => removeEmbeddedPostgres(directory));
  return await startEmbeddedPostgres({ ...options, directory });
}

async function query(url: string, sql: string): Promise<Record<string, unknown>> {
  const client = new pg.Client({ connectionString: url });
  client.on("error", () => {});
  await client.connect();
  try {
    const { rows } = await client.query(sql);
    return rows[0] ?? {};
  } finally {
    await client.end();
  }
}

/** Polls until a real process or server is as expected. */
async function eventually(holds: () => boolean, what: string): Promise<void> {
  const deadline = systemClock.now() + 30_000;
  while (!holds()) {
    assert.ok(systemClock.now() < deadline, `not within 30 s: ${what}`);
    await systemClock.sleep(20);
  }
}

function isRunning(pid: number): boolean {
  try {
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));
  } catch {
    return false;
  }
}

/** Another process that starts the server, prints its pid and stays. */
function starter(directory: string, detached: boolean) {
  const module = JSON.stringify(join(ROOT, "lab", "postgres", "embedded-postgres.ts"));
  const code = `
    const { startEmbeddedPostgres } = await import(${module});
    const server = await startEmbeddedPostgres(${JSON.stringify({ directory, detached })});
    console.log("server " + JSON.stringify({ pid: server.pid, dataDirectory: server.dataDirectory }) + " up");
    setInterval(() => {}, 1000);
  `;
  return start(process.execPath, ["--input-type=module", "-e", code]);
}

describe("the embedded PostgreSQL", () => {
  it("in a folder of mode 0700 with a space in its path the server starts, as nobody when we are root", async (t) => {
    const logged: string[] = [];
    const directory = join(temporaryFolder(t), "post gres");
    const server = await startIn(t, directory, { log: (message) => logged.push(message) });
    const row = await query(server.url, "SELECT current_setting('server_encoding') AS encoding, 1 AS one");
    assert.deepEqual(row, { encoding: "UTF8", one: 1 });
    assert.equal(server.dataDirectory.startsWith(directory), !IS_ROOT);
    assert.equal(
      logged.some((message) => message.includes(directory)),
      IS_ROOT,
      logged.join("\n"),
    );
    const owner = statSync(`/proc/${server.pid}`).uid;
    assert.notEqual(owner, 0);
    assert.equal(statSync(join(dirname(server.dataDirectory), "password")).mode & 0o777, 0o600);
    assert.equal(statSync(server.dataDirectory).mode & 0o777, 0o700);
  });

  it("commits are durable, passwords are required, and only loopback TCP is served", async (t) => {
    const server = await startIn(t, temporaryFolder(t));
    const row = await query(
      server.url,
      `SELECT current_setting('fsync') AS fsync, current_setting('synchronous_commit') AS commit,
            current_setting('listen_addresses') AS addresses, current_setting('unix_socket_directories') AS sockets,
            (SELECT datcollate FROM pg_database WHERE datname = 'postgres') AS collation`,
    );
    assert.deepEqual(row, { fsync: "on", commit: "on", addresses: "127.0.0.1", sockets: "", collation: "C" });
    const wrong = new URL(server.url);
    wrong.password = "wrong";
    await assert.rejects(query(wrong.href, "SELECT 1"), { code: "28P01" });
  });

  it("a second start finds the running server; after a stop the data and the port are kept", async (t) => {
    const directory = temporaryFolder(t);
    const first = await startIn(t, directory);
    await query(first.url, "CREATE TABLE kept (id int)");
    const again = await startEmbeddedPostgres({ directory });
    assert.deepEqual([again.pid, again.port, again.reused], [first.pid, first.port, true]);
    await first.stop();
    assert.equal(isRunning(first.pid), false);
    await first.stop();
    const second = await startEmbeddedPostgres({ directory });
    assert.deepEqual([second.port, second.reused, second.url], [first.port, false, first.url]);
    assert.notEqual(second.pid, first.pid);
    assert.deepEqual(await query(second.url, "SELECT count(*)::int AS rows FROM kept"), { rows: 0 });
    await second.stop();
  });

  it("a port in use is replaced by a free one", async (t) => {
    const one = await startIn(t, temporaryFolder(t));
    const other = await startIn(t, temporaryFolder(t), { port: one.port });
    assert.notEqual(other.port, one.port);
    assert.deepEqual(await query(other.url, "SELECT 1 AS one"), { one: 1 });
  });

  it("four starters of one directory end up with one server", async (t) => {
    const directory = temporaryFolder(t);
    const starters = Array.from({ length: 4 }, () => starter(directory, false));
    t.after(async () => {
      for (const { child } of starters) child.kill("SIGKILL");
      await Promise.all(starters.map(({ finished }) => finished));
    });
    await Promise.all(starters.map(({ printed }) => printed("up")));
    const server = await startIn(t, directory);
    assert.equal(server.reused, true);
    assert.deepEqual(await query(server.url, "SELECT 1 AS one"), { one: 1 });
  });

  for (const signal of ["SIGTERM", "SIGKILL"] as const) {
    it(`the server ends with its starter, also when that is ended by ${signal}`, async (t) => {
      const directory = temporaryFolder(t);
      const { child, finished, printed } = starter(directory, false);
      await printed("up");
      child.kill(signal);
      const { stdout } = await finished;
      const { pid, dataDirectory } = JSON.parse(/server (\{.*\}) up/.exec(stdout)?.[1] ?? "");
      t.after(() => removeEmbeddedPostgres(directory));
      await eventually(() => !isRunning(pid), "the server has ended");
      assert.equal(existsSync(join(dataDirectory, "postmaster.pid")), false, "it shut down in order");
    });
  }

  it("a detached server survives its starter and is found again", async (t) => {
    const directory = temporaryFolder(t);
    const { child, finished, printed } = starter(directory, true);
    await printed("up");
    child.kill("SIGKILL");
    await finished;
    const server = await startIn(t, directory);
    assert.equal(server.reused, true);
    assert.deepEqual(await query(server.url, "SELECT 1 AS one"), { one: 1 });
  });

  it("a lock file whose process ID now belongs to another program does not hinder a start", async (t) => {
    const directory = temporaryFolder(t);
    const first = await startIn(t, directory);
    const lock = join(first.dataDirectory, "postmaster.pid");
    const lines = readFileSync(lock, "utf8").split("\n");
    await first.stop();
    // The server's own user runs it: PostgreSQL ignores a process that it may not signal, and minds this one.
    const other = spawn("sleep", ["60"], { ...unprivilegedUser(), cwd: "/", stdio: "ignore" });
    t.after(() => other.kill());
    writeFileSync(lock, [String(other.pid), ...lines.slice(1)].join("\n"));
    const second = await startEmbeddedPostgres({ directory });
    assert.notEqual(second.pid, other.pid);
    assert.deepEqual(await query(second.url, "SELECT 1 AS one"), { one: 1 });
    await second.stop();
    assert.equal(other.exitCode ?? other.signalCode, null, "the other program was left alone");
  });

  it("files that a killed initdb has left are removed", async (t) => {
    const first = await startIn(t, temporaryFolder(t));
    const home = dirname(first.dataDirectory);
    await first.stop();
    // Above the largest process ID that Linux gives out.
    const leftover = join(home, "initdb.4194999");
    mkdirSync(leftover);
    const second = await startEmbeddedPostgres({ directory: home });
    assert.equal(existsSync(leftover), false);
    await second.stop();
  });

  it("no value of a row reaches the server's log, not even of a refused one", async (t) => {
    const server = await startIn(t, temporaryFolder(t));
    await query(server.url, "CREATE TABLE questions (text text PRIMARY KEY)");
    await query(server.url, "INSERT INTO questions VALUES ('canary')");
    await assert.rejects(query(server.url, "INSERT INTO questions VALUES ('canary')"), { code: "23505" });
    await server.stop();
    const log = readFileSync(server.logFile, "utf8");
    assert.match(log, /duplicate key/);
    assert.doesNotMatch(log, /canary/);
  });

  it("removing a server ends it and leaves nothing of it behind", async (t) => {
    const directory = join(temporaryFolder(t), "postgres");
    const server = await startIn(t, directory);
    await removeEmbeddedPostgres(directory);
    assert.equal(isRunning(server.pid), false);
    assert.equal(existsSync(server.dataDirectory), false);
    assert.equal(existsSync(directory), false);
    await removeEmbeddedPostgres(directory);
  });

  it("a free port is the preferred one whenever nobody listens there", async () => {
    const port = await freePort();
    assert.equal(await freePort(port), port);
  });
});
