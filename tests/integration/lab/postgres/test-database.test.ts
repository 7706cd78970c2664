// The test databases themselves: isolation, and that a leak is not overlooked.
import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import pg from "pg";
import { testDatabase } from "../../../support/database.ts";

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
    const seen = await other.pool.query("SELECT to_regclass('only_here') AS found");
    assert.equal(seen.rows[0].found, null);
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
