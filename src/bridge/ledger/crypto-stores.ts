// The ghosts' cryptographic stores, one a ghost: their fences and their records.
// Invariants: opening a store raises its fence; every write carries its fence and locks the store's row in the
// statement that writes, so that it is either committed before the next process reads, or touches no row; the records
// of a write are all written or none.
import type { Pool } from "pg";
import type { GhostMxid } from "../../domain/identifiers.ts";
import {
  entities,
  inTransaction,
  leaseLost,
  type Queryable,
  rows,
  type Statement,
  toTime,
} from "./postgres.ts";

/** Version, object stores and indices of a machine's databases. The ledger does not interpret it. */
export type StoreLayout = readonly unknown[];

/** Public identity keys of a ghost's device, base64. */
export interface DeviceIdentity {
  readonly curve25519: string;
  readonly ed25519: string;
}

export interface CryptoStoreRow {
  readonly deviceId: string;
  readonly sealedKey: Buffer;
  /** Of the finished store; undefined while it is being made. */
  readonly identity: DeviceIdentity | undefined;
  readonly layout: StoreLayout;
}

export interface CryptoRecord {
  readonly objectStore: string;
  readonly key: string;
  /** Undefined: the record is deleted. */
  readonly value: Buffer | undefined;
}

/** Records of one ghost, each key once. */
export interface CryptoWrite {
  readonly ghost: GhostMxid;
  readonly fence: bigint;
  readonly records: readonly CryptoRecord[];
}

/** The store's identity keys as one column; NULL until the store is finished. */
export const IDENTITY = `CASE WHEN curve25519 IS NOT NULL
  THEN json_build_object('curve25519', curve25519, 'ed25519', ed25519) END AS identity`;

const STORE = `device_id AS "deviceId", sealed_key AS "sealedKey", databases AS layout, ${IDENTITY}`;

const FIND: Statement = {
  name: "crypto_store_find",
  text: `SELECT ${STORE} FROM bridge_crypto_stores WHERE ghost_mxid = $1`,
};

/** Reads a store, finished or not, without raising its fence. */
export async function findCryptoStore(on: Queryable, ghost: GhostMxid): Promise<CryptoStoreRow | undefined> {
  return (await entities<CryptoStoreRow>(on, FIND, [ghost]))[0];
}

const CREATE: Statement = {
  name: "crypto_store_create",
  // A store that was never finished is overwritten: its device was never published.
  text: `
  INSERT INTO bridge_crypto_stores AS store (ghost_mxid, device_id, sealed_key, created_at)
  VALUES ($1, $2, $3, $4)
  ON CONFLICT (ghost_mxid) DO UPDATE
    SET device_id = $2, sealed_key = $3, created_at = $4, fence = store.fence + 1
    WHERE store.curve25519 IS NULL
  RETURNING fence::text`,
};

/** Begins a new store; returns its fence, or undefined when a finished store exists. */
export async function createCryptoStore(
  on: Queryable,
  store: { readonly ghost: GhostMxid; readonly deviceId: string; readonly sealedKey: Buffer },
  now: number,
): Promise<bigint | undefined> {
  const values = [store.ghost, store.deviceId, store.sealedKey, toTime(now)];
  const [row] = await rows<{ fence: string }>(on, CREATE, values);
  return row === undefined ? undefined : BigInt(row.fence);
}

const CLAIM: Statement = {
  name: "crypto_store_claim",
  // Returns the layout of this moment: before the fence was raised, another process may have changed it.
  text: `
  UPDATE bridge_crypto_stores SET fence = fence + 1, sealed_key = $4
  WHERE ghost_mxid = $1 AND device_id = $2 AND sealed_key = $3 AND curve25519 IS NOT NULL
  RETURNING fence, ${STORE}`,
};

/**
 * Raises the fence of a finished store, and stores its newly sealed key.
 * @param found the store as it was read before; the result is undefined when the store has changed since
 */
export async function claimCryptoStore(
  on: Queryable,
  ghost: GhostMxid,
  found: Pick<CryptoStoreRow, "deviceId" | "sealedKey">,
  sealedKey: Buffer,
): Promise<(CryptoStoreRow & { readonly fence: bigint }) | undefined> {
  const values = [ghost, found.deviceId, found.sealedKey, sealedKey];
  const [store] = await entities<CryptoStoreRow & { fence: string }>(on, CLAIM, values);
  return store && { ...store, fence: BigInt(store.fence) };
}

const RECORDS_PER_PAGE = 2_000;

