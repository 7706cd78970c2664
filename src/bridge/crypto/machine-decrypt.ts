// One encrypted event through a ghost's machine: what it holds, or why it is not believed.
// Invariants: whatever the event is, the answer is a value; no text of the library's errors is passed on.
import {
  DecryptionErrorCode,
  DecryptionSettings,
  MegolmDecryptionError,
  type OlmMachine,
  RoomId as SdkRoomId,
  TrustRequirement,
} from "@matrix-org/matrix-sdk-crypto-wasm";
import { judgeSender, type SenderPolicy } from "./machine-policy.ts";
import { indexDigest, megolmIndex } from "./megolm-index.ts";
import type { SenderDevices } from "./sender-devices.ts";
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

/** @throws what is no answer about the event: the machine itself failed */
export async function decryptEvent(
  machine: OlmMachine,
  { event, room, sender, raw }: EncryptedRoomEvent,
  policy: SenderPolicy,
  senders: SenderDevices,
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
    const seek = () => senders.seek(machine, sender, decrypted.senderCurve25519Key);
    switch (await judgeSender(machine, sender, decrypted, policy)) {
      case "sender_mismatch":
        return MISMATCH;
      case "device_not_trusted":
        return { kind: "refused", reason: "device_not_trusted" };
      case "device_unknown":
        // Its owner cannot be told from anybody else yet.
        return { kind: "missing_key", withheld: undefined, ...(await seek()) };
      case "trusted":
    }
    const inside = asObject(JSON.parse(decrypted.event) as unknown);
    const content = contentOf(inside?.["content"], outside);
    const type = inside?.["type"];
    if (content === undefined || typeof type !== "string") return UNDECRYPTABLE;
    return {
      kind: "decrypted",
      type,
      content,
      indexDigest: indexDigest(room, session, index),
      ...(await seek()),
    };
  } catch (error) {
    if (error instanceof MegolmDecryptionError) return ofError(error);
    throw error;
  }
}
