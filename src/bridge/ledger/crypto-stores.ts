// The ghosts' cryptographic stores, one a ghost: their keys, their layouts and their fences.
// Invariants: opening a store raises its fence; a finished store is never begun anew.
import type { GhostMxid } from "../../domain/identifiers.ts";
import { entities, type Queryable, rows, statement, toTime } from "./postgres.ts";

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

/** The store's identity keys as one value; NULL until the store is finished. */
export const IDENTITY = `CASE WHEN curve25519 IS NOT NULL
  THEN json_build_object('curve25519', curve25519, 'ed25519', ed25519) END`;

const STORE = `device_id AS "deviceId", sealed_key AS "sealedKey", databases AS layout, ${IDENTITY} AS identity`;

const FIND = statement("crypto_store_find")`SELECT ${STORE} FROM bridge_crypto_stores WHERE ghost_mxid = $1`;

export async function findCryptoStore(on: Queryable, ghost: GhostMxid): Promise<CryptoStoreRow | undefined> {
  return (await entities<CryptoStoreRow>(on, FIND, [ghost]))[0];
}

// A store that was never finished is overwritten: its device was never published.
const CREATE = statement("crypto_store_create")`
  INSERT INTO bridge_crypto_stores AS store (ghost_mxid, device_id, sealed_key, created_at)
  VALUES ($1, $2, $3, $4)
  ON CONFLICT (ghost_mxid) DO UPDATE
    SET device_id = $2, sealed_key = $3, created_at = $4, fence = store.fence + 1
    WHERE store.curve25519 IS NULL
  RETURNING fence::text`;

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

// Returns the layout of this moment: before the fence was raised, another process may have changed it.
const CLAIM = statement("crypto_store_claim")`
  UPDATE bridge_crypto_stores SET fence = fence + 1, sealed_key = $4
  WHERE ghost_mxid = $1 AND device_id = $2 AND sealed_key = $3 AND curve25519 IS NOT NULL
  RETURNING fence, ${STORE}`;

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
