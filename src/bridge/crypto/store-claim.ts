// Claims a ghost's store: raises its fence, and unseals its key.
// Invariants: a store's key is random, made once, and sealed for its ghost's device; a store that is another device's, or
// whose key no configured key unseals, is left unchanged; a key sealed by an older key is sealed by the first one anew.
import type { Pool } from "pg";
import type { Clock, Random } from "../../domain/clock.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import type { GhostMxid } from "../../domain/identifiers.ts";
import type { ContentKeys } from "../ledger/content-keys.ts";
import { claimCryptoStore, createCryptoStore, findCryptoStore } from "../ledger/crypto-stores.ts";
import { createLedgerPool } from "../ledger/postgres.ts";
import type { ClaimedStore } from "./machine.ts";

const STORE_KEY_BYTES = 32;
const LOADS_MAX = 5;

export interface ClaimDependencies {
  readonly pool: Pool;
  readonly storeKeys: ContentKeys;
  readonly clock: Clock;
  readonly random: Random;
}

export type Claim =
  | { readonly kind: "claimed"; readonly store: ClaimedStore }
  | { readonly kind: "no_store" }
  | { readonly kind: "store_exists" }
  /** The store is another device's, or no configured key unseals it. */
  | { readonly kind: "foreign" };

const CONNECTIONS = 2;

export function createStorePool(connectionString: string, name: string): Pool {
  const pool = createLedgerPool({ connectionString, max: CONNECTIONS, application_name: name });
  return pool.on("error", () => {});
}

const sealIdentity = (ghost: GhostMxid, deviceId: string) => `crypto store of ${ghost}, device ${deviceId}`;

export async function createStore(on: ClaimDependencies, ghost: GhostMxid, deviceId: string): Promise<Claim> {
  const key = on.random.bytes(STORE_KEY_BYTES);
  const sealedKey = on.storeKeys.seal(key.toString("base64"), sealIdentity(ghost, deviceId));
  const fence = await createCryptoStore(on.pool, { ghost, deviceId, sealedKey }, on.clock.now());
  if (fence === undefined) return { kind: "store_exists" };
  return { kind: "claimed", store: { ghost, deviceId, key, fence, layout: [], identity: undefined } };
}

function openKey(keys: ContentKeys, sealed: Buffer, identity: string): Buffer | undefined {
  try {
    return Buffer.from(keys.open(sealed, identity), "base64");
  } catch {
    return undefined;
  }
}

export async function loadStore(on: ClaimDependencies, ghost: GhostMxid, deviceId: string): Promise<Claim> {
  for (let attempt = 0; attempt < LOADS_MAX; attempt++) {
    const found = await findCryptoStore(on.pool, ghost);
    if (found?.identity === undefined) return { kind: "no_store" };
    if (found.deviceId !== deviceId) return { kind: "foreign" };
    const identity = sealIdentity(ghost, deviceId);
    const key = openKey(on.storeKeys, found.sealedKey, identity);
    if (key === undefined) return { kind: "foreign" };
    const sealed = on.storeKeys.isNewest(found.sealedKey)
      ? found.sealedKey
      : on.storeKeys.seal(key.toString("base64"), identity);
    const claimed = await claimCryptoStore(on.pool, ghost, found, sealed);
    // The store was reset or sealed anew meanwhile: it is read again.
    if (claimed === undefined) continue;
    const { fence, layout, identity: present } = claimed;
    return { kind: "claimed", store: { ghost, deviceId, key, fence, layout, identity: present } };
  }
  throw new DrawbridgeError("device_unavailable", `the store of ${ghost} changes while it is opened`, {
    hint: "Nothing: it is opened again by itself.",
  });
}
