// Ghosts' devices without cryptography: an encrypted event is its own plaintext, and opens once the session
// it names is known. Keys come as to-device messages, or lie at the homeserver until they are read back.
import { createHash } from "node:crypto";
import type { Decryption, EncryptedRoomEvent } from "../../src/bridge/crypto/decrypt-event.ts";
import type { DeviceStatus } from "../../src/bridge/crypto/ghost-device.ts";
import type { GhostDevices } from "../../src/bridge/crypto/ghost-devices.ts";
import type { KeyCatchupResult } from "../../src/bridge/crypto/key-catchup.ts";
import type { DeviceChanges } from "../../src/bridge/matrix/device-api.ts";
import type { Outcome } from "../../src/bridge/matrix/outcome.ts";
import type { GhostMxid, RoomId, UserId } from "../../src/domain/identifiers.ts";
import { ghost, T0 } from "./ledger.ts";

type Json = Readonly<Record<string, unknown>>;

export class FakeDevices
  implements Pick<GhostDevices, "receive" | "decrypt" | "statuses" | "catchup" | "track" | "sendToDevice">
{
  readonly ghosts: readonly GhostMxid[];
  /** Sessions that the devices have. */
  readonly sessions = new Set<string>();
  /** Keys that the transactions lost: session and room. */
  atHomeserver: { readonly session: string; readonly room: RoomId }[] = [];
  /** Answers instead of what would be answered. */
  onDecrypt: (event: EncryptedRoomEvent) => Decryption | Promise<Decryption> | undefined = () => undefined;
  onReceive: () => Promise<void> = async () => {};
  catchupOutcome: Outcome<undefined> = { kind: "ok", value: undefined };
  readonly received: DeviceChanges[] = [];
  readonly sent: {
    readonly ghost: GhostMxid;
    readonly type: string;
    readonly content: Json;
    readonly to: string;
  }[] = [];
  readonly tracked: UserId[] = [];
  catchups = 0;

  constructor(ghosts: readonly string[] = ["docs"]) {
    this.ghosts = ghosts.map((name) => ghost(name));
  }

  async receive(
    changes: ReadonlyMap<GhostMxid, DeviceChanges>,
  ): Promise<{ roomsWithNewKeys: readonly RoomId[] }> {
    await this.onReceive();
    const rooms: RoomId[] = [];
    for (const change of changes.values()) {
      this.received.push(change);
      for (const { content } of change.toDevice as { content: { session_id: string; room_id: RoomId } }[]) {
        this.sessions.add(content.session_id);
        rooms.push(content.room_id);
      }
    }
    return { roomsWithNewKeys: rooms };
  }

  async decrypt(ghosts: readonly GhostMxid[], event: EncryptedRoomEvent): Promise<Decryption> {
    const forced = await this.onDecrypt(event);
    if (forced !== undefined) return forced;
    const content = event.raw["content"] as { session_id: string; ciphertext: string };
    if (ghosts.length === 0) return { kind: "unavailable" };
    if (!this.sessions.has(content.session_id)) return { kind: "missing_key", withheld: undefined };
    const inside = JSON.parse(content.ciphertext) as { type: string; content: Json };
    const indexDigest = createHash("sha256").update(`${event.room} ${content.ciphertext}`).digest();
    return { kind: "decrypted", ...inside, indexDigest };
  }

  statuses(): readonly DeviceStatus[] {
    return this.ghosts.map((one) => ({
      ghost: one,
      deviceId: "DEVICE",
      state: "ready",
      stopped: undefined,
      crossSigned: true,
      catchupFailing: false,
    }));
  }

  async catchup(): Promise<Outcome<KeyCatchupResult>> {
    this.catchups += 1;
    if (this.catchupOutcome.kind !== "ok") return this.catchupOutcome;
    const found = this.atHomeserver;
    this.atHomeserver = [];
    for (const { session } of found) this.sessions.add(session);
    return { kind: "ok", value: { messages: found.length, roomsWithNewKeys: found.map(({ room }) => room) } };
  }

  async track(_ghost: GhostMxid, users: readonly UserId[]): Promise<void> {
    this.tracked.push(...users);
  }

  async sendToDevice(
    from: GhostMxid,
    type: string,
    messages: Parameters<GhostDevices["sendToDevice"]>[2],
  ): Promise<Outcome<undefined>> {
    for (const [to, devices] of Object.entries(messages)) {
      for (const content of Object.values(devices)) this.sent.push({ ghost: from, type, content, to });
    }
    return { kind: "ok", value: undefined };
  }
}

/** An encrypted event as a homeserver sends it; inside, a message that mentions the ghost `docs`. */
export function sealed(id: string, changes: Json = {}, inside: Json = {}, session = "session-1") {
  const message = {
    type: "m.room.message",
    content: {
      msgtype: "m.text",
      body: `question ${id}`,
      "m.mentions": { user_ids: [ghost("docs")] },
      ...inside,
    },
  };
  return {
    type: "m.room.encrypted",
    event_id: `$${id}`,
    room_id: "!r",
    sender: "@alice:a.test",
    origin_server_ts: T0,
    content: {
      algorithm: "m.megolm.v1.aes-sha2",
      ciphertext: JSON.stringify(message),
      session_id: session,
      sender_key: "sender-key",
      device_id: "ALICE",
    },
    ...changes,
  };
}

/** The field of a transaction that brings the key of a session. */
export function keyFor(session = "session-1", room = "!r") {
  return {
    "de.sorunome.msc2409.to_device": [
      {
        type: "m.room_key",
        sender: "@alice:a.test",
        content: { session_id: session, room_id: room },
        to_user_id: ghost("docs"),
        to_device_id: "DEVICE",
      },
    ],
  };
}
