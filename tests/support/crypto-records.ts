// Records of cryptographic stores, as tests write and read them.
import type { Pool } from "pg";
import { ALL_KEYS } from "../../src/bridge/crypto/idb-keys.ts";
import type { StoreHolder } from "../../src/bridge/crypto/store-writer.ts";
import {
  type CryptoRecord,
  cryptoRecords,
  layOutCryptoStore,
} from "../../src/bridge/ledger/crypto-records.ts";
import { createCryptoStore } from "../../src/bridge/ledger/crypto-stores.ts";
import type { GhostMxid } from "../../src/domain/identifiers.ts";

export const IDENTITY = { curve25519: "C", ed25519: "E" };

/** A finished store without records. */
export async function finishedStore(pool: Pool, ghost: GhostMxid): Promise<StoreHolder> {
  const fence = await createCryptoStore(
    pool,
    { ghost, deviceId: "D", sealedKey: Buffer.from("sealed") },
    1_000,
  );
  if (fence === undefined) throw new Error("there is one already");
  await layOutCryptoStore(pool, { ghost, fence, records: [] }, { layout: [], identity: IDENTITY });
  return { ghost, fence };
}

/** A record of the object store `core`; without a value it is deleted. */
export const record = (key: string, value?: string, more: Partial<CryptoRecord> = {}): CryptoRecord => ({
  objectStore: "core",
  key: Buffer.from(key),
  value: value === undefined ? undefined : Buffer.from(value),
  indexKey: undefined,
  usedDay: undefined,
  ...more,
});

/** Keys and values of an object store. */
export async function stored(
  pool: Pool,
  ghost: GhostMxid,
  objectStore = "core",
): Promise<Record<string, string>> {
  const found = await cryptoRecords(pool, ghost, objectStore, "key", ALL_KEYS, 100_000);
  return Object.fromEntries(found.map(({ key, value }) => [key.toString(), String(value)]));
}

/** A pool of which each statement may be counted, held up or refused before it reaches the database. */
export function interrupted(pool: Pool, before: (statement: string) => unknown): Pool {
  const query = async (statement: { readonly name: string }) => {
    await before(statement.name);
    return await (pool.query as (given: unknown) => Promise<unknown>)(statement);
  };
  return Object.assign(Object.create(pool), { query }) as Pool;
}
