// The test databases themselves: isolation, and that a leak is not overlooked.
import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import pg from "pg";
import { databaseText, testDatabase } from "../../../support/database.ts";

/** Collects what a test would run after itself, to run it by hand. */
function deferred() {
  const hooks: (() => unknown)[] = [];
  const context = { after: (hook: () => unknown) => void hooks.push(hook) } as unknown as TestContext;
  return {
    context,
    runHooks: async () => {
      for (const hook of hooks) await hook();
    },
  };
}

describe("a test database", () => {
  it("two test databases are migrated and do not see each other's tables", async (t) => {
    const [one, other] = await Promise.all([testDatabase(t), testDatabase(t)]);
    await one.pool.query("CREATE TABLE only_here (id int)");
    const read = await other.pool.query("SELECT to_regclass('only_here') AS found");
    assert.equal(read.rows[0].found, null);
    const tables = await other.pool.query(
      "SELECT count(*)::int AS tables FROM information_schema.tables WHERE table_schema NOT IN ('pg_catalog', 'information_schema')",
    );
    assert.ok(tables.rows[0].tables > 0);
  });

  it("an unmigrated test database is empty", async (t) => {
    const { pool } = await testDatabase(t, { migrated: false });
    const tables = await pool.query(
      "SELECT count(*)::int AS tables FROM information_schema.tables WHERE table_schema NOT IN ('pg_catalog', 'information_schema')",
    );
    assert.equal(tables.rows[0].tables, 0);
  });

  it("a test database is given to a later test, with the rows and numbers of a new one", async () => {
    const contents = async (pool: pg.Pool) => [
      ...(await databaseText(async (text) => (await pool.query(text)).rows)),
    ];
    const { context, runHooks } = deferred();
    const first = await testDatabase(context, { poolSize: 3 });
    const before = await contents(first.pool);
    const [number] = (await first.pool.query("SELECT nextval('bridge_process') AS number")).rows;
    await first.pool.query("UPDATE bridge_database_marker SET count = 7");
    await first.pool.query("INSERT INTO bridge_rooms (room_id) VALUES ('!r')");
    await first.pool.query("SET enable_seqscan = on; SELECT pg_advisory_lock(1)");
    assert.notDeepEqual(await contents(first.pool), before);
    await runHooks();
    const { context: later, runHooks: endLater } = deferred();
    const second = await testDatabase(later, { poolSize: 3 });
    assert.equal(second.name, first.name);
    assert.deepEqual(await contents(second.pool), before);
    assert.deepEqual((await second.pool.query("SELECT nextval('bridge_process') AS number")).rows, [number]);
    const { rows } = await second.pool.query(
      `SELECT current_setting('enable_seqscan') AS setting,
         (SELECT count(*)::int FROM pg_locks l JOIN pg_database d ON d.oid = l.database
          WHERE d.datname = current_database() AND locktype = 'advisory') AS locks`,
    );
    assert.deepEqual(rows, [{ setting: "off", locks: 0 }]);
    await endLater();
  });

  for (const [change, text] of [
    ["the schema", "ALTER TABLE bridge_rooms ADD CHECK (room_id <> '')"],
    ["the statistics", "INSERT INTO bridge_rooms (room_id) VALUES ('!r'); ANALYZE bridge_rooms"],
    ["the size", "INSERT INTO bridge_rooms (room_id) SELECT '!' || n FROM generate_series(1, 20000) n"],
  ] as const) {
    it(`a test database of which a test has changed ${change} is given to no other test`, async () => {
      const { context, runHooks } = deferred();
      const first = await testDatabase(context, { poolSize: 4 });
      await first.pool.query(text);
      await runHooks();
      const { context: later, runHooks: endLater } = deferred();
      assert.notEqual((await testDatabase(later, { poolSize: 4 })).name, first.name);
      await endLater();
    });
  }

  it("a pool that a test leaves open fails the run", async () => {
    const { context, runHooks } = deferred();
    const { url } = await testDatabase(context);
    const leaked = new pg.Pool({ connectionString: url, application_name: "forgotten" });
    leaked.on("error", () => {});
    await leaked.query("SELECT 1");
    await assert.rejects(runHooks(), /leaked 1 database connection.*forgotten \(idle\)/);
    await leaked.end();
  });
});
