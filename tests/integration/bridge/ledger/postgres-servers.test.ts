// Connections to the server that takes writes, and servers that stop answering. The servers are real; a proxy stands in
// for the network. A server that was made read-only stands for a standby; real ones are in tests/failover.
import assert from "node:assert/strict";
import { once } from "node:events";
import type { Duplex } from "node:stream";
import { after, before, describe, it } from "node:test";
import pg from "pg";
import { createLedgerPool, inTransaction } from "../../../../src/bridge/ledger/postgres.ts";
import { connectToServer, isPassing } from "../../../../src/bridge/ledger/postgres-servers.ts";
import { startTestServer, type TestServer } from "../../../support/test-server.ts";
import { databaseProxy } from "./database-proxy.ts";

const SOON_MS = 300;
const AT_MOST_MS = 5_000;

let one: TestServer;
let two: TestServer;
before(async () => {
  [one, two] = await Promise.all([startTestServer(), startTestServer()]);
  // The same password at both, as the members of a cluster have it.
  await administer(two, `ALTER ROLE postgres PASSWORD '${new URL(one.url).password}'`);
});
after(() => Promise.all([one.stop(), two.stop()]));

let twosPassword: string | undefined;
async function administer(server: TestServer, sql: string): Promise<unknown> {
  const url = new URL(server.url);
  if (server === two && twosPassword !== undefined) url.password = twosPassword;
  const client = new pg.Client({ connectionString: url.href });
  await client.connect();
  const { rows } = await client.query(sql);
  await client.end();
  if (server === two) twosPassword = new URL(one.url).password;
  return Object.values(rows[0] ?? {})[0];
}

async function setReadOnly(server: TestServer, isReadOnly: boolean): Promise<void> {
  await administer(server, `ALTER SYSTEM SET default_transaction_read_only = ${isReadOnly}`);
  await administer(server, "SELECT pg_reload_conf()");
  // The server's processes are told one after another.
  const wanted = isReadOnly ? "on" : "off";
  while ((await administer(server, "SHOW default_transaction_read_only")) !== wanted);
}

const both = (...urls: string[]) => {
  const [first = "", ...others] = urls;
  const hosts = [first, ...others].map((url) => new URL(url).host).join(",");
  return first.replace(new URL(first).host, hosts);
};

const port = async (on: Pick<pg.Pool, "query">) =>
  String((await on.query("SHOW port")).rows[0].port as string);
const portOf = (server: TestServer) => new URL(server.url).port;

describe("connections to several servers", () => {
  it("go to the one that takes writes, and follow it [DEL-9]", async (t) => {
    const pool = createLedgerPool({ connectionString: both(one.url, two.url), max: 2 });
    t.after(() => pool.end());
    pool.on("error", () => {});
    assert.equal(await port(pool), portOf(one));
    t.after(() => setReadOnly(one, false));
    await setReadOnly(one, true);
    // The connection that stands is to a server that takes no writes any more.
    const write = () =>
      inTransaction(pool, "BEGIN", async (client) => {
        await client.query("SELECT pg_current_xact_id()");
        await client.query("CREATE TABLE followed (n integer)");
        return { result: await port(client) };
      });
    let refusals = 0;
    const written = async (): Promise<string> => {
      try {
        return await write();
      } catch (error) {
        assert.equal((error as { code?: string }).code, "25006");
        assert.ok(isPassing(error));
        refusals += 1;
        assert.ok(refusals <= 2, "a connection to a server that takes no writes is kept");
        return await written();
      }
    };
    assert.equal(await written(), portOf(two));
    assert.ok(refusals > 0, "the server takes no writes");
    const client = await connectToServer(both(one.url, two.url), {});
    assert.equal(await port(client), portOf(two));
    await client.end();
  });

  it("fail when none of them takes writes, and say so as a failure that passes", async (t) => {
    t.after(() => setReadOnly(one, false));
    await setReadOnly(one, true);
    await assert.rejects(
      connectToServer(one.url, {}),
      (error) => isPassing(error) && /takes no writes/.test(String(error)),
    );
  });

  it("pass a server that refuses connections, and one that accepts them and says nothing [DEL-9]", async (t) => {
    for (const silent of [false, true]) {
      const proxy = await databaseProxy(t, one.url);
      if (silent) proxy.freeze(true);
      else proxy.close();
      const pool = createLedgerPool({ connectionString: both(proxy.url, two.url), max: 1 });
      t.after(() => pool.end());
      const begun = performance.now();
      assert.equal(await port(pool), portOf(two));
      assert.ok(performance.now() - begun < AT_MOST_MS);
    }
  });
});

