// The ghosts' cryptographic stores, one a ghost: their keys, their layouts, their fences, and their records.
// Invariants: opening a store raises its fence; a finished store is never begun anew; every write of records carries the
// fence and locks the store's row in the statement that writes, so that it is either committed before the next process
// reads, or touches no row; the records of a write are all written or none.
import type { Pool } from "pg";
import type { GhostMxid } from "../../domain/identifiers.ts";
import { columnsOf, inTransaction, type Queryable, statement, toTime } from "./postgres.ts";

/** Version, object stores and indices of a machine's databases. The ledger does not interpret it. */
export type StoreLayout = readonly unknown[];

export type DeviceIdentity = { readonly curve25519: string; readonly ed25519: string };

export interface CryptoStoreRow {
  readonly deviceId: string;
  readonly sealedKey: Buffer;
  /** Of the finished store; undefined while it is being made. */
  readonly identity: DeviceIdentity | undefined;
  readonly layout: StoreLayout;
}

/** The store's identity keys as one value; NULL until the store is finished. */
export const IDENTITY = `CASE WHEN curve25519 IS NOT NULL
  THEN json_build_object('curve25519', curve25519, 'ed25519', ed25519) END`;

const STORE = `device_id AS "deviceId", sealed_key AS "sealedKey", databases AS layout, ${IDENTITY} AS identity`;

const FIND = statement<CryptoStoreRow>("crypto_store_find")`
  SELECT ${STORE} FROM bridge_crypto_stores WHERE ghost_mxid = $1`;

export const findCryptoStore = (on: Queryable, ghost: GhostMxid) => FIND.first(on, [ghost]);

// A store that was never finished is overwritten: its device was never published.
const CREATE = statement<{ fence: string }>("crypto_store_create")`
  INSERT INTO bridge_crypto_stores AS store (ghost_mxid, device_id, sealed_key, created_at)
  VALUES ($1, $2, $3, $4)
  ON CONFLICT (ghost_mxid) DO UPDATE
    SET device_id = $2, sealed_key = $3, created_at = $4, fence = store.fence + 1
    WHERE store.curve25519 IS NULL
  RETURNING fence`;

/** Begins a new store; returns its fence, or undefined when a finished store exists. */
export async function createCryptoStore(
  on: Queryable,
  store: { readonly ghost: GhostMxid; readonly deviceId: string; readonly sealedKey: Buffer },
  now: number,
): Promise<string | undefined> {
  const values = [store.ghost, store.deviceId, store.sealedKey, toTime(now)];
  return (await CREATE.first(on, values))?.fence;
}

// Returns the layout of this moment: before the fence was raised, another process may have changed it.
const CLAIM = statement<CryptoStoreRow & { fence: string }>("crypto_store_claim")`
  UPDATE bridge_crypto_stores SET fence = fence + 1, sealed_key = $4
  WHERE ghost_mxid = $1 AND device_id = $2 AND sealed_key = $3 AND curve25519 IS NOT NULL
  RETURNING fence, ${STORE}`;

/** Raises the fence of a finished store, and stores its newly sealed key; undefined when it is not as it was `found` any more. */
export const claimCryptoStore = (
  on: Queryable,
  ghost: GhostMxid,
  found: Pick<CryptoStoreRow, "deviceId" | "sealedKey">,
  sealedKey: Buffer,
) => CLAIM.first(on, [ghost, found.deviceId, found.sealedKey, sealedKey]);

// Each member of an encrypted room becomes one, and the library, which reads them all one by one, deletes none.
const FORGET_TRACKED = statement("crypto_store_forget_tracked")`
  WITH tracked AS (
    SELECT FROM bridge_crypto_records WHERE ghost_mxid = $1 AND object_store = 'tracked_users' LIMIT $2
  )
  DELETE FROM bridge_crypto_records
  WHERE ghost_mxid = $1 AND object_store = 'tracked_users' AND (SELECT count(*) FROM tracked) = $2
  RETURNING 1`;

/**
 * Forgets whose devices a store follows when these are too many: who is still in a room is followed again before the next
 * answer there. False when nothing was forgotten. Only under the fence of the store's present holder.
 */
export const forgetTrackedUsers = async (on: Queryable, ghost: GhostMxid, most: number): Promise<boolean> =>
  (await FORGET_TRACKED.rows(on, [ghost, most + 1])).length > 0;

export interface CryptoRecord {
  readonly objectStore: string;
  /** Bytes that sort as the keys do. */
  readonly key: Buffer;
  /** Undefined: there is no such record. */
  readonly value: Buffer | undefined;
  /** The record's key in the object store's index, where it has one. */
  readonly indexKey: Buffer | undefined;
  /** The day of its last use, counted from the Unix epoch; undefined for a record that is never deleted by age. */
  readonly usedDay: number | undefined;
}

const DAY_MS = 24 * 60 * 60 * 1_000;

export const toDay = (epochMs: number): number => Math.floor(epochMs / DAY_MS);

export interface CryptoWrite {
  readonly ghost: GhostMxid;
  readonly fence: string;
  readonly records: readonly CryptoRecord[];
}

export type KeyRange = { readonly from: Buffer; readonly to: Buffer };

const RECORD = `object_store AS "objectStore", record_key AS key, value, index_key AS "indexKey", used_day AS "usedDay"`;

