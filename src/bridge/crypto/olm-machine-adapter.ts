// Converts between the library's types and plain data that crosses threads. Invariants: a request keeps the ID that the
// machine gave it, so that its answer finds it; a to-device message that the library cannot even parse is skipped alone.
import {
  DecryptionSettings,
  DeviceLists,
  type OlmMachine,
  ProcessedToDeviceEventType,
  RequestType,
  RoomId as SdkRoomId,
  UserId as SdkUserId,
  ToDeviceRequest,
  TrustRequirement,
} from "@matrix-org/matrix-sdk-crypto-wasm";
import { parseRoomId, type RoomId, type UserId } from "../../domain/identifiers.ts";
import { membersOf } from "../../domain/json.ts";
import type { OutgoingRequest } from "../matrix/device-api.ts";
import { type DeviceChanges, NO_CHANGES } from "../matrix/device-changes.ts";

/** A panic of the library (Rust), after which nothing in the thread's instance may be called. */
export const isPanic = (error: unknown) => error instanceof Error && error.name === "RuntimeError";

/** For `catch`: undefined for what the library refused. @throws a panic */
function undefinedUnlessPanic(error: unknown): undefined {
  if (isPanic(error)) throw error;
}

/** The users without those whose IDs the library refuses, such as one with a port that no server can have. */
export function sdkUsers(users: readonly UserId[]): SdkUserId[] {
  return users.flatMap((user) => {
    try {
      return [new SdkUserId(user)];
    } catch (error) {
      if (isPanic(error)) throw error;
      return [];
    }
  });
}

interface SdkRequest {
  readonly id: string | undefined;
  readonly type: RequestType;
  readonly body: string;
}

const KINDS: ReadonlyMap<RequestType, OutgoingRequest["kind"]> = new Map([
  [RequestType.KeysUpload, "keys_upload"],
  [RequestType.KeysQuery, "keys_query"],
  [RequestType.KeysClaim, "keys_claim"],
  [RequestType.ToDevice, "to_device"],
  [RequestType.SignatureUpload, "signature_upload"],
] as const);

const TYPES = new Map([...KINDS].map(([type, kind]) => [kind, type]));

const WITHOUT_ANSWER = "unanswered:";

/** The requests without what no ghost sends: verification messages in rooms, backups of keys. */
export function toRequests(requests: readonly (SdkRequest | null | undefined)[]): OutgoingRequest[] {
  return requests.flatMap((request) => {
    const kind = request && KINDS.get(request.type);
    if (!kind) return [];
    const made = { id: request.id ?? `${WITHOUT_ANSWER}${kind}`, kind, body: request.body };
    if (!(request instanceof ToDeviceRequest)) return [made];
    return [{ ...made, eventType: request.event_type, transactionId: request.txn_id }];
  });
}

/** The upload of signing keys has neither an ID nor a type in the library. */
export function signingKeysUpload(body: string): OutgoingRequest {
  return { id: `${WITHOUT_ANSWER}signing_keys_upload`, kind: "signing_keys_upload", body };
}

export async function markSent(machine: OlmMachine, request: OutgoingRequest, answer: string): Promise<void> {
  const type = TYPES.get(request.kind);
  if (type === undefined || request.id.startsWith(WITHOUT_ANSWER)) return;
  await machine.markRequestAsSent(request.id, type, answer);
}

/** Without counts the library keeps the last known ones. */
function process(machine: OlmMachine, changes: DeviceChanges) {
  const { oneTimeKeyCounts: counts } = changes;
  // A device without one-time keys is reported without this algorithm, and that means zero.
  const known = counts === undefined ? [] : Object.entries({ signed_curve25519: 0, ...counts });
  return machine.receiveSyncChangesMsc4186(
    JSON.stringify(changes.toDevice),
    new DeviceLists(sdkUsers(changes.changedUsers), sdkUsers(changes.leftUsers)),
    new Map(known),
    changes.unusedFallbackKeys && new Set(changes.unusedFallbackKeys),
  );
}

async function processAll(machine: OlmMachine, changes: DeviceChanges) {
  try {
    return await process(machine, changes);
  } catch (error) {
    if (isPanic(error) || changes.toDevice.length === 0) throw error;
  }
  const processed = await process(machine, { ...changes, toDevice: [] });
  for (const message of changes.toDevice) {
    const one = process(machine, { ...NO_CHANGES, toDevice: [message] });
    processed.push(...((await one.catch(undefinedUnlessPanic)) ?? []));
  }
  return processed;
}

export async function receiveChanges(machine: OlmMachine, changes: DeviceChanges) {
  const rooms = new Set<RoomId>();
  for (const processed of await processAll(machine, changes)) {
    if (processed.type !== ProcessedToDeviceEventType.Decrypted) continue;
    const { type, content } = membersOf(JSON.parse(processed.rawEvent));
    const room = parseRoomId(membersOf(content)["room_id"]);
    if (type === "m.room_key" && room !== undefined) rooms.add(room);
  }
  return [...rooms];
}

/** A ciphertext that the library can parse: version, index, an empty block, and an empty code and signature. */
const CIPHERTEXT = Buffer.concat([Buffer.of(3, 8, 0, 18, 16), Buffer.alloc(16 + 8 + 64)]).toString("base64");

/** Lets the machine look for a session of a room that it does not have. */
export async function querySession(machine: OlmMachine, room: RoomId): Promise<void> {
  const content = { algorithm: "m.megolm.v1.aes-sha2", ciphertext: CIPHERTEXT, session_id: "none" };
  const ids = { event_id: "$none", sender: "@none:none", origin_server_ts: 0 };
  const event = JSON.stringify({ type: "m.room.encrypted", ...ids, content });
  const settings = new DecryptionSettings(TrustRequirement.Untrusted);
  await machine.decryptRoomEvent(event, new SdkRoomId(room), settings).catch(undefinedUnlessPanic);
}