const RECORDS: Statement = {
  name: "crypto_records",
  text: `
  SELECT object_store, record_key, value FROM bridge_crypto_records
  WHERE ghost_mxid = $1 AND (object_store, record_key) > ($2, $3)
  ORDER BY object_store, record_key LIMIT ${RECORDS_PER_PAGE}`,
};

/** All records of a store, in pages. Call it after the fence was raised, when no other process can write them. */
export async function* cryptoRecords(
  on: Queryable,
  ghost: GhostMxid,
): AsyncGenerator<readonly { objectStore: string; key: string; value: Buffer }[]> {
  type Row = { object_store: string; record_key: string; value: Buffer };
  let after = ["", ""];
  for (;;) {
    const page = await rows<Row>(on, RECORDS, [ghost, ...after]);
    const last = page.at(-1);
    if (last === undefined) return;
    yield page.map((row) => ({ objectStore: row.object_store, key: row.record_key, value: row.value }));
    if (page.length < RECORDS_PER_PAGE) return;
    after = [last.object_store, last.record_key];
  }
}

const WRITE: Statement = {
  name: "crypto_write",
  text: `
  WITH held AS (
    SELECT store.ghost_mxid
    FROM unnest($1::text[], $2::bigint[]) AS write (ghost_mxid, fence)
    JOIN bridge_crypto_stores AS store USING (ghost_mxid, fence)
    FOR SHARE OF store
  ), deleted AS (
    DELETE FROM bridge_crypto_records AS record
    USING unnest($7::int[], $8::text[], $9::text[]) AS gone (writer, object_store, record_key), held
    WHERE held.ghost_mxid = ($1::text[])[gone.writer]
      AND record.ghost_mxid = held.ghost_mxid
      AND record.object_store = gone.object_store AND record.record_key = gone.record_key
  ), written AS (
    INSERT INTO bridge_crypto_records (ghost_mxid, object_store, record_key, value)
    SELECT held.ghost_mxid, put.object_store, put.record_key, put.value
    FROM unnest($3::int[], $4::text[], $5::text[], $6::bytea[]) AS put (writer, object_store, record_key, value)
    JOIN held ON held.ghost_mxid = ($1::text[])[put.writer]
    ON CONFLICT (ghost_mxid, object_store, record_key) DO UPDATE SET value = excluded.value
  )
  SELECT ghost_mxid FROM held`,
};

/**
 * Writes the changes of several ghosts' machines in one statement; each ghost at most once.
 * Returns the ghosts whose fence still matched; for the others nothing was written.
 */
export async function writeCryptoRecords(
  on: Queryable,
  writes: readonly CryptoWrite[],
): Promise<ReadonlySet<string>> {
  const put: [number[], string[], string[], Buffer[]] = [[], [], [], []];
  const gone: [number[], string[], string[]] = [[], [], []];
  for (const [index, write] of writes.entries()) {
    for (const { objectStore, key, value } of write.records) {
      const into = value === undefined ? gone : put;
      into[0].push(index + 1);
      into[1].push(objectStore);
      into[2].push(key);
      if (value !== undefined) put[3].push(value);
    }
  }
  const held = await rows<{ ghost_mxid: string }>(on, WRITE, [
    writes.map((write) => write.ghost),
    writes.map((write) => String(write.fence)),
    ...put,
    ...gone,
  ]);
  return new Set(held.map((row) => row.ghost_mxid));
}

const LAY_OUT: Statement = {
  name: "crypto_store_lay_out",
  text: `
  UPDATE bridge_crypto_stores SET databases = $3, curve25519 = $4, ed25519 = $5
  WHERE ghost_mxid = $1 AND fence = $2`,
};

const CLEAR: Statement = {
  name: "crypto_records_clear",
  text: `DELETE FROM bridge_crypto_records WHERE ghost_mxid = $1`,
};

/**
 * Replaces a whole store: its identity, its layout and every record. This finishes a new store.
 * @throws DrawbridgeError `lease_lost`
 */
export async function replaceCryptoStore(
  pool: Pool,
  write: CryptoWrite,
  store: { readonly layout: StoreLayout; readonly identity: DeviceIdentity },
): Promise<void> {
  const { ghost, fence } = write;
  const { curve25519, ed25519 } = store.identity;
  await inTransaction(pool, "BEGIN", async (client) => {
    const values = [ghost, String(fence), JSON.stringify(store.layout), curve25519, ed25519];
    const laidOut = await client.query({ ...LAY_OUT, values });
    if (laidOut.rowCount !== 1) throw leaseLost(`the store of ${ghost}`);
    await rows(client, CLEAR, [ghost]);
    return { result: undefined, sent: writeCryptoRecords(client, [write]) };
  });
}