const GET = statement<CryptoRecord>("crypto_record")`
  SELECT ${RECORD} FROM bridge_crypto_records
  WHERE ghost_mxid = $1 AND object_store = $2 AND record_key = $3`;

export const cryptoRecord = (on: Queryable, ghost: GhostMxid, objectStore: string, key: Buffer) =>
  GET.first(on, [ghost, objectStore, key]);

const recordsBy = (column: string, order: string) => statement<CryptoRecord>(`crypto_records_by_${column}`)`
  SELECT ${RECORD} FROM bridge_crypto_records
  WHERE ghost_mxid = $1 AND object_store = $2 AND ${column} >= $3 AND ${column} < $4
  ORDER BY ${order} LIMIT $5`;
const RANGES = {
  key: recordsBy("record_key", "record_key"),
  indexKey: recordsBy("index_key", "index_key, record_key"),
};

export function cryptoRecords(
  on: Queryable,
  ghost: GhostMxid,
  objectStore: string,
  by: keyof typeof RANGES,
  { from, to }: KeyRange,
  limit: number,
) {
  return RANGES[by].rows(on, [ghost, objectStore, from, to, limit]);
}

const STORE_HELD = `
  SELECT store.ghost_mxid
  FROM unnest($1::text[], $2::bigint[]) AS write (ghost_mxid, fence)
  JOIN bridge_crypto_stores AS store USING (ghost_mxid, fence)
  FOR SHARE OF store`;

const WRITE = statement<{ ghost_mxid: string }>("crypto_write")`
  WITH held AS (${STORE_HELD}), deleted AS (
    DELETE FROM bridge_crypto_records AS record
    USING unnest($9::int[], $10::text[], $11::bytea[]) AS gone (writer, object_store, record_key), held
    WHERE held.ghost_mxid = ($1::text[])[gone.writer]
      AND record.ghost_mxid = held.ghost_mxid
      AND record.object_store = gone.object_store AND record.record_key = gone.record_key
  ), written AS (
    INSERT INTO bridge_crypto_records (ghost_mxid, object_store, record_key, value, index_key, used_day)
    SELECT held.ghost_mxid, put.object_store, put.record_key, put.value, put.index_key, put.used_day
    FROM unnest($3::int[], $4::text[], $5::bytea[], $6::bytea[], $7::bytea[], $8::int[])
      AS put (writer, object_store, record_key, value, index_key, used_day)
    JOIN held ON held.ghost_mxid = ($1::text[])[put.writer]
    ON CONFLICT (ghost_mxid, object_store, record_key) DO UPDATE
      SET value = excluded.value, index_key = excluded.index_key, used_day = excluded.used_day
  )
  SELECT ghost_mxid FROM held`;

/** Writes for several ghosts, each at most once. Returns those whose fence matched; for the others nothing was written. */
export async function writeCryptoRecords(on: Queryable, writes: readonly CryptoWrite[]) {
  const all = writes.flatMap(({ records }, at) => records.map((record) => ({ ...record, writer: at + 1 })));
  const put = all.filter(({ value }) => value !== undefined);
  const gone = all.filter(({ value }) => value === undefined);
  const held = await WRITE.rows(on, [
    ...columnsOf(writes, "ghost", "fence"),
    ...columnsOf(put, "writer", "objectStore", "key", "value", "indexKey", "usedDay"),
    ...columnsOf(gone, "writer", "objectStore", "key"),
  ]);
  return new Set(held.map((row) => row.ghost_mxid));
}

const LAY_OUT = statement("crypto_store_lay_out")`
  UPDATE bridge_crypto_stores SET databases = $3, curve25519 = $4, ed25519 = $5
  WHERE ghost_mxid = $1 AND fence = $2 RETURNING 1`;

/** Writes a store's identity and layout with their records, which finishes it. @throws DrawbridgeError `lease_lost` */
export async function layOutCryptoStore(
  pool: Pool,
  write: CryptoWrite,
  store: { readonly layout: StoreLayout; readonly identity: DeviceIdentity },
): Promise<void> {
  const { ghost, fence } = write;
  const { curve25519, ed25519 } = store.identity;
  await inTransaction(pool, "BEGIN", async (client) => {
    const values = [ghost, fence, JSON.stringify(store.layout), curve25519, ed25519];
    await LAY_OUT.held(client, values, `the store of ${ghost}`);
    return { result: undefined, sent: writeCryptoRecords(client, [write]) };
  });
}

const DELETE_RANGE = statement("crypto_records_delete")`
  WITH held AS (${STORE_HELD}), deleted AS (
    DELETE FROM bridge_crypto_records AS record USING held
    WHERE record.ghost_mxid = held.ghost_mxid AND record.object_store = $3
      AND record.record_key >= $4 AND record.record_key < $5
  )
  SELECT ghost_mxid FROM held`;

/** Deletes the records of a range of keys. @throws DrawbridgeError `lease_lost` */
export const deleteCryptoRecords = (
  on: Queryable,
  { ghost, fence }: Pick<CryptoWrite, "ghost" | "fence">,
  objectStore: string,
  { from, to }: KeyRange,
) => DELETE_RANGE.held(on, [[ghost], [fence], objectStore, from, to], `the store of ${ghost}`);
