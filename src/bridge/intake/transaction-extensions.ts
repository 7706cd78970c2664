// What a transaction brings for ghosts' devices beside its events: to-device messages, changed device lists,
// counts of keys (MSC2409, MSC3202). Invariants: nothing here throws; a part that cannot be read is left out
// and counted, and affects no other; what is for another device than a ghost's own is left out.
// Protocol: Matrix application service API, "Pushing events", and the MSCs' unstable names.
import { type GhostMxid, parseUserId, type UserId } from "../../domain/identifiers.ts";
import { isObject, type UnknownObject } from "../../domain/json.ts";
import { isTooDeep } from "../../domain/strict-json.ts";
import type { DeviceChanges } from "../matrix/device-changes.ts";
import type { Namespace } from "./namespace.ts";

type Changes = { -readonly [Field in keyof DeviceChanges]: DeviceChanges[Field] } & {
  toDevice: UnknownObject[];
};

/**
 * @param body the transaction's fields besides `events`
 * @param devices the known device of each ghost: changed device lists concern them all
 * @returns what can be read, and is for a ghost of ours
 */
export function readDevicePart(
  body: UnknownObject,
  namespace: Namespace,
  devices: ReadonlyMap<GhostMxid, string>,
): ReadonlyMap<GhostMxid, DeviceChanges> {
  const changes = new Map<GhostMxid, Changes>();
  const of = (ghost: GhostMxid): Changes => {
    const nothing = { oneTimeKeyCounts: undefined, unusedFallbackKeys: undefined };
    const own = changes.get(ghost) ?? { toDevice: [], changedUsers: [], leftUsers: [], ...nothing };
    changes.set(ghost, own);
    return own;
  };
  const ghostOf = (user: unknown): GhostMxid | undefined => {
    const parsed = parseUserId(user);
    return parsed !== undefined && namespace.isGhost(parsed) ? parsed : undefined;
  };
  const isOf = (ghost: GhostMxid, device: unknown) =>
    typeof device === "string" && (devices.get(ghost) ?? device) === device;

  for (const message of listOf(body["to_device"] ?? body["de.sorunome.msc2409.to_device"])) {
    const ghost = isObject(message) ? ghostOf(message["to_user_id"]) : undefined;
    if (!isObject(message) || ghost === undefined || !isOf(ghost, message["to_device_id"])) continue;
    const { sender, type, content } = message;
    const isReadable = parseUserId(sender) !== undefined && typeof type === "string" && isObject(content);
    if (isReadable && !isTooDeep(message)) of(ghost).toDevice.push({ sender, type, content });
  }

  const counts =
    body["org.matrix.msc3202.device_one_time_keys_count"] ??
    body["org.matrix.msc3202.device_one_time_key_counts"];
  for (const { user, device, value } of perDevice(counts)) {
    const ghost = ghostOf(user);
    const read = countsOf(value);
    if (ghost === undefined || !isOf(ghost, device) || read === undefined) continue;
    // An empty count means that the device has no keys yet; as a count it would have 50 more made each time.
    if (Object.keys(read).length > 0) of(ghost).oneTimeKeyCounts = read;
  }
  for (const { user, device, value } of perDevice(
    body["org.matrix.msc3202.device_unused_fallback_key_types"],
  )) {
    const ghost = ghostOf(user);
    if (ghost === undefined || !isOf(ghost, device) || !Array.isArray(value)) continue;
    of(ghost).unusedFallbackKeys = value.filter((one) => typeof one === "string");
  }

  const lists = body["org.matrix.msc3202.device_lists"] ?? body["device_lists"];
  if (isObject(lists)) {
    const changed = usersOf(lists["changed"]);
    const left = usersOf(lists["left"]);
    if (changed.length + left.length > 0) {
      for (const ghost of devices.keys()) {
        const own = of(ghost);
        own.changedUsers = changed;
        own.leftUsers = left;
      }
    }
  }
  return changes;
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

function usersOf(value: unknown): UserId[] {
  return [...new Set(listOf(value).map(parseUserId))].filter((user) => user !== undefined);
}

/** The leaves of `{ user: { device: value } }`. */
function* perDevice(value: unknown): Generator<{ user: string; device: string; value: unknown }> {
  if (!isObject(value)) return;
  for (const [user, byDevice] of Object.entries(value)) {
    if (!isObject(byDevice)) continue;
    for (const [device, each] of Object.entries(byDevice)) yield { user, device, value: each };
  }
}

function countsOf(value: unknown): Readonly<Record<string, number>> | undefined {
  if (!isObject(value)) return undefined;
  const entries = Object.entries(value).filter(
    ([, count]) => Number.isSafeInteger(count) && Number(count) >= 0,
  );
  return Object.fromEntries(entries.map(([algorithm, count]) => [algorithm, Number(count)]));
}
