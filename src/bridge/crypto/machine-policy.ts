// Whether the device that a decrypted event came from is believed, by the deployment's policy.
// Invariants: a device that nobody has seen proves nothing about its owner, so its event is not decrypted
// yet; the policy looks at the device as it is known now; what is not known is not believed.
import {
  type DecryptedRoomEvent,
  type OlmMachine,
  UserId as SdkUserId,
  ShieldStateCode,
} from "@matrix-org/matrix-sdk-crypto-wasm";
import type { UserId } from "../../domain/identifiers.ts";

export interface SenderPolicy {
  readonly senderDevices: "allow_all" | "cross_signed" | "verified";
  /** For `verified`: users and the public master keys that somebody has compared. */
  readonly verifiedIdentities: readonly { readonly user: string; readonly masterKey: string }[];
}

export type Judgement = "trusted" | "device_not_trusted" | "sender_mismatch" | "device_unknown";

/** The device of `sender` that has this Curve25519 key, as the machine knows it now. */
export async function deviceWithKey(machine: OlmMachine, sender: UserId, curve25519: string) {
  const devices = await machine.getUserDevices(new SdkUserId(sender));
  return devices.devices().find((device) => device.curve25519Key?.toBase64() === curve25519);
}

async function hasComparedIdentity(machine: OlmMachine, sender: UserId, policy: SenderPolicy) {
  const expected = policy.verifiedIdentities.filter(({ user }) => user === sender);
  const identity = await machine.getIdentity(new SdkUserId(sender));
  if (identity === undefined) return false;
  const { keys } = JSON.parse(identity.masterKey) as { keys: Record<string, string> };
  const present = Object.values(keys);
  return expected.some(({ masterKey }) => present.length === 1 && present[0] === masterKey);
}

/**
 * Judges the device of a decrypted event. The machine has compared the sender outside with the owner of the
 * device that the session came from, wherever it knows that device.
 */
export async function judgeSender(
  machine: OlmMachine,
  sender: UserId,
  event: DecryptedRoomEvent,
  policy: SenderPolicy,
): Promise<Judgement> {
  // The strict variant does not tell a device that is not signed from one whose owner nobody has compared.
  const shield = event.shieldState(false).code;
  if (shield === ShieldStateCode.MismatchedSender) return "sender_mismatch";
  // A key that came forwarded or imported; the library takes none here, and would not know whose it is.
  if (shield === ShieldStateCode.AuthenticityNotGuaranteed) return "device_not_trusted";
  if (shield !== ShieldStateCode.UnknownDevice) {
    if (policy.senderDevices === "allow_all") return "trusted";
    if (shield === ShieldStateCode.UnsignedDevice) return "device_not_trusted";
    if (policy.senderDevices === "cross_signed") return "trusted";
  }
  // The device was not known when its key came, or the policy asks for more: it must be one of the sender's now.
  const device = await deviceWithKey(machine, sender, event.senderCurve25519Key);
  if (device === undefined) return "device_unknown";
  if (policy.senderDevices === "allow_all") return "trusted";
  if (!device.isCrossSignedByOwner()) return "device_not_trusted";
  if (policy.senderDevices === "cross_signed") return "trusted";
  return (await hasComparedIdentity(machine, sender, policy)) ? "trusted" : "device_not_trusted";
}
