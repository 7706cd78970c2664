// Decrypts one event with a ghost's machine, and applies the policy on senders' devices to the device as it is known now;
// keeps why senders withhold keys. Invariants: no text of the library's errors is passed on; an unknown device proves
// nothing about its owner, so its event counts as not decrypted yet.
import {
  type DecryptedRoomEvent,
  DecryptionErrorCode,
  DecryptionSettings,
  DeviceLists,
  MegolmDecryptionError,
  type OlmMachine,
  RoomId as SdkRoomId,
  UserId as SdkUserId,
  ShieldStateCode,
  TrustRequirement,
} from "@matrix-org/matrix-sdk-crypto-wasm";
import { LRUCache } from "lru-cache";
import { canonicalize } from "../../domain/canonical-json.ts";
import { sha256 } from "../../domain/digest.ts";
import { isId, type RoomId, type UserId } from "../../domain/identifiers.ts";
import { isObject, membersOf, type UnknownObject } from "../../domain/json.ts";
import type { BridgeConfig } from "../config.ts";
import type { EncryptedEvent, Inside } from "../intake/read-events.ts";
import type { DeviceChanges } from "../matrix/device-changes.ts";
import { isPanic } from "./olm-machine-adapter.ts";

/** A whole `m.room.encrypted` event, as the homeserver gave it. */
export type EncryptedRoomEvent = Pick<EncryptedEvent, "event" | "room" | "sender" | "raw">;

export type Decryption =
  /** `queried`: the sender's device is not known, and the query for it comes with `outgoing`. */
  | ({ readonly kind: "decrypted"; readonly queried?: true } & Inside)
  /** The event's key has not come (yet). `withheld` is the sender's code for why it withholds the key. */
  | { readonly kind: "missing_key"; readonly withheld: string | undefined; readonly queried?: true }
  /** The sender does not own the device that the session came from, its device is not trusted, or no key could ever help. */
  | { readonly kind: "refused"; readonly reason: "sender_mismatch" | "device_not_trusted" | "undecryptable" }
  | { readonly kind: "unavailable" };

export type DeviceTrustPolicy = Pick<BridgeConfig["encryption"], "senderDevices" | "verifiedIdentities">;

const ALGORITHM = "m.megolm.v1.aes-sha2";
const UNDECRYPTABLE: Decryption = { kind: "refused", reason: "undecryptable" };
const MISMATCH: Decryption = { kind: "refused", reason: "sender_mismatch" };
const NOT_TRUSTED: Decryption = { kind: "refused", reason: "device_not_trusted" };

/** @throws when the machine itself failed, which says nothing about the event */
export async function decryptEvent(
  machine: OlmMachine,
  { event, room, sender, raw }: EncryptedRoomEvent,
  policy: DeviceTrustPolicy,
  senders: SenderDevices,
  withheld: WithheldCodes,
): Promise<Decryption> {
  const outside = membersOf(raw["content"]);
  const { algorithm, ciphertext, session_id: session } = outside;
  if (raw["type"] !== "m.room.encrypted" || algorithm !== ALGORITHM) return UNDECRYPTABLE;
  if (typeof ciphertext !== "string" || typeof session !== "string") return UNDECRYPTABLE;
  const index = megolmIndex(ciphertext);
  if (index === undefined || !session.isWellFormed()) return UNDECRYPTABLE;
  const text = JSON.stringify({ ...raw, event_id: event, room_id: room, sender });
  try {
    const settings = new DecryptionSettings(TrustRequirement.Untrusted);
    const decrypted = await machine.decryptRoomEvent(text, new SdkRoomId(room), settings);
    const query = () => senders.queryUnknown(machine, sender, decrypted.senderCurve25519Key);
    const trust = await trustOf(machine, sender, decrypted, policy);
    // Until the device is known, its owner could be anybody.
    if (trust === "device_unknown") return { kind: "missing_key", withheld: undefined, ...(await query()) };
    if (trust !== "trusted") return trust;
    const { type, content: decryptedContent } = membersOf(JSON.parse(decrypted.event));
    const content = contentOf(decryptedContent, outside);
    if (content === undefined || typeof type !== "string") return UNDECRYPTABLE;
    const digest = indexDigest(room, session, index);
    return { kind: "decrypted", type, content, indexDigest: digest, ...(await query()) };
  } catch (error) {
    if (!(error instanceof MegolmDecryptionError)) throw error;
    const result = OF_ERROR.get(error.code) ?? UNDECRYPTABLE;
    if (result !== "missing_key") return result;
    return { kind: "missing_key", withheld: withheld.codeOf({ sender, room }, session) };
  }
}

/** Any other error means that no key could ever decrypt the event. */
const OF_ERROR = new Map<DecryptionErrorCode, Decryption | "missing_key">([
  [DecryptionErrorCode.MissingRoomKey, "missing_key"],
  [DecryptionErrorCode.UnknownMessageIndex, "missing_key"],
  [DecryptionErrorCode.MismatchedSender, MISMATCH],
  [DecryptionErrorCode.MismatchedIdentityKeys, MISMATCH],
]);

/** The decrypted content, with the relation that stands in plain text outside for servers to read. */
function contentOf(content: unknown, outside: UnknownObject): UnknownObject | undefined {
  if (!isObject(content)) return undefined;
  const relation = outside["m.relates_to"];
  if (relation === undefined || "m.relates_to" in content) return content;
  return { ...content, "m.relates_to": relation };
}

