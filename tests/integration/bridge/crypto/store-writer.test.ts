import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Pool } from "pg";
import { StoreWriter } from "../../../../src/bridge/crypto/store-writer.ts";
import {
  createCryptoStore,
  findCryptoStore,
  layOutCryptoStore,
} from "../../../../src/bridge/ledger/crypto-stores.ts";
import type { Queryable } from "../../../../src/bridge/ledger/postgres.ts";
import { systemClock } from "../../../../src/domain/clock.ts";
import type { GhostMxid } from "../../../../src/domain/identifiers.ts";
import { testDatabase } from "../../../support/database.ts";
import { finishedStore, IDENTITY, record, stored } from "../../../support/ledger.ts";

const ONE = "@agent_one:a.test" as GhostMxid;
const TWO = "@agent_two:a.test" as GhostMxid;

/** Counts statements, and lets them through one at a time when told to. */
function gated(pool: Pool) {
  let statements = 0;
  let failures = 0;
  let gate: Promise<void> = Promise.resolve();
  const query = async (...args: unknown[]) => {
    statements++;
    await gate;
    if (failures > 0) {
      failures--;
      throw new Error("the connection broke");
    }
    return await (pool.query as (...given: unknown[]) => Promise<unknown>)(...args);
  };
  return {
    on: { query } as unknown as Queryable,
    count: () => statements,
    fail: (times: number) => {
      failures = times;
    },
    hold: () => {
      const { promise, resolve } = Promise.withResolvers<void>();
      gate = promise;
      return resolve;
    },
  };
}

describe("StoreWriter and the tables of stores", () => {
  it("records that come while a statement runs go with the next one, of all ghosts together, the last value of each", async (t) => {
    const { pool } = await testDatabase(t);
    const [one, two] = [await finishedStore(pool, ONE), await finishedStore(pool, TWO)];
    const gate = gated(pool);
    const writer = new StoreWriter(gate.on, systemClock);
    const open = gate.hold();
    const writes = [writer.write(one, [record("a", "1"), record("b", "1")])];
    for (let n = 2; n <= 20; n++) writes.push(writer.write(one, [record("a", String(n))]));
    writes.push(writer.write(two, [record("a", "two")]), writer.write(one, [record("b")]));
    writes.push(writer.write(one, []));
    open();
    await Promise.all(writes);
    assert.equal(gate.count(), 2);
    assert.deepEqual(await stored(pool, ONE), { a: "20" });
    assert.deepEqual(await stored(pool, TWO), { a: "two" });
  });

  it("a holder that was shut out writes nothing, now and later, and fails no other in the same statement", async (t) => {
    const { pool } = await testDatabase(t);
    const old = await finishedStore(pool, ONE);
    const two = await finishedStore(pool, TWO);
    const writer = new StoreWriter(pool, systemClock);
    await writer.write(old, [record("a", "old")]);
    await pool.query("UPDATE bridge_crypto_stores SET fence = fence + 1 WHERE ghost_mxid = $1", [ONE]);
    const now = { ghost: ONE, fence: `${Number(old.fence) + 1}` };
    const outcomes = await Promise.allSettled([
      writer.write(two, [record("a", "two")]),
      writer.write(old, [record("a", "stale")]),
      writer.write(now, [record("b", "now")]),
    ]);
    assert.deepEqual(
      outcomes.map(({ status }) => status),
      ["fulfilled", "rejected", "fulfilled"],
    );
    await assert.rejects(writer.write(old, []), { code: "lease_lost" });
    await assert.rejects(writer.write(old, [record("c", "stale")]), { code: "lease_lost" });
    assert.deepEqual(await stored(pool, ONE), { a: "old", b: "now" });
  });

  it("a statement that fails is retried; when every attempt fails, all its writers are rejected and nothing is written", async (t) => {
    const { pool } = await testDatabase(t);
    const one = await finishedStore(pool, ONE);
    const gate = gated(pool);
    const writer = new StoreWriter(gate.on, systemClock);
    gate.fail(2);
    await writer.write(one, [record("a", "1")]);
    gate.fail(4);
    const outcomes = await Promise.allSettled([
      writer.write(one, [record("a", "2")]),
      writer.write(one, [record("b", "2")]),
    ]);
    assert.deepEqual(
      outcomes.map((outcome) => outcome.status === "rejected" && (outcome.reason as { code: string }).code),
      ["database_unavailable", "database_unavailable"],
    );
    await assert.rejects(writer.write(one, [record("c", "3")]), { code: "database_unavailable" });
    assert.deepEqual(await stored(pool, ONE), { a: "1" });
  });

  it("a store is begun once: another is made only where none was finished", async (t) => {
    const { pool } = await testDatabase(t);
    const begin = () =>
      createCryptoStore(pool, { ghost: ONE, deviceId: "D", sealedKey: Buffer.from("x") }, 1_000);
    const first = await begin();
    const second = await begin();
    assert.ok(first !== undefined && second !== undefined && second > first);
    const write = { ghost: ONE, fence: first, records: [record("a", "1")] };
    await assert.rejects(layOutCryptoStore(pool, write, { layout: [], identity: IDENTITY }), {
      code: "lease_lost",
    });
    assert.equal((await findCryptoStore(pool, ONE))?.identity, undefined);
    await layOutCryptoStore(pool, { ...write, fence: second }, { layout: [], identity: IDENTITY });
    assert.equal(await begin(), undefined);
    assert.deepEqual(await stored(pool, ONE), { a: "1" });
  });
});
