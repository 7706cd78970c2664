// What the ledger knows of ghosts' cryptographic devices besides what the machines keep in their stores.
// Invariants: every write names the device it is about, so that nothing said of a device that was reset
// meanwhile touches the new one; an epoch only grows; a reset is one transaction, store and all.
import type { Pool } from "pg";
import { type GhostMxid, parseUserId, type RoomId } from "../../domain/identifiers.ts";
import type { DeviceStopReason } from "../crypto/device-types.ts";
import type { DeviceIdentity } from "../matrix/device-api.ts";
import { oneRow, rows, type Statement, toEpochMs, toTime } from "./statement.ts";
import { inTransaction } from "./transaction.ts";

/** A ghost's device as recorded. */
export interface RecordedDevice {
  readonly ghost: GhostMxid;
  readonly deviceId: string;
  /** Of its store; undefined when it has none. */
  readonly store:
    | {
        readonly deviceId: string;
        readonly epoch: bigint;
        readonly publishedAt: number | undefined;
        /** Undefined while the store was never finished. */
        readonly identity: DeviceIdentity | undefined;
      }
    | undefined;
  readonly stopped: { readonly reason: DeviceStopReason; readonly at: number } | undefined;
}

export interface GhostDeviceLedger {
  /** Undefined when the ghost has no device yet. */
  recordedDevice(ghost: GhostMxid): Promise<RecordedDevice | undefined>;
  recordedDevices(): Promise<readonly RecordedDevice[]>;
  /** Whether the homeserver ever had keys of this device. Such a device is never put again. */
  hadKeys(ghost: GhostMxid, deviceId: string): Promise<boolean>;
  /** Raises the epoch of the device's store and returns it; undefined when the device has no store. */
  raiseEpoch(ghost: GhostMxid, deviceId: string): Promise<bigint | undefined>;
  /** The homeserver has the device's keys. Keeps the first time. */
  devicePublished(ghost: GhostMxid, deviceId: string, now: number): Promise<void>;
  /** Why the device takes no part; undefined when it does. Keeps the first time of one reason. */
  deviceStopped(
    ghost: GhostMxid,
    deviceId: string,
    reason: DeviceStopReason | undefined,
    now: number,
  ): Promise<void>;
  /** Forgets the device with its store and gives the ghost a new device ID; false when it was not that device. */
  resetDevice(ghost: GhostMxid, deviceId: string, freshDeviceId: string): Promise<boolean>;
  /** Whether the room is known to be encrypted; no state of the room takes that back. */
  isRoomEncrypted(room: RoomId): Promise<boolean>;
}

const RECORDED = `
  SELECT g.ghost_mxid, g.device_id, g.device_stopped_reason AS reason, g.device_stopped_at AS stopped_at,
         s.device_id AS store_device_id, s.epoch, s.published_at, s.curve25519, s.ed25519
  FROM bridge_ghosts g LEFT JOIN bridge_crypto_stores s ON s.ghost_mxid = g.ghost_mxid`;

const RECORDED_DEVICE: Statement = {
  name: "recorded_device",
  text: `${RECORDED} WHERE g.ghost_mxid = $1`,
};

const RECORDED_DEVICES: Statement = {
  name: "recorded_devices",
  text: `${RECORDED} ORDER BY g.ghost_mxid COLLATE "C"`,
};

const HAD_KEYS: Statement = {
  name: "ghost_device_had_keys",
  text: `
  SELECT EXISTS (
    SELECT FROM bridge_crypto_stores
    WHERE ghost_mxid = $1 AND device_id = $2 AND published_at IS NOT NULL) AS had_keys`,
};

const RAISE_EPOCH: Statement = {
  name: "ghost_device_epoch",
  text: `
  UPDATE bridge_crypto_stores SET epoch = epoch + 1
  WHERE ghost_mxid = $1 AND device_id = $2 RETURNING epoch`,
};

const PUBLISHED: Statement = {
  name: "ghost_device_published",
  text: `
  UPDATE bridge_crypto_stores SET published_at = $3
  WHERE ghost_mxid = $1 AND device_id = $2 AND published_at IS NULL AND curve25519 IS NOT NULL`,
};

const STOPPED: Statement = {
  name: "ghost_device_stopped",
  text: `
  UPDATE bridge_ghosts SET
    device_stopped_reason = $3::text,
    device_stopped_at = CASE WHEN $3::text IS NULL THEN NULL ELSE $4::timestamptz END
  WHERE ghost_mxid = $1 AND device_id = $2 AND device_stopped_reason IS DISTINCT FROM $3::text`,
};

