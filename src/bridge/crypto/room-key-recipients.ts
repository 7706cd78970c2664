// Which devices get the key of a ghost's session in a room. Invariants: the key of an answer goes only to devices whose
// questions the policy believes; whoever joins later gets no earlier key.
import {
  CollectStrategy,
  EncryptionSettings,
  HistoryVisibility,
  type OlmMachine,
  RoomId as SdkRoomId,
} from "@matrix-org/matrix-sdk-crypto-wasm";
import type { RoomId, UserId } from "../../domain/identifiers.ts";
import type { OutgoingRequest } from "../matrix/device-api.ts";
import { type DeviceTrustPolicy, hasComparedIdentity } from "./decrypt-event.ts";
import { sdkUsers, toRequests } from "./olm-machine-adapter.ts";

export interface RoomEncryption {
  readonly rotationMessages: number;
  readonly rotationMs: number;
  readonly forAllDevices: boolean;
}

export type Shared = { readonly users: readonly UserId[]; readonly settings: RoomEncryption };

function encryptionSettings(room: RoomEncryption): EncryptionSettings {
  const settings = new EncryptionSettings();
  settings.rotationPeriodMessages = BigInt(room.rotationMessages);
  // The library counts microseconds.
  settings.rotationPeriod = BigInt(room.rotationMs) * 1_000n;
  // Nobody is told to share the keys with those who join later.
  settings.historyVisibility = HistoryVisibility.Joined;
  settings.sharingStrategy = room.forAllDevices
    ? CollectStrategy.allDevices()
    : // Only devices that their owner has signed.
      CollectStrategy.identityBasedStrategy();
  return settings;
}

/** Whether a session is for every device of its users, trusted or not. */
export function reachesAllDevices({ senderDevices }: DeviceTrustPolicy, wanted: RoomEncryption): boolean {
  return wanted.forAllDevices || senderDevices === "allow_all";
}

/** Shares the session with the users' devices; the requests must be sent before it is used. */
export async function shareRoomKey(
  machine: OlmMachine,
  policy: DeviceTrustPolicy,
  room: RoomId,
  { users, settings }: Shared,
): Promise<readonly OutgoingRequest[]> {
  const comparesIdentities = !settings.forAllDevices && policy.senderDevices === "verified";
  const recipients: UserId[] = [];
  for (const user of users) {
    if (!comparesIdentities || (await hasComparedIdentity(machine, user, policy))) recipients.push(user);
  }
  const options = encryptionSettings(settings);
  return toRequests(await machine.shareRoomKey(new SdkRoomId(room), sdkUsers(recipients), options));
}
