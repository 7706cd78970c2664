// Ghosts, their managed devices and what waits for those, and how far each has read what transactions may have lost.
// Invariants: a ghost's device ID is written once and changes only by a reset, which deletes the device's store in the
// same transaction; every write about a device names it, so that it never touches a newer device; an epoch only grows;
// a read position is moved only from the position that the caller has read.
import type { Pool } from "pg";
import { DrawbridgeError } from "../../domain/errors.ts";
import type { GhostMxid } from "../../domain/identifiers.ts";
import { type DeviceIdentity, IDENTITY } from "./crypto-stores.ts";
import { columnsOf, inTransaction, type Queryable, statement, toTime } from "./postgres.ts";
import type { DeviceStopReason } from "./states.ts";

export interface EnsuredDevice {
  readonly deviceId: string;
  /** Digest of the profile last set on the homeserver; undefined when none was. */
  readonly profileDigest: string | undefined;
  readonly profileSetAt: number | undefined;
}

export interface GhostAvatar {
  /** Of the card whose icon it is; undefined when it has none. */
  readonly cardDigest: string | undefined;
  readonly contentDigest: string | undefined;
}

export interface RecordedDevice {
  readonly ghost: GhostMxid;
  readonly deviceId: string;
  readonly store:
    | {
        readonly deviceId: string;
        readonly epoch: number;
        readonly publishedAt?: number | undefined;
        /** Absent until the store is finished. */
        readonly identity?: DeviceIdentity | undefined;
      }
    | undefined;
  readonly stopped: { readonly reason: DeviceStopReason; readonly at: number } | undefined;
}

const DEVICE = statement<EnsuredDevice>("ghost_device")`
  WITH made AS (
    INSERT INTO bridge_ghosts (ghost_mxid, device_id, created_at) VALUES ($1, $2, $3)
    ON CONFLICT (ghost_mxid) DO NOTHING RETURNING device_id, profile_digest, profile_set_at
  )
  SELECT device_id AS "deviceId", profile_digest AS "profileDigest", profile_set_at AS "profileSetAt" FROM made
  UNION ALL SELECT device_id, profile_digest, profile_set_at FROM bridge_ghosts WHERE ghost_mxid = $1
  LIMIT 1`;

const PROFILE = statement("ghost_profile")`
  UPDATE bridge_ghosts SET profile_digest = $2, profile_set_at = $3 WHERE ghost_mxid = $1`;

// An image may have been uploaded that is not the avatar yet.
const AVATAR = statement<GhostAvatar & { uploadDigest?: string; uploadUrl?: string; uploadedAt?: number }>(
  "ghost_avatar",
)`
  SELECT avatar_card_digest AS "cardDigest", avatar_content_digest AS "contentDigest",
    avatar_upload_digest AS "uploadDigest", avatar_upload_url AS "uploadUrl", avatar_uploaded_at AS "uploadedAt"
  FROM bridge_ghosts WHERE ghost_mxid = $1`;

const AVATAR_SET = statement("ghost_avatar_set")`
  UPDATE bridge_ghosts SET avatar_card_digest = $2, avatar_content_digest = $3, avatar_upload_digest = NULL,
    avatar_upload_url = NULL
  WHERE ghost_mxid = $1 RETURNING 1`;

const AVATAR_UPLOADED = statement("ghost_avatar_uploaded")`
  UPDATE bridge_ghosts SET avatar_upload_digest = $2, avatar_upload_url = $3, avatar_uploaded_at = $4
  WHERE ghost_mxid = $1 RETURNING 1`;

const msOf = (time: string) => `(extract(epoch FROM ${time}) * 1000)::float8`;
const RECORDED = `
  SELECT g.ghost_mxid AS ghost, g.device_id AS "deviceId",
    CASE WHEN g.device_stopped_at IS NOT NULL
      THEN json_build_object('reason', g.device_stopped_reason, 'at', ${msOf("g.device_stopped_at")}) END AS stopped,
    CASE WHEN s.device_id IS NOT NULL THEN json_strip_nulls(json_build_object('deviceId', s.device_id,
      'epoch', s.epoch, 'publishedAt', ${msOf("s.published_at")}, 'identity', ${IDENTITY})) END AS store
  FROM bridge_ghosts g LEFT JOIN bridge_crypto_stores s ON s.ghost_mxid = g.ghost_mxid`;