const RESET: Statement = {
  name: "ghost_device_reset",
  text: `
  UPDATE bridge_ghosts SET device_id = $3, to_device_since = NULL,
    device_stopped_reason = NULL, device_stopped_at = NULL
  WHERE ghost_mxid = $1 AND device_id = $2 RETURNING ghost_mxid`,
};

const FORGET_STORE: Statement = {
  name: "ghost_device_forget_store",
  text: `DELETE FROM bridge_crypto_stores WHERE ghost_mxid = $1`,
};

const FORGET_RECORDS: Statement = {
  name: "ghost_device_forget_records",
  text: `DELETE FROM bridge_crypto_records WHERE ghost_mxid = $1`,
};

/**
 * The store goes only if the ghost's row was still that device's. It goes before its records, in the order in which
 * writers lock them; and the records in a statement that sees what the last writer has left.
 */
function resetDevice(pool: Pool, ghost: GhostMxid, deviceId: string, fresh: string): Promise<boolean> {
  return inTransaction(pool, "BEGIN", async (client) => {
    const reset = await rows(client, RESET, [ghost, deviceId, fresh]);
    if (reset.length === 0) return { result: false };
    await rows(client, FORGET_STORE, [ghost]);
    return { result: true, sent: rows(client, FORGET_RECORDS, [ghost]) };
  });
}

const ROOM_ENCRYPTED: Statement = {
  name: "room_encrypted",
  text: `SELECT EXISTS (SELECT FROM bridge_rooms WHERE room_id = $1 AND encrypted) AS encrypted`,
};

interface Row {
  readonly ghost_mxid: string;
  readonly device_id: string;
  readonly reason: DeviceStopReason | null;
  readonly stopped_at: Date | null;
  readonly store_device_id: string | null;
  readonly epoch: string | null;
  readonly published_at: Date | null;
  readonly curve25519: string | null;
  readonly ed25519: string | null;
}

function deviceOf(row: Row): RecordedDevice | undefined {
  const ghost = parseUserId(row.ghost_mxid);
  if (ghost === undefined) return undefined;
  return {
    ghost: ghost as GhostMxid,
    deviceId: row.device_id,
    store:
      row.store_device_id === null || row.epoch === null
        ? undefined
        : {
            deviceId: row.store_device_id,
            epoch: BigInt(row.epoch),
            publishedAt: row.published_at === null ? undefined : toEpochMs(row.published_at),
            identity:
              row.curve25519 === null || row.ed25519 === null
                ? undefined
                : { curve25519: row.curve25519, ed25519: row.ed25519 },
          },
    stopped:
      row.reason === null || row.stopped_at === null
        ? undefined
        : { reason: row.reason, at: toEpochMs(row.stopped_at) },
  };
}

export function createGhostDeviceLedger(pool: Pool): GhostDeviceLedger {
  return {
    recordedDevice: async (ghost) => {
      const [row] = await rows<Row>(pool, RECORDED_DEVICE, [ghost]);
      return row === undefined ? undefined : deviceOf(row);
    },
    recordedDevices: async () =>
      (await rows<Row>(pool, RECORDED_DEVICES, [])).map(deviceOf).filter((device) => device !== undefined),
    hadKeys: async (ghost, deviceId) =>
      (await oneRow<{ had_keys: boolean }>(pool, HAD_KEYS, [ghost, deviceId])).had_keys,
    raiseEpoch: async (ghost, deviceId) => {
      const [row] = await rows<{ epoch: string }>(pool, RAISE_EPOCH, [ghost, deviceId]);
      return row === undefined ? undefined : BigInt(row.epoch);
    },
    devicePublished: async (ghost, deviceId, now) => {
      await rows(pool, PUBLISHED, [ghost, deviceId, toTime(now)]);
    },
    deviceStopped: async (ghost, deviceId, reason, now) => {
      await rows(pool, STOPPED, [ghost, deviceId, reason ?? null, toTime(now)]);
    },
    resetDevice: (ghost, deviceId, freshDeviceId) => resetDevice(pool, ghost, deviceId, freshDeviceId),
    isRoomEncrypted: async (room) =>
      (await oneRow<{ encrypted: boolean }>(pool, ROOM_ENCRYPTED, [room])).encrypted,
  };
}
