// The records of the ghosts' cryptographic stores, written under the store's fence.
// Invariants: every write carries its fence and locks the store's row in the statement that writes, so that it is either
// committed before the next process reads, or touches no row; the records of a write are all written or none.
import type { Pool } from "pg";
import type { GhostMxid } from "../../domain/identifiers.ts";
import type { DeviceIdentity, StoreLayout } from "./crypto-stores.ts";
import {
  columnsOf,
  entities,
  inTransaction,
  leaseLost,
  type Queryable,
  rows,
  statement,
} from "./postgres.ts";

export interface CryptoRecord {
  readonly objectStore: string;
  /** Bytes that sort as the keys do. */
  readonly key: Buffer;
  /** Undefined: there is no such record. */
  readonly value: Buffer | undefined;
  /** Its key in the object store's index, where it has one. */
  readonly indexKey: Buffer | undefined;
  /** The day of its last use, counted from the Unix epoch; undefined for a record that is never deleted by age. */
  readonly usedDay: number | undefined;
}

const DAY_MS = 24 * 60 * 60 * 1_000;

export const toDay = (epochMs: number): number => Math.floor(epochMs / DAY_MS);

export interface CryptoWrite {
  readonly ghost: GhostMxid;
  readonly fence: bigint;
  readonly records: readonly CryptoRecord[];
}

/** Keys from `from` on and below `to`. */
export interface KeyRange {
  readonly from: Buffer;
  readonly to: Buffer;
}

const RECORD = `object_store AS "objectStore", record_key AS key, value, index_key AS "indexKey", used_day AS "usedDay"`;

const GET = statement("crypto_record")`
  SELECT ${RECORD} FROM bridge_crypto_records
  WHERE ghost_mxid = $1 AND object_store = $2 AND record_key = $3`;

export async function cryptoRecord(
  on: Queryable,
  ghost: GhostMxid,
  objectStore: string,
  key: Buffer,
): Promise<CryptoRecord | undefined> {
  return (await entities<CryptoRecord>(on, GET, [ghost, objectStore, key]))[0];
}

const RANGES = {
  key: statement("crypto_records_by_key")`
    SELECT ${RECORD} FROM bridge_crypto_records
    WHERE ghost_mxid = $1 AND object_store = $2 AND record_key >= $3 AND record_key < $4
    ORDER BY record_key LIMIT $5`,
  indexKey: statement("crypto_records_by_index")`
    SELECT ${RECORD} FROM bridge_crypto_records
    WHERE ghost_mxid = $1 AND object_store = $2 AND index_key >= $3 AND index_key < $4
    ORDER BY index_key, record_key LIMIT $5`,
};

export function cryptoRecords(
  on: Queryable,
  ghost: GhostMxid,
  objectStore: string,
  by: keyof typeof RANGES,
  { from, to }: KeyRange,
  limit: number,
): Promise<CryptoRecord[]> {
  return entities<CryptoRecord>(on, RANGES[by], [ghost, objectStore, from, to, limit]);
}

const STORE_HELD = `
  SELECT store.ghost_mxid
  FROM unnest($1::text[], $2::bigint[]) AS write (ghost_mxid, fence)
  JOIN bridge_crypto_stores AS store USING (ghost_mxid, fence)
  FOR SHARE OF store`;

const WRITE = statement("crypto_write")`
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

/**
 * Writes the changes of several ghosts' machines in one statement; each ghost at most once.
 * Returns the ghosts whose fence still matched; for the others nothing was written.
 */
export async function writeCryptoRecords(
  on: Queryable,
  writes: readonly CryptoWrite[],
): Promise<ReadonlySet<string>> {
  const all = writes.flatMap((write, index) =>
    write.records.map((record) => ({ ...record, writer: index + 1 })),
  );
  const put = all.filter(({ value }) => value !== undefined);
  const gone = all.filter(({ value }) => value === undefined);
  const held = await rows<{ ghost_mxid: string }>(on, WRITE, [
    writes.map(({ ghost }) => ghost),
    writes.map(({ fence }) => String(fence)),
    ...columnsOf(put, "writer", "objectStore", "key", "value", "indexKey", "usedDay"),
    ...columnsOf(gone, "writer", "objectStore", "key"),
  ]);
  return new Set(held.map((row) => row.ghost_mxid));
}

const LAY_OUT = statement("crypto_store_lay_out")`
  UPDATE bridge_crypto_stores SET databases = $3, curve25519 = $4, ed25519 = $5
  WHERE ghost_mxid = $1 AND fence = $2`;

/** Writes a store's identity and layout with their records, which finishes it. @throws DrawbridgeError `lease_lost` */
export async function layOutCryptoStore(
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
export async function deleteCryptoRecords(
  on: Queryable,
  { ghost, fence }: Pick<CryptoWrite, "ghost" | "fence">,
  objectStore: string,
  { from, to }: KeyRange,
): Promise<void> {
  const held = await rows(on, DELETE_RANGE, [[ghost], [String(fence)], objectStore, from, to]);
  if (held.length !== 1) throw leaseLost(`the store of ${ghost}`);
}
