// What a transaction or a catchup brought for one machine: to-device messages, device lists, key counts.
// Invariant: a message that the library cannot even read is passed over alone; those beside it are taken.
import {
  DeviceLists,
  type OlmMachine,
  ProcessedToDeviceEventType,
  UserId as SdkUserId,
} from "@matrix-org/matrix-sdk-crypto-wasm";
import { parseRoomId, type RoomId, type UserId } from "../../domain/identifiers.ts";
import type { DeviceChanges } from "../matrix/device-api.ts";
import { isPanic } from "./panic.ts";

const ONE_TIME_KEYS = "signed_curve25519";

const sdkUsers = (users: readonly UserId[]) => users.map((user) => new SdkUserId(user));

/** A device without keys is shown with none of this algorithm at all, and that means zero. */
function countsOf(counts: DeviceChanges["oneTimeKeyCounts"]): Map<string, number> {
  return counts === undefined ? new Map() : new Map(Object.entries({ [ONE_TIME_KEYS]: 0, ...counts }));
}

/** Not told is unchanged: without counts the library takes the last known ones. */
function take(machine: OlmMachine, messages: readonly unknown[], changes: DeviceChanges | undefined) {
  return machine.receiveSyncChangesMsc4186(
    JSON.stringify(messages),
    new DeviceLists(sdkUsers(changes?.changedUsers ?? []), sdkUsers(changes?.leftUsers ?? [])),
    countsOf(changes?.oneTimeKeyCounts),
    changes?.unusedFallbackKeys && new Set(changes.unusedFallbackKeys),
  );
}

async function takeAll(machine: OlmMachine, changes: DeviceChanges) {
  try {
    return await take(machine, changes.toDevice, changes);
  } catch (error) {
    if (isPanic(error) || changes.toDevice.length === 0) throw error;
  }
  const processed = await take(machine, [], changes);
  for (const message of changes.toDevice) {
    processed.push(...(await take(machine, [message], undefined).catch(() => [])));
  }
  return processed;
}

/** Returns the rooms for which keys came. */
export async function receiveToDevice(
  machine: OlmMachine,
  changes: DeviceChanges,
): Promise<readonly RoomId[]> {
  const rooms = new Set<RoomId>();
  for (const processed of await takeAll(machine, changes)) {
    if (processed.type !== ProcessedToDeviceEventType.Decrypted) continue;
    const { type, content } = JSON.parse(processed.rawEvent) as {
      type: unknown;
      content?: { room_id?: unknown };
    };
    const room = parseRoomId(content?.room_id);
    if (type === "m.room_key" && room !== undefined) rooms.add(room);
  }
  return [...rooms];
}
