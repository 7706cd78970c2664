// Encrypts an event for its room (Matrix client-server API, "m.room.encryption" and "m.megolm.v1.aes-sha2"). Invariants:
// the room's encryption and members are read before each event, so that who has left gets no key of it; where they cannot
// be read, or contradict what is known, nothing is returned; plain text is sent only in a room that never was encrypted; a
// relation to other events stays outside the ciphertext, where it can be found again.
import * as z from "zod";
import type { RoomId } from "../../domain/identifiers.ts";
import type { Homeserver } from "../matrix/homeserver.ts";
import type { GhostActor } from "../matrix/http.ts";
import { DONE, type Outcome, ok, refused } from "../matrix/request-result.ts";
import type { EventContent } from "../matrix/send-once.ts";
import type { GhostDevice } from "./ghost-device.ts";
import type { Machines } from "./machines.ts";
import type { RoomEncryption } from "./room-key-recipients.ts";

const ROTATION_MESSAGES = 100;
const ROTATION_MS = 7 * 24 * 60 * 60 * 1_000;
const ROTATION_MESSAGES_MAX = 10_000;
const ROTATION_MS_MAX = 10 * ROTATION_MS;

const EncryptionState = z.object({
  algorithm: z.literal("m.megolm.v1.aes-sha2"),
  rotation_period_msgs: z.int().positive().optional().catch(undefined),
  rotation_period_ms: z.int().positive().optional().catch(undefined),
});

type Rotation = Pick<RoomEncryption, "rotationMessages" | "rotationMs">;

/** Encryption cannot be switched off; nothing is sent into a room that seems to have done so. */
const GONE = refused(400, "DRAWBRIDGE_ENCRYPTION_GONE");

export function createRoomEncryption(
  homeserver: Pick<Homeserver, "stateEvent" | "joinedMembers">,
  machines: Pick<Machines, "missingSessions" | "shareRoomKey" | "encrypt">,
  ledger: { isRoomEncrypted(room: RoomId): Promise<boolean> },
) {
  async function encryptionOf(actor: GhostActor, room: RoomId): Promise<Outcome<Rotation | undefined>> {
    const state = await homeserver.stateEvent(actor, room, "m.room.encryption");
    if (state.kind !== "ok") return state;
    if (state.value === undefined) return (await ledger.isRoomEncrypted(room)) ? GONE : DONE;
    const parsed = EncryptionState.safeParse(state.value);
    if (!parsed.success) return refused(400, "DRAWBRIDGE_UNKNOWN_ALGORITHM");
    const { rotation_period_msgs, rotation_period_ms } = parsed.data;
    return ok({
      rotationMessages: Math.min(rotation_period_msgs ?? ROTATION_MESSAGES, ROTATION_MESSAGES_MAX),
      rotationMs: Math.min(rotation_period_ms ?? ROTATION_MS, ROTATION_MS_MAX),
    });
  }

  async function share(device: GhostDevice, actor: GhostActor, room: RoomId, forAllDevices: boolean) {
    const readMembers = () => homeserver.joinedMembers(actor, room);
    const [encryption, members] = await Promise.all([encryptionOf(actor, room), readMembers()]);
    if (encryption.kind !== "ok") return encryption;
    if (encryption.value === undefined) return GONE;
    if (members.kind !== "ok") return members;
    const settings = { ...encryption.value, forAllDevices };
    const { made } = device.requests;
    await device.track(members.value);
    const queried = await device.requests.drive();
    if (queried.kind === "retry") return queried;
    const claim = () => machines.missingSessions(device.ghost, members.value);
    const claimed = await device.requests.alone(claim);
    if (claimed.kind === "retry") return claimed;
    // The queries to other servers take time; members that left meanwhile get no key.
    const present = device.requests.made === made ? members : await readMembers();
    if (present.kind !== "ok") return present;
    const requests = await machines.shareRoomKey(actor.ghost, room, present.value, settings);
    if (requests.length === 0) return DONE;
    const raised = await device.raiseEpoch();
    return raised.kind === "ok" ? device.requests.alone(async () => requests) : raised;
  }

  /** Encrypts one event. Call it for one event of a room at a time: each uses the shared session up. */
  async function encrypt(device: GhostDevice, actor: GhostActor, room: RoomId, event: EventContent) {
    const shared = await share(device, actor, room, event.forAllDevices === true);
    if (shared.kind !== "ok") return shared;
    const content = await machines.encrypt(actor.ghost, room, event.eventType, event.content);
    const relation = event.content["m.relates_to"];
    const outside = { ...content, ...(relation !== undefined && { "m.relates_to": relation }) };
    return ok({ eventType: "m.room.encrypted", content: outside });
  }

  return { encryptionOf, share, encrypt };
}