/** The message index in a Megolm ciphertext (Megolm specification, "Message format"); undefined for anything else. */
export function megolmIndex(ciphertext: string): number | undefined {
  const [version, indexTag, varintBytes] = [3, 0x08, 5];
  // Version, tag and a varint of at most five bytes fit into twelve characters of base64.
  const bytes = Buffer.from(ciphertext.slice(0, 12), "base64");
  if (bytes[0] !== version || bytes[1] !== indexTag) return undefined;
  let index = 0;
  for (let at = 0; at < varintBytes; at++) {
    const byte = bytes[2 + at];
    if (byte === undefined) return undefined;
    index += (byte & 0x7f) * 2 ** (7 * at);
    if (byte < 0x80) return index < 2 ** 32 ? index : undefined;
  }
  return undefined;
}

/** The same for each decryption of one ciphertext, so that a replay under another event is found by it. */
export function indexDigest(room: RoomId, session: string, index: number): Buffer {
  return sha256(canonicalize([room, session, index]));
}

async function deviceWithKey(machine: OlmMachine, sender: UserId, curve25519: string) {
  const devices = await machine.getUserDevices(new SdkUserId(sender));
  return devices.devices().find((device) => device.curve25519Key?.toBase64() === curve25519);
}

export async function hasComparedIdentity(machine: OlmMachine, sender: UserId, policy: DeviceTrustPolicy) {
  const expected = policy.verifiedIdentities.filter(({ user }) => user === sender);
  if (expected.length === 0) return false;
  const identity = await machine.getIdentity(new SdkUserId(sender));
  if (identity === undefined) return false;
  const { keys } = JSON.parse(identity.masterKey) as { keys: Record<string, string> };
  const present = Object.values(keys);
  return expected.some(({ masterKey }) => present.length === 1 && present[0] === masterKey);
}

async function trustOf(
  machine: OlmMachine,
  sender: UserId,
  event: DecryptedRoomEvent,
  policy: DeviceTrustPolicy,
): Promise<"trusted" | "device_unknown" | typeof MISMATCH | typeof NOT_TRUSTED> {
  // The strict variant does not distinguish an unsigned device from one whose owner nobody has compared.
  const shield = event.shieldState(false).code;
  if (shield === ShieldStateCode.MismatchedSender) return MISMATCH;
  // A key that was forwarded or imported; the library takes none here, and would not know whose it is.
  if (shield === ShieldStateCode.AuthenticityNotGuaranteed) return NOT_TRUSTED;
  if (shield !== ShieldStateCode.UnknownDevice && policy.senderDevices === "allow_all") return "trusted";
  // The device was not known when its key came, or what was known then may be over: it must be one of the sender's now.
  const device = await deviceWithKey(machine, sender, event.senderCurve25519Key);
  if (device === undefined) return "device_unknown";
  if (policy.senderDevices === "allow_all") return "trusted";
  if (!device.isCrossSignedByOwner()) return NOT_TRUSTED;
  if (policy.senderDevices === "cross_signed") return "trusted";
  return (await hasComparedIdentity(machine, sender, policy)) ? "trusted" : NOT_TRUSTED;
}

const QUERIES_MAX = 3;
const REMEMBERED_MAX = 10_000;

/** Queries devices that a machine does not know, a few times each: some are never published. No failure fails an event. */
export class SenderDevices {
  readonly #known = new LRUCache<string, true>({ max: REMEMBERED_MAX });
  readonly #queries = new LRUCache<string, number>({ max: REMEMBERED_MAX });
  readonly #onFollowed: (user: UserId) => void;

  /** @param onFollowed told of a user whose devices are queried from then on */
  constructor(onFollowed: (user: UserId) => void) {
    this.#onFollowed = onFollowed;
  }

  async queryUnknown(machine: OlmMachine, sender: UserId, curve25519: string) {
    const device = `${sender} ${curve25519}`;
    const queries = this.#queries.get(device) ?? 0;
    if (this.#known.has(device) || queries >= QUERIES_MAX) return {};
    try {
      if ((await deviceWithKey(machine, sender, curve25519)) !== undefined) {
        this.#known.set(device, true);
        return {};
      }
      this.#queries.set(device, queries + 1);
      this.#onFollowed(sender);
      await machine.updateTrackedUsers([new SdkUserId(sender)]);
      await machine.receiveSyncChangesMsc4186("[]", new DeviceLists([new SdkUserId(sender)]), new Map());
      return { queried: true } as const;
    } catch (error) {
      if (isPanic(error)) throw error;
      return {};
    }
  }

  /** The homeserver has answered a device query: a device that was known may be gone. */
  changed(): void {
    this.#known.clear();
  }
}

const CODES_MAX = 10_000;
const CODE_LENGTH_MAX = 100;

const isWithheld = ({ type }: DeviceChanges["toDevice"][number]) => type === "m.room_key.withheld";
const nameOf = (sender: unknown, room: unknown, session: unknown) => JSON.stringify([sender, room, session]);

// The library would store codes of any length, without their senders.
/** Codes of withheld keys. One counts for its sender's events alone: everybody in a room sees the others' session IDs. */
export class WithheldCodes {
  readonly #codes = new LRUCache<string, string>({ max: CODES_MAX });

  takeFrom(messages: DeviceChanges["toDevice"]): DeviceChanges["toDevice"] {
    const [withheld, others] = [messages.filter(isWithheld), messages.filter((one) => !isWithheld(one))];
    for (const { sender, content } of withheld) {
      const { room_id, session_id, code } = membersOf(content);
      if (!isId(room_id) || !isId(session_id)) continue;
      if (typeof code !== "string" || code.length > CODE_LENGTH_MAX) continue;
      this.#codes.set(nameOf(sender, room_id, session_id), code);
    }
    return others;
  }

  codeOf(event: { readonly sender: string; readonly room: string }, session: string): string | undefined {
    return this.#codes.get(nameOf(event.sender, event.room, session));
  }
}
