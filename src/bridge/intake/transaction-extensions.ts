// What a transaction brings for ghosts' devices beside its events: to-device messages, changed device lists, counts of keys
// (Matrix application service API, "Pushing events"; MSC2409, MSC3202). Invariants: nothing here throws; a part that cannot be
// read is left out, and affects no other; what is for another device than a ghost's own is left out; the devices
// of who joins, or invites a ghost, count as changed.
import { type GhostMxid, parseUserId, type UserId } from "../../domain/identifiers.ts";
import { isObject, membersOf, type UnknownObject } from "../../domain/json.ts";
import { isTooDeep } from "../../domain/strict-json.ts";
import { type DeviceChanges, NO_CHANGES } from "../matrix/device-changes.ts";
import type { Namespace } from "./namespace.ts";
import type { ReadableEvent } from "./read-events.ts";

type Changes = { -readonly [Key in keyof DeviceChanges]: DeviceChanges[Key] } & { toDevice: UnknownObject[] };

/** @param body the fields besides `events`. @param devices the known device of each ghost: device lists concern all */
export function readDevicePart(
  body: UnknownObject,
  namespace: Namespace,
  devices: ReadonlyMap<GhostMxid, string>,
  events: readonly ReadableEvent[] = [],
): ReadonlyMap<GhostMxid, DeviceChanges> {
  const changes = new Map<GhostMxid, Changes>();
  const of = (ghost: GhostMxid): Changes => {
    const own = changes.get(ghost) ?? { ...NO_CHANGES, toDevice: [] };
    changes.set(ghost, own);
    return own;
  };
  /** The ghost, if the device is its own. */
  const ghostOf = (user: unknown, device: unknown): GhostMxid | undefined => {
    const ghost = parseUserId(user);
    if (ghost === undefined || !namespace.isGhost(ghost) || typeof device !== "string") return undefined;
    return (devices.get(ghost) ?? device) === device ? ghost : undefined;
  };
  /** The leaves of `{ user: { device: value } }`, for ghosts' own devices. */
  function* perGhost(leaves: unknown): Generator<readonly [GhostMxid, unknown]> {
    for (const [user, byDevice] of Object.entries(membersOf(leaves))) {
      for (const [device, value] of Object.entries(membersOf(byDevice))) {
        const ghost = ghostOf(user, device);
        if (ghost !== undefined) yield [ghost, value];
      }
    }
  }

  for (const message of listOf(body["to_device"] ?? body["de.sorunome.msc2409.to_device"])) {
    const { to_user_id: user, to_device_id: device, sender, type, content } = membersOf(message);
    const ghost = ghostOf(user, device);
    const isReadable = parseUserId(sender) !== undefined && typeof type === "string" && isObject(content);
    if (ghost !== undefined && isReadable && !isTooDeep(message))
      of(ghost).toDevice.push({ sender, type, content });
  }

  const counts =
    body["org.matrix.msc3202.device_one_time_keys_count"] ??
    body["org.matrix.msc3202.device_one_time_key_counts"];
  for (const [ghost, value] of perGhost(counts)) {
    const read = countsOf(value);
    // An empty count means that the device has no keys yet; as a count it would have 50 more made each time.
    if (Object.keys(read).length > 0) of(ghost).oneTimeKeyCounts = read;
  }
  for (const [ghost, value] of perGhost(body["org.matrix.msc3202.device_unused_fallback_key_types"])) {
    if (Array.isArray(value)) of(ghost).unusedFallbackKeys = value.filter((one) => typeof one === "string");
  }

  const lists = membersOf(body["org.matrix.msc3202.device_lists"] ?? body["device_lists"]);
  // While no room is shared with a user, the homeserver tells of no change of the user's devices, nor does it later.
  const met = events.flatMap((event) => {
    if (event.type !== "membership") return [];
    const { membership, user, sender } = event;
    return membership === "join" ? [user] : membership === "invite" ? [sender] : [];
  });
  const changedUsers = usersOf([...listOf(lists["changed"]), ...met]);
  const leftUsers = usersOf(lists["left"]);
  if (changedUsers.length + leftUsers.length > 0) {
    for (const ghost of devices.keys()) Object.assign(of(ghost), { changedUsers, leftUsers });
  }
  return changes;
}

const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);

function usersOf(value: unknown): UserId[] {
  return [...new Set(listOf(value).map(parseUserId))].filter((user) => user !== undefined);
}

function countsOf(value: unknown): Readonly<Record<string, number>> {
  const isCount = (entry: [string, unknown]): entry is [string, number] =>
    Number.isSafeInteger(entry[1]) && Number(entry[1]) >= 0;
  return Object.fromEntries(Object.entries(membersOf(value)).filter(isCount));
}