const RECORDED_DEVICE = statement<RecordedDevice>("recorded_device")`${RECORDED} WHERE g.ghost_mxid = $1`;

const RECORDED_DEVICES = statement<RecordedDevice>("recorded_devices")`
  ${RECORDED} ORDER BY g.ghost_mxid COLLATE "C"`;

const HAD_KEYS = statement<{ had_keys: boolean }>("ghost_device_had_keys")`
  SELECT EXISTS (
    SELECT FROM bridge_crypto_stores
    WHERE ghost_mxid = $1 AND device_id = $2 AND published_at IS NOT NULL) AS had_keys`;

const RAISE_EPOCH = statement<{ epoch: number }>("ghost_device_epoch")`
  UPDATE bridge_crypto_stores SET epoch = epoch + 1
  WHERE ghost_mxid = $1 AND device_id = $2 RETURNING epoch::float8 AS epoch`;

const PUBLISHED = statement("ghost_device_published")`
  UPDATE bridge_crypto_stores SET published_at = $3
  WHERE ghost_mxid = $1 AND device_id = $2 AND published_at IS NULL AND curve25519 IS NOT NULL`;

const STOPPED = statement("ghost_device_stopped")`
  UPDATE bridge_ghosts SET
    device_stopped_reason = $3::text,
    device_stopped_at = CASE WHEN $3::text IS NULL THEN NULL ELSE $4::timestamptz END
  WHERE ghost_mxid = $1 AND device_id = $2 AND device_stopped_reason IS DISTINCT FROM $3::text`;

const RESET = statement("ghost_device_reset")`
  UPDATE bridge_ghosts SET device_id = $3, to_device_since = NULL,
    device_stopped_reason = NULL, device_stopped_at = NULL
  WHERE ghost_mxid = $1 AND device_id = $2 RETURNING ghost_mxid`;

const FORGET_STORE = statement("ghost_device_forget_store")`
  DELETE FROM bridge_crypto_stores WHERE ghost_mxid = $1`;

const FORGET_RECORDS = statement("ghost_device_forget_records")`
  DELETE FROM bridge_crypto_records WHERE ghost_mxid = $1`;

/** The store goes before its records, as writers lock them; the last statement sees the last writer's commit. */
function resetDevice(pool: Pool, ghost: GhostMxid, deviceId: string, fresh: string): Promise<boolean> {
  return inTransaction(pool, "BEGIN", async (client) => {
    const reset = await RESET.first(client, [ghost, deviceId, fresh]);
    if (reset === undefined) return { result: false };
    await FORGET_STORE.run(client, [ghost]);
    return { result: true, sent: FORGET_RECORDS.rows(client, [ghost]) };
  });
}

export function createGhosts(pool: Pool) {
  return {
    async ensureDevice(ghost: GhostMxid, freshDeviceId: string, now: number): Promise<EnsuredDevice> {
      const values = [ghost, freshDeviceId, toTime(now)];
      // When two processes insert at once, the loser sees neither row in its snapshot, and reads again.
      const row = (await DEVICE.first(pool, values)) ?? (await DEVICE.first(pool, values));
      if (row === undefined) throw new DrawbridgeError("internal", `the device of ${ghost} was not recorded`);
      return row;
    },

    recordProfile: (ghost: GhostMxid, profileDigest: string, now: number) =>
      PROFILE.run(pool, [ghost, profileDigest, toTime(now)]),

    avatar: (ghost: GhostMxid) => AVATAR.first(pool, [ghost]),

    /** Called between the upload of an image and its use, so that another attempt does not upload it again. */
    recordAvatarUpload: (ghost: GhostMxid, digest: string, url: string, now: number) =>
      AVATAR_UPLOADED.one(pool, [ghost, digest, url, toTime(now)]),

    recordAvatar: (ghost: GhostMxid, { cardDigest, contentDigest }: GhostAvatar) =>
      AVATAR_SET.one(pool, [ghost, cardDigest, contentDigest]),

    recordedDevice: (ghost: GhostMxid) => RECORDED_DEVICE.first(pool, [ghost]),
    recordedDevices: () => RECORDED_DEVICES.rows(pool, []),

    /** Whether the homeserver ever had keys of this device. Such a device is never created again. */
    hadKeys: async (ghost: GhostMxid, deviceId: string) =>
      (await HAD_KEYS.one(pool, [ghost, deviceId])).had_keys,

    /** Undefined when the device has no store. */
    raiseEpoch: async (ghost: GhostMxid, deviceId: string) =>
      (await RAISE_EPOCH.first(pool, [ghost, deviceId]))?.epoch,

    recordPublished: (ghost: GhostMxid, deviceId: string, now: number) =>
      PUBLISHED.run(pool, [ghost, deviceId, toTime(now)]),

    /** Why the device is stopped; undefined when it is not. Keeps the first time of one reason. */
    recordStopped: (ghost: GhostMxid, deviceId: string, reason: DeviceStopReason | undefined, now: number) =>
      STOPPED.run(pool, [ghost, deviceId, reason, toTime(now)]),

    /** False when it had another device. */
    resetDevice: (ghost: GhostMxid, deviceId: string, freshDeviceId: string) =>
      resetDevice(pool, ghost, deviceId, freshDeviceId),
  };
}

