// Ghosts, their managed devices, and how far each has read back.
// Invariants: a ghost's device ID is written once and never changes; a position is moved by whoever knows where it
// stands, so that nobody who was overtaken moves it, neither back nor on.
import type { GhostMxid } from "../../domain/identifiers.ts";
import { noLongerHeld, oneRow, type Queryable, rows, type Statement, toTime } from "./statement.ts";
import type { GhostDevice } from "./types.ts";

const DEVICE: Statement = {
  name: "ghost_device",
  text: `
  WITH made AS (
    INSERT INTO bridge_ghosts (ghost_mxid, device_id, created_at) VALUES ($1, $2, $3)
    ON CONFLICT (ghost_mxid) DO NOTHING RETURNING device_id, profile_digest
  )
  SELECT device_id, profile_digest FROM made
  UNION ALL SELECT device_id, profile_digest FROM bridge_ghosts WHERE ghost_mxid = $1
  LIMIT 1`,
};

export async function ghostDevice(
  on: Queryable,
  ghost: GhostMxid,
  freshDeviceId: string,
  now: number,
): Promise<GhostDevice> {
  type Row = { device_id: string; profile_digest: string | null };
  const values = [ghost, freshDeviceId, toTime(now)];
  // Two processes may insert at once: the loser sees neither row in its snapshot, and looks again.
  const row = (await rows<Row>(on, DEVICE, values))[0] ?? (await oneRow<Row>(on, DEVICE, values));
  return { ghost, deviceId: row.device_id, profileDigest: row.profile_digest ?? undefined };
}

const PROFILE: Statement = {
  name: "ghost_profile",
  text: `UPDATE bridge_ghosts SET profile_digest = $2 WHERE ghost_mxid = $1`,
};

export async function profileSet(on: Queryable, ghost: GhostMxid, profileDigest: string): Promise<void> {
  await rows(on, PROFILE, [ghost, profileDigest]);
}

// What has been read back, of to-device messages and of rooms. A ghost without a row has no position.
const positionOf = (column: "to_device_since" | "rooms_since") =>
  ({
    read: {
      name: `read_${column}`,
      text: `SELECT ${column} AS since FROM bridge_ghosts WHERE ghost_mxid = $1`,
    },
    write: {
      name: `write_${column}`,
      text: `
      UPDATE bridge_ghosts SET ${column} = $2
      WHERE ghost_mxid = $1 AND ${column} IS NOT DISTINCT FROM $3::text RETURNING 1`,
    },
  }) as const satisfies Readonly<Record<"read" | "write", Statement>>;

const POSITIONS = { toDevice: positionOf("to_device_since"), rooms: positionOf("rooms_since") } as const;

export type Position = keyof typeof POSITIONS;

export async function position(on: Queryable, what: Position, ghost: GhostMxid): Promise<string | undefined> {
  const [row] = await rows<{ since: string | null }>(on, POSITIONS[what].read, [ghost]);
  return row?.since ?? undefined;
}

/**
 * Moves a position from where it was read.
 * @throws DrawbridgeError `lease_lost` when it stands elsewhere by now
 */
export async function setPosition(
  on: Queryable,
  what: Position,
  ghost: GhostMxid,
  since: string | null,
  from: string | undefined,
): Promise<void> {
  const moved = await rows(on, POSITIONS[what].write, [ghost, since, from ?? null]);
  if (moved.length !== 1) throw noLongerHeld(`the read position of ${ghost}`);
}
