// Claiming a ghost's store while another process still works on it.
import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import type { Pool, QueryConfig } from "pg";
import { createStore, loadStore } from "../../../../src/bridge/crypto/machines.ts";
import { ContentKeys } from "../../../../src/bridge/ledger/content-keys.ts";
import { createCryptoStore, layOutCryptoStore } from "../../../../src/bridge/ledger/crypto-stores.ts";
import { systemClock, systemRandom } from "../../../../src/domain/clock.ts";
import { storeKey } from "../../../support/crypto-world.ts";
import { testDatabase } from "../../../support/database.ts";
import { ghost } from "../../../support/ledger.ts";

const IDENTITY = { curve25519: "curve", ed25519: "ed" };
const DEVICE = "DEVICE";

async function finishedStore(t: TestContext) {
  const { pool } = await testDatabase(t);
  const storeKeys = ContentKeys.parse(storeKey(1));
  const on = { pool, storeKeys, clock: systemClock, random: systemRandom };
  const made = await createStore(on, ghost(), DEVICE);
  assert.ok(made.kind === "claimed");
  const { fence, key } = made.store;
  const write = { ghost: ghost(), fence, records: [] };
  await layOutCryptoStore(pool, write, { layout: ["as made"], identity: IDENTITY });
  /** The pool of a process between whose look and whose claim something happens, once. */
  const interrupted = (meanwhile: () => Promise<unknown>): Pool => {
    let once: typeof meanwhile | undefined = meanwhile;
    const query = async (statement: QueryConfig) => {
      const result = await pool.query(statement);
      const now = statement.name === "crypto_store_find" ? once : undefined;
      if (now !== undefined) once = undefined;
      await now?.();
      return result;
    };
    return Object.assign(Object.create(pool), { query }) as Pool;
  };
  return { on, pool, key, write, interrupted };
}

describe("claiming a store", () => {
  it("a store whose layout changes while it is claimed is opened with its new layout [ENC-2]", async (t) => {
    const { on, pool, key, write, interrupted } = await finishedStore(t);
    const upgrade = () => layOutCryptoStore(pool, write, { layout: ["upgraded"], identity: IDENTITY });
    const claim = await loadStore({ ...on, pool: interrupted(upgrade) }, ghost(), DEVICE);
    assert.ok(claim.kind === "claimed");
    assert.deepEqual(claim.store, {
      ghost: ghost(),
      deviceId: DEVICE,
      key,
      fence: `${Number(write.fence) + 1}`,
      layout: ["upgraded"],
      identity: IDENTITY,
    });
    // Whoever lays it out after that is refused.
    await assert.rejects(upgrade(), { code: "lease_lost" });
  });

  it("a store that another process seals anew while it is claimed keeps its key, sealed by the newest [ENC-2]", async (t) => {
    const { on, key, interrupted } = await finishedStore(t);
    const rotated = { ...on, storeKeys: ContentKeys.parse(`${storeKey(2)}\n${storeKey(1)}`) };
    const rotate = () => loadStore(rotated, ghost(), DEVICE);
    const early = await loadStore({ ...on, pool: interrupted(rotate) }, ghost(), DEVICE);
    // It has not got the new key: to it the store is another's, and it writes nothing.
    assert.equal(early.kind, "foreign");
    const claim = await loadStore({ ...rotated, storeKeys: ContentKeys.parse(storeKey(2)) }, ghost(), DEVICE);
    assert.ok(claim.kind === "claimed");
    assert.deepEqual(claim.store.key, key);
  });

  it("a store that is made anew for another device while it is claimed is foreign [ENC-2]", async (t) => {
    const { on, pool, interrupted } = await finishedStore(t);
    const reset = async () => {
      await pool.query("DELETE FROM bridge_crypto_stores");
      const store = { ghost: ghost(), deviceId: "ANOTHER", sealedKey: Buffer.from("sealed") };
      const fence = await createCryptoStore(pool, store, 0);
      assert.ok(fence !== undefined);
      await layOutCryptoStore(
        pool,
        { ghost: ghost(), fence, records: [] },
        { layout: [], identity: IDENTITY },
      );
    };
    const claim = await loadStore({ ...on, pool: interrupted(reset) }, ghost(), DEVICE);
    assert.equal(claim.kind, "foreign");
    assert.deepEqual((await pool.query("SELECT fence::int FROM bridge_crypto_stores")).rows, [{ fence: 1 }]);
  });
});
