// Ghosts' devices without cryptography and without a database. `FakeDevices`: an encrypted event is its own
// plaintext and opens once the session it names is known; keys come as to-device messages, or lie at the
// homeserver until they are caught up. `openDevice`: one ghost's device over a machine, a homeserver and a
// ledger of the test's own.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import type { Decryption, EncryptedRoomEvent } from "../../src/bridge/crypto/decrypt-event.ts";
import { type DeviceStatus, GhostDevice } from "../../src/bridge/crypto/ghost-device.ts";
import type { GhostDevices } from "../../src/bridge/crypto/ghost-devices.ts";
import type { DeviceRecord } from "../../src/bridge/matrix/device-api.ts";
import type { DeviceChanges } from "../../src/bridge/matrix/device-changes.ts";
import type { GhostActor } from "../../src/bridge/matrix/http.ts";
import { type Outcome, retry } from "../../src/bridge/matrix/request-result.ts";
import type { GhostMxid, RoomId } from "../../src/domain/identifiers.ts";
import { ghost, T0 } from "./ledger.ts";

type Json = Readonly<Record<string, unknown>>;

export class FakeDevices
  implements
    Pick<
      GhostDevices,
      | "receive"
      | "decrypt"
      | "statuses"
      | "catchup"
      | "catchUpSoon"
      | "sendToDevice"
      | "owns"
      | "known"
      | "beginSession"
    >
{
  readonly ghosts: readonly GhostMxid[];
  /** Sessions that the devices have. */
  readonly sessions = new Set<string>();
  /** Keys that the transactions lost: session and room. */
  atHomeserver: { readonly session: string; readonly room: RoomId }[] = [];
  /** Answers instead of what would be answered. */
  onDecrypt: (event: EncryptedRoomEvent) => Decryption | Promise<Decryption | undefined> | undefined = () =>
    undefined;
  onReceive: () => Promise<void> = async () => {};
  catchupOutcome: Outcome<undefined> = { kind: "ok", value: undefined };
  readonly received: DeviceChanges[] = [];
  readonly sent: {
    readonly ghost: GhostMxid;
    readonly type: string;
    readonly content: Json;
    readonly to: string;
  }[] = [];
  /** The ghosts for whose answers sessions were begun. */
  readonly begun: { readonly ghost: GhostMxid; readonly room: RoomId }[] = [];
  catchups = 0;
  /** Whose keys are to be read from the homeserver, because their machines were busy. */
  readonly toCatchUp: GhostMxid[] = [];

  constructor(ghosts: readonly string[] = ["docs"]) {
    this.ghosts = ghosts.map((name) => ghost(name));
  }

  async receive(changes: ReadonlyMap<GhostMxid, DeviceChanges>): Promise<void> {
    await this.onReceive();
    for (const change of changes.values()) {
      this.received.push(change);
      for (const { content } of change.toDevice as { content: { session_id: string } }[]) {
        this.sessions.add(content.session_id);
      }
    }
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

  catchUpSoon(of: GhostMxid): void {
    this.toCatchUp.push(of);
  }

  owns(_ghost: GhostMxid): boolean {
    return true;
  }

  known(): ReadonlyMap<GhostMxid, string> {
    return new Map(this.statuses().map(({ ghost, deviceId }) => [ghost, deviceId]));
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

  async catchup(): Promise<Outcome<readonly RoomId[]>> {
    this.catchups += 1;
    if (this.catchupOutcome.kind !== "ok") return this.catchupOutcome;
    const found = this.atHomeserver;
    this.atHomeserver = [];
    for (const { session } of found) this.sessions.add(session);
    return { kind: "ok", value: found.map(({ room }) => room) };
  }

  async beginSession(from: GhostMxid, room: RoomId): Promise<void> {
    this.begun.push({ ghost: from, room });
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

export const ACTOR: GhostActor = { ghost: "@agent_docs:a.test" as GhostMxid, deviceId: "DEVICE" };
const ok = <T>(value: T): Outcome<T> => ({ kind: "ok", value });

/** A device over a machine and a homeserver of the test's; not opened yet. */
export function closedDevice(
  machines: Readonly<Record<string, unknown>>,
  submit: (kind: string) => Promise<Outcome<string>>,
  others: Readonly<{
    recordedDevice?: () => Promise<unknown>;
    recordPublished?: () => Promise<void>;
    onNewKeys?: (rooms: readonly RoomId[]) => void;
    onReady?: () => void;
    open?: () => Promise<unknown>;
    deviceRecord?: () => Promise<Outcome<DeviceRecord | undefined>>;
    onRefused?: (count: number) => void;
    setDeviceRecord?: (ghost: GhostMxid, record: DeviceRecord) => Promise<Outcome<undefined>>;
    owns?: () => boolean;
    now?: () => number;
    /** The device that the process takes for the ghost's until it looks anew. */
    knownDevice?: string;
  }> = {},
): GhostDevice {
  let known = others.knownDevice;
  const identity = { curve25519: "curve", ed25519: "ed" };
  const store = { deviceId: "DEVICE", epoch: 1, publishedAt: 1, identity };
  const parts = {
    machines: {
      ...machines,
      open: others.open ?? (async () => ({ kind: "opened", identity })),
    },
    api: {
      deviceRecord: others.deviceRecord ?? (async () => ok({ deviceId: "DEVICE", epoch: 1 })),
      publishedDevice: async () => ok({ identity, crossSigned: true }),
      setDeviceRecord: others.setDeviceRecord ?? (async () => ok(undefined)),
      toDeviceSince: async () => retry("network"),
      submit: async (_actor: unknown, { kind }: { kind: string }) => await submit(kind),
    },
    ghosts: {
      ensureGhost: async () => ok({ ...ACTOR, deviceId: known ?? ACTOR.deviceId }),
      forget: () => {
        known = undefined;
      },
    },
    ledger: {
      ghosts: {
        recordedDevice: others.recordedDevice ?? (async () => ({ deviceId: "DEVICE", store })),
        raiseEpoch: async () => 2,
        recordStopped: async () => {},
        recordPublished: others.recordPublished ?? (async () => {}),
      },
      toDevicePositions: { get: async () => undefined },
    },
    clock: { now: others.now ?? (() => 0), sleep: async () => {} },
    log: { info: () => {}, warn: () => {}, error: () => {} },
    serversAllowed: async () => new Set(["a.test", "b.test"]),
    owns: others.owns ?? (() => true),
    observe: {
      keyCatchupEnded: () => {},
      toDevice: () => {},
      toDeviceRefused: others.onRefused ?? (() => {}),
      toDeviceSkipped: () => {},
      stopped: () => {},
    },
    onNewKeys: others.onNewKeys ?? (() => {}),
    onReady: others.onReady ?? (() => {}),
  };
  return new GhostDevice(ACTOR.ghost, parts as unknown as ConstructorParameters<typeof GhostDevice>[1]);
}

/** The same, open; what its machine wants sent is asked for from then on. */
export async function openDevice(
  machines: Readonly<Record<string, unknown>>,
  submit: (kind: string) => Promise<Outcome<string>>,
  others: Parameters<typeof closedDevice>[2] = {},
): Promise<GhostDevice> {
  let isOpen = false;
  const outgoing = async () => (isOpen ? await (machines["outgoing"] as () => Promise<unknown>)() : []);
  const device = closedDevice({ ...machines, outgoing }, submit, others);
  assert.equal((await device.ensure()).kind, "ok");
  await device.catchup.ended();
  isOpen = true;
  return device;
}