export type ReadPositions = Omit<ReturnType<typeof createReadPositions>, "forget">;

/** How far each ghost with a device has read: a position may be moved only when everything before it is durable. */
export function createReadPositions(pool: Pool, column: "to_device_since" | "rooms_since") {
  const read = statement<{ since: string | undefined }>(
    `read_${column}`,
  )`SELECT ${column} AS since FROM bridge_ghosts WHERE ghost_mxid = $1`;
  const write = statement(`write_${column}`)`
    UPDATE bridge_ghosts SET ${column} = $2
    WHERE ghost_mxid = $1 AND ${column} IS NOT DISTINCT FROM $3::text RETURNING 1`;
  const forget = statement(`forget_${column}`)`
    UPDATE bridge_ghosts SET ${column} = NULL WHERE ${column} IS NOT NULL`;
  return {
    forget: () => forget.run(pool, []),
    get: async (ghost: GhostMxid) => (await read.first(pool, [ghost]))?.since,

    /** Null deletes the position. @throws DrawbridgeError `lease_lost` when another process has moved it since `from` */
    async set(ghost: GhostMxid, since: string | null, from: string | undefined): Promise<void> {
      await write.held(pool, [ghost, since, from], `the read position of ${ghost}`);
    },
  };
}

/**
 * What a transaction brought for the device of a ghost, as JSON, until the process that owns its machine has it durable.
 * What is not taken in time is no loss: the homeserver still has it, and a catchup reads it.
 */
export type DeviceMail = { readonly ghost: GhostMxid; readonly changes: string };

const WRITE_INBOX = statement("write_device_inbox")`
  INSERT INTO bridge_device_inbox (ghost_mxid, changes, received_at)
  SELECT ghost, changes, $3 FROM unnest($1::text[], $2::text[]) AS u (ghost, changes)`;

/** Read at once, and the last one besides: other servers fill messages as they like, and what comes waits for its machine. */
const INBOX_BYTES = 16 * 1024 * 1024;

const READ_INBOX = statement<DeviceMail & { readonly id: string }>("read_device_inbox")`
  SELECT id, ghost, changes FROM (
    SELECT id, ghost, changes, sum(octet_length(changes)) OVER (ORDER BY id) - octet_length(changes) AS bytes_before
    FROM (
      SELECT id, ghost_mxid AS ghost, changes FROM bridge_device_inbox WHERE ghost_mxid = ANY ($1) ORDER BY id LIMIT $2
    ) first
  ) counted WHERE bytes_before < ${INBOX_BYTES} ORDER BY id`;

const DELETE_INBOX = statement("delete_device_inbox")`
  DELETE FROM bridge_device_inbox WHERE id = ANY ($1::bigint[])`;

export async function writeDeviceInbox(on: Queryable, mail: readonly DeviceMail[], now: number) {
  if (mail.length === 0) return;
  await WRITE_INBOX.run(on, [...columnsOf(mail, "ghost", "changes"), toTime(now)]);
}

export function createDeviceInbox(pool: Pool) {
  return {
    read: (ghosts: readonly GhostMxid[], limit: number) => READ_INBOX.rows(pool, [ghosts, limit]),
    delete: (ids: readonly string[]) => DELETE_INBOX.run(pool, [ids]),
  };
}
