// All ghosts' devices: opened, looked after, and what the rest of the bridge asks of them.
// Invariants: one ghost that is stopped, or cannot be opened, holds up no other; what came for a ghost whose
// machine is not open is dropped here, because the homeserver still has it and it is read back once it is
// open; a device that an operator has reset is taken up again without a restart.
import type { Random } from "../../domain/clock.ts";
import type { GhostMxid, RoomId, UserId } from "../../domain/identifiers.ts";
import { KeyedSerial } from "../../runtime/concurrency.ts";
import { allEnded, WorkLoop } from "../../runtime/work-loop.ts";
import type { DeviceChanges } from "../matrix/device-api.ts";
import type { Homeserver } from "../matrix/homeserver.ts";
import type { GhostActor } from "../matrix/http.ts";
import { type Outcome, retry } from "../matrix/outcome.ts";
import { DeliveryCheck } from "./delivery-check.ts";
import type {
  DeviceStatus,
  GhostDevices,
  KeyCatchupResult,
  KeyDeliveryState,
  RoomContent,
  ToDeviceMessages,
} from "./device-types.ts";
import { GhostDevice, type GhostDeviceDependencies } from "./ghost-device.ts";
import { encryptionOf, sealForRoom } from "./seal-for-room.ts";
import type { Decryption, EncryptedRoomEvent, Machines } from "./types.ts";

const LOOK_MS = 5_000;
/** Devices that are opened or read back at a time. */
const CONCURRENCY = 4;

export interface GhostDevicesDependencies extends Omit<GhostDeviceDependencies, "machines" | "api"> {
  /** Makes the machines; they tell by the callback that a ghost's machine was taken away. */
  readonly machines: (onLost: (ghost: GhostMxid) => void) => Machines;
  readonly homeserver: Pick<Homeserver, "devices" | "stateEvent" | "joinedMembers">;
  /** The ghosts of agents.yaml as it is now. */
  readonly configured: () => Promise<readonly GhostMxid[]>;
  /** An ID for to-device messages that no machine made: unique across the appservice. */
  readonly random: Random;
}

export function createGhostDevices(deps: GhostDevicesDependencies): GhostDevices {
  return new Devices(deps);
}

class Devices implements GhostDevices {
  readonly #deps: GhostDevicesDependencies;
  readonly #machines: Machines;
  readonly #device: GhostDeviceDependencies;
  readonly #devices = new Map<GhostMxid, GhostDevice>();
  readonly #sealing = new KeyedSerial<string>();
  readonly #loop: WorkLoop;
  readonly #delivery: DeliveryCheck;

