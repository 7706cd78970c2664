// One encrypted event through a ghost's machine: what it holds, or why it is not believed.
// Invariants: whatever the event is, the answer is a value; no text of the library's errors is passed on; the
// devices of whoever wrote from one that is not known are asked for with `outgoing`.
import {
  DecryptionErrorCode,
  DecryptionSettings,
  DeviceLists,
  MegolmDecryptionError,
  type OlmMachine,
  RoomId as SdkRoomId,
  UserId as SdkUserId,
  TrustRequirement,
} from "@matrix-org/matrix-sdk-crypto-wasm";
import type { UserId } from "../../domain/identifiers.ts";
import { deviceWithKey, judgeSender, type SenderPolicy } from "./machine-policy.ts";
import { indexDigest, megolmIndex } from "./megolm-index.ts";
import type { Decryption, EncryptedRoomEvent } from "./types.ts";

const ALGORITHM = "m.megolm.v1.aes-sha2";
const UNDECRYPTABLE: Decryption = { kind: "refused", reason: "undecryptable" };
const MISMATCH: Decryption = { kind: "refused", reason: "sender_mismatch" };

function asObject(value: unknown): Readonly<Record<string, unknown>> | undefined {
  return typeof value === "object" && value !== null && !Array.isArray(value)
    ? (value as Readonly<Record<string, unknown>>)
    : undefined;
}

function ofError(error: MegolmDecryptionError): Decryption {
  switch (error.code) {
    case DecryptionErrorCode.MissingRoomKey:
    case DecryptionErrorCode.UnknownMessageIndex:
    case DecryptionErrorCode.UnknownSenderDevice:
      return { kind: "missing_key", withheld: error.withheldCode };
    case DecryptionErrorCode.MismatchedSender:
    case DecryptionErrorCode.MismatchedIdentityKeys:
      return MISMATCH;
    case DecryptionErrorCode.UnsignedSenderDevice:
    case DecryptionErrorCode.SenderIdentityVerificationViolation:
      return { kind: "refused", reason: "device_not_trusted" };
    default:
      return UNDECRYPTABLE;
  }
}

/** The content inside, with a relation that stood outside: there it stands for servers to read. */
function contentOf(decrypted: unknown, outside: Readonly<Record<string, unknown>>) {
  const content = asObject(decrypted);
  const relation = outside["m.relates_to"];
  if (content === undefined || relation === undefined || "m.relates_to" in content) return content;
  return { ...content, "m.relates_to": relation };
}

/** Which devices were found to be known, so that they are not looked up at each event. */
export type KnownDevices = Set<string>;
const KNOWN_DEVICES_MAX = 10_000;

/** Has the devices of a user asked for with `outgoing`, whatever the homeserver has told of them. */
async function askForDevices(machine: OlmMachine, user: UserId): Promise<void> {
  await machine.updateTrackedUsers([new SdkUserId(user)]);
  await machine.receiveSyncChangesMsc4186("[]", new DeviceLists([new SdkUserId(user)]), new Map());
}

/**
 * Whether the machine could write to the device that an event came from. A message that brings a key brings its
 * device's keys too, so one that logged in a moment ago is believed before the homeserver has told of it.
 */
async function isKnown(machine: OlmMachine, sender: UserId, curve25519: string, known: KnownDevices) {
  const name = `${sender} ${curve25519}`;
  if (known.has(name)) return true;
  if ((await deviceWithKey(machine, sender, curve25519)) === undefined) return false;
  if (known.size >= KNOWN_DEVICES_MAX) known.clear();
  known.add(name);
  return true;
}

/** @throws what is no answer about the event: the machine itself failed */
export async function decryptEvent(
  machine: OlmMachine,
  { event, room, sender, raw }: EncryptedRoomEvent,
  policy: SenderPolicy,
  known: KnownDevices,
): Promise<Decryption> {
  const outside = asObject(raw["content"]);
  if (outside === undefined || raw["type"] !== "m.room.encrypted" || outside["algorithm"] !== ALGORITHM) {
    return UNDECRYPTABLE;
  }
  const { ciphertext, session_id: session } = outside;
  if (typeof ciphertext !== "string" || typeof session !== "string") return UNDECRYPTABLE;
  const index = megolmIndex(ciphertext);
  if (index === undefined || !session.isWellFormed()) return UNDECRYPTABLE;
  const text = JSON.stringify({ ...raw, event_id: event, room_id: room, sender });
  try {
    const settings = new DecryptionSettings(TrustRequirement.Untrusted);
    const decrypted = await machine.decryptRoomEvent(text, new SdkRoomId(room), settings);
    switch (await judgeSender(machine, sender, decrypted, policy)) {
      case "sender_mismatch":
        return MISMATCH;
      case "device_not_trusted":
        return { kind: "refused", reason: "device_not_trusted" };
      case "device_unknown":
        // Its owner cannot be told from anybody else yet.
        await askForDevices(machine, sender);
        return { kind: "missing_key", withheld: undefined };
      case "trusted":
    }
    const inside = asObject(JSON.parse(decrypted.event) as unknown);
    const content = contentOf(inside?.["content"], outside);
    const type = inside?.["type"];
    if (content === undefined || typeof type !== "string") return UNDECRYPTABLE;
    const isDeviceKnown = await isKnown(machine, sender, decrypted.senderCurve25519Key, known);
    if (!isDeviceKnown) await askForDevices(machine, sender);
    const digest = indexDigest(room, session, index);
    return { kind: "decrypted", type, content, indexDigest: digest, isDeviceKnown };
  } catch (error) {
    if (error instanceof MegolmDecryptionError) return ofError(error);
    throw error;
  }
}