describe("a server that is gone without a word", () => {
  it("fails the statements and transactions that wait for it, and others are made on new connections [DEL-9]", async (t) => {
    const proxy = await databaseProxy(t, one.url);
    const pool = createLedgerPool({ connectionString: proxy.url, max: 2, query_timeout: SOON_MS });
    t.after(() => pool.end());
    pool.on("error", () => {});
    const clients = await Promise.all([pool.connect(), pool.connect()]);
    for (const client of clients) client.release();
    proxy.freeze();
    const begun = performance.now();
    const hung = [
      pool.query("SELECT 1"),
      inTransaction(pool, "BEGIN", async (client) => ({ result: await client.query("SELECT 1") })),
    ];
    for (const result of await Promise.allSettled(hung)) {
      assert.ok(result.status === "rejected" && isPassing(result.reason), JSON.stringify(result));
    }
    assert.ok(performance.now() - begun < AT_MOST_MS);
    assert.equal(await port(pool), portOf(one));
    assert.equal(pool.waitingCount, 0);
  });

  it("a transaction that the server ended, because its process hung meanwhile, is made again [DEL-9]", async (t) => {
    const idle_in_transaction_session_timeout = 80;
    const pool = createLedgerPool({ connectionString: one.url, max: 1, idle_in_transaction_session_timeout });
    t.after(() => pool.end());
    pool.on("error", () => {});
    let hangs = 0;
    const write = (times: number) =>
      inTransaction(pool, "BEGIN", async (client) => {
        await client.query("SELECT pg_current_xact_id()");
        if (hangs < times) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 200);
        hangs += 1;
        return { result: await port(client) };
      });
    assert.equal(await write(1), portOf(one));
    await assert.rejects(write(Infinity), isPassing);
  });

  it("a transaction whose connection ended before its COMMIT is made again [DEL-9]", async (t) => {
    const pool = createLedgerPool({ connectionString: one.url, max: 1 });
    t.after(() => pool.end());
    pool.on("error", () => {});
    const end = async (client: pg.PoolClient) => {
      const { rows } = await client.query<{ pid: number }>("SELECT pg_backend_pid() AS pid");
      const ended = once(client, "error");
      await administer(one, `SELECT pg_terminate_backend(${rows[0]?.pid})`);
      await ended;
    };
    const cut = (client: pg.PoolClient) => {
      const stream = (client as unknown as { connection: { stream: Duplex } }).connection.stream;
      stream.destroy();
    };
    for (const [statements, how] of [
      [0, end],
      [1, end],
      [1, cut],
    ] as const) {
      let tries = 0;
      const made = inTransaction(pool, "BEGIN", async (client) => {
        await client.query("SELECT pg_current_xact_id()");
        tries += 1;
        if (tries === 1) await how(client);
        for (let left = statements; left > 0; left--) await client.query("SELECT 1");
        return { result: "made" };
      });
      assert.equal(await made, "made");
      assert.equal(tries, 2);
    }
  });

  it("no statement of a pool or of a single connection waits without end", async (t) => {
    const pool = createLedgerPool({ connectionString: one.url });
    t.after(() => pool.end());
    const { query_timeout: pooled, statement_timeout: atServer } = pool.options as pg.PoolConfig;
    assert.ok(Number(atServer) > 0 && Number(pooled) > Number(atServer));
    const { rows } = await pool.query("SHOW statement_timeout");
    assert.deepEqual(rows, [{ statement_timeout: `${Number(atServer) / 1_000}s` }]);
    const client = await connectToServer(one.url, {});
    t.after(() => client.end());
    assert.deepEqual((await client.query("SHOW statement_timeout")).rows, rows);
  });
});