  constructor(deps: GhostDevicesDependencies) {
    this.#deps = deps;
    this.#machines = deps.machines((ghost) => this.#devices.get(ghost)?.lost());
    this.#device = { ...deps, machines: this.#machines, api: deps.homeserver.devices };
    this.#delivery = new DeliveryCheck({
      ...deps,
      send: (ghost, type, content) => {
        const deviceId = this.#of(ghost).deviceId ?? "*";
        return this.sendToDevice(ghost, type, { [ghost]: { [deviceId]: content } });
      },
    });
    deps.ghosts.onDeviceDeleted((ghost, deviceId) => {
      const device = this.#devices.get(ghost);
      if (device?.deviceId === deviceId) void device.stop("device_deleted").catch(this.#logged);
    });
    this.#loop = new WorkLoop({
      clock: deps.clock,
      round: async (signal) => {
        await this.#look(signal);
        return false;
      },
      onError: this.#logged,
      pollIntervalMs: LOOK_MS,
    });
  }

  start(signal: AbortSignal): void {
    this.#loop.start();
    signal.addEventListener("abort", () => void this.#loop.drain().catch(this.#logged), { once: true });
  }

  async drain(): Promise<void> {
    await this.#loop.drain();
    await Promise.all([...this.#devices.values()].map((device) => device.drain()));
    await this.#machines.close();
  }

  ensure(ghost: GhostMxid): Promise<Outcome<GhostActor>> {
    return this.#of(ghost).ensure();
  }

  async receive(
    changes: ReadonlyMap<GhostMxid, DeviceChanges>,
  ): Promise<{ readonly roomsWithNewKeys: readonly RoomId[] }> {
    this.#delivery.seen(changes);
    const rooms = await Promise.all(
      [...changes].map(async ([ghost, change]) => {
        const received = await this.#of(ghost).receive(change);
        this.#deps.observe.toDevice(change.toDevice.length, "transaction");
        return received;
      }),
    );
    return { roomsWithNewKeys: [...new Set(rooms.flat())] };
  }

  async decrypt(
    ghosts: readonly GhostMxid[],
    event: EncryptedRoomEvent,
    timeoutMs: number,
  ): Promise<Decryption> {
    const over = new AbortController();
    const late = this.#deps.clock.sleep(timeoutMs, over.signal).then(
      () => undefined,
      () => undefined,
    );
    let best: Decryption = { kind: "unavailable" };
    try {
      for (const ghost of ghosts) {
        const tried = await Promise.race([this.#decryptAs(ghost, event, ghosts), late]);
        if (tried === undefined) break;
        if (rank(tried) > rank(best)) best = tried;
        if (best.kind === "decrypted") break;
      }
      return best;
    } finally {
      over.abort();
    }
  }

  catchup(ghost: GhostMxid, signal?: AbortSignal): Promise<Outcome<KeyCatchupResult>> {
    return this.#of(ghost).catchup.run(signal);
  }

  async sendToDevice(
    ghost: GhostMxid,
    eventType: string,
    messages: ToDeviceMessages,
  ): Promise<Outcome<undefined>> {
    const actor = await this.ensure(ghost);
    if (actor.kind !== "ok") return actor;
    const transactionId = `db1.to_device.${this.#deps.random.bytes(24).toString("base64url")}`;
    return this.#deps.homeserver.devices.sendToDevice(actor.value, eventType, transactionId, messages);
  }

  async follow(ghost: GhostMxid, users: readonly UserId[]): Promise<void> {
    const device = this.#of(ghost);
    if (await device.follow(users)) device.requests.driveSoon();
  }

  async encryptFor(actor: GhostActor, room: RoomId, event: RoomContent): Promise<Outcome<RoomContent>> {
    const { homeserver, ledger } = this.#deps;
    const encryption = await encryptionOf({ homeserver, ledger: ledger.memberships }, actor, room);
    if (encryption.kind !== "ok") return encryption;
    const settings = encryption.value;
    if (settings === undefined) return { kind: "ok", value: event };
    const ready = await this.ensure(actor.ghost);
    if (ready.kind === "retry") return ready;
    if (ready.kind === "refused") return retry("ghost_refused", undefined, ready.errcode);
    const device = this.#of(actor.ghost);
    const parts = { homeserver, ledger: ledger.memberships, machines: this.#machines };
    return this.#sealing.run(`${actor.ghost} ${room}`, async () => {
      if (actor.signal?.aborted === true) return retry("stopped");
      try {
        return await sealForRoom(parts, device, actor, room, settings, event);
      } catch (error) {
        // The machine's thread, or the database; the event is sealed anew at the next try.
        this.#logged(error);
        return retry("device_unavailable");
      }
    });
  }

  statuses(): readonly DeviceStatus[] {
    return [...this.#devices.values()]
      .map((device) => device.status())
      .filter((status) => status !== undefined);
  }

  delivery(): KeyDeliveryState {
    return this.#delivery.state;
  }

  #of(ghost: GhostMxid): GhostDevice {
    const known = this.#devices.get(ghost);
    if (known !== undefined) return known;
    const made = new GhostDevice(ghost, this.#device);
    this.#devices.set(ghost, made);
    return made;
  }

  /** @param ghosts those of the room, whichever of them will answer */
  async #decryptAs(
    ghost: GhostMxid,
    event: EncryptedRoomEvent,
    ghosts: readonly GhostMxid[],
  ): Promise<Decryption> {
    const device = this.#of(ghost);
    if (!device.isOpen) return { kind: "unavailable" };
    try {
      const isNew = await device.follow([event.sender]);
      const first = await this.#machines.decrypt(ghost, event);
      const isAsked = (first.kind === "decrypted" || first.kind === "missing_key") && first.asked === true;
      if (isAsked) this.#seekFor(ghosts, ghost, event.sender);
      if (!isNew && !isAsked) return first;
      if (first.kind !== "refused" || first.reason !== "device_not_trusted") {
        device.requests.driveSoon();
        return first;
      }
      // Nobody had asked for this user's devices yet.
      await device.requests.drive();
      return await this.#machines.decrypt(ghost, event);
    } catch (error) {
      this.#logged(error);
      return { kind: "unavailable" };
    }
  }

  /** What one ghost asks for, since it wrote from an unknown device, the others of its room ask for too. */
  #seekFor(ghosts: readonly GhostMxid[], but: GhostMxid, user: UserId): void {
    const nothing = {
      toDevice: [],
      leftUsers: [],
      oneTimeKeyCounts: undefined,
      unusedFallbackKeys: undefined,
    };
    for (const ghost of ghosts) {
      if (ghost === but) continue;
      void this.#of(ghost)
        .receive({ ...nothing, changedUsers: [user] })
        .catch(this.#logged);
    }
  }

  async #look(signal: AbortSignal): Promise<void> {
    const recorded = await this.#deps.ledger.ghosts.recordedDevices();
    for (const { ghost, deviceId } of recorded) {
      const device = this.#devices.get(ghost);
      if (device?.deviceId === undefined || device.deviceId === deviceId) continue;
      // An operator has reset it. What it was doing ends first: it might still tell the homeserver of itself.
      device.lost();
      await device.drain();
      this.#deps.ghosts.forget(ghost);
      this.#devices.delete(ghost);
    }
    const ghosts = new Set([...(await this.#deps.configured()), ...recorded.map(({ ghost }) => ghost)]);
    const queue = [...ghosts].map((ghost) => this.#of(ghost));
    const worker = async () => {
      for (let device = queue.shift(); device !== undefined && !signal.aborted; device = queue.shift()) {
        await this.#lookAfter(device, signal).catch(this.#logged);
      }
    };
    await allEnded(Array.from({ length: CONCURRENCY }, worker));
    const ready = [...this.#devices.values()].find((device) => device.isReady);
    if (ready !== undefined && !signal.aborted) await this.#delivery.look(ready.ghost);
  }

  async #lookAfter(device: GhostDevice, signal: AbortSignal): Promise<void> {
    if (device.stopped !== undefined) return;
    const ready = await device.ensure();
    if (ready.kind !== "ok") return;
    if (device.requests.isDue) await device.requests.drive();
    if (device.catchup.isDue) await device.catchup.run(signal);
  }

  readonly #logged = (error: unknown): void => {
    const { log } = this.#deps;
    log.warn({ err: error instanceof Error ? error.name : "unknown" }, "ghosts' devices: a step failed");
  };
}

/** How much an answer tells: of several ghosts' the most telling one counts. */
function rank(decryption: Decryption): number {
  switch (decryption.kind) {
    case "unavailable":
      return 0;
    case "missing_key":
      return decryption.withheld === undefined ? 1 : 2;
    case "refused":
      return 3;
    case "decrypted":
      return 4;
  }
}
