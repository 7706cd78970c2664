// The devices of all ghosts: opened, kept ready, and what the rest of the bridge needs of them.
// Invariants: whatever makes a device's store or the homeserver's view of it doubtful stops that ghost alone, until an
// operator resets it, which is noticed without a restart; what came for a ghost whose machine is not open is dropped here,
// because the catchup reads it once the machine is open.
import type { Random } from "../../domain/clock.ts";
import { errorName } from "../../domain/errors.ts";
import type { GhostMxid, RoomId, UserId } from "../../domain/identifiers.ts";
import { isTooDeep } from "../../domain/strict-json.ts";
import { allEnded, KeyedSerial, mapConcurrent, resultWithin } from "../../runtime/concurrency.ts";
import { WorkLoop } from "../../runtime/work-loop.ts";
import { type DeviceChanges, NO_CHANGES } from "../matrix/device-changes.ts";
import type { Homeserver } from "../matrix/homeserver.ts";
import type { GhostActor } from "../matrix/http.ts";
import { type Outcome, ok, retry } from "../matrix/request-result.ts";
import type { EventContent } from "../matrix/send-once.ts";
import type { Decryption, EncryptedRoomEvent } from "./decrypt-event.ts";
import { createKeyDeliveryCheck, type KeyDeliveryState } from "./device-checks.ts";
import { createRoomEncryption } from "./encrypt-for-room.ts";
import { type DeviceStatus, GhostDevice, type GhostDeviceDependencies } from "./ghost-device.ts";
import type { Machines } from "./machines.ts";

const CHECK_INTERVAL_MS = 5_000;
const CHECK_AGAIN_MS = 250;
const CONCURRENCY = 4;
const INBOX_BATCH = 100;
/** So long the machines are waited for that take what came through other processes. */
const TAKE_MS_MAX = 1_000;
/**
 * So long the requests of a device are awaited, at a homeserver that may hang, and then its machine, whose thread may hang,
 * before another process may take it: the fence of its store refuses what the machine writes later.
 */
const CLOSE_MS_MAX = 5_000;
const UNAVAILABLE: Decryption = { kind: "unavailable" };

export interface GhostDevicesDependencies extends Omit<GhostDeviceDependencies, "machines" | "api"> {
  /** The machines call it for a ghost whose machine was taken away. */
  readonly machines: (onLost: (ghost: GhostMxid) => void) => Machines;
  readonly homeserver: Pick<Homeserver, "devices" | "stateEvent" | "joinedMembers">;
  readonly configured: () => Promise<readonly GhostMxid[]>;
  readonly random: Random;
}

export class GhostDevices {
  readonly #deps: GhostDevicesDependencies;
  readonly #machines: Machines;
  readonly #deviceDeps: GhostDeviceDependencies;
  readonly #devices = new Map<GhostMxid, GhostDevice>();
  #recorded: ReadonlyMap<GhostMxid, string> = new Map();
  /** To be woken when messages came for devices of this process through another one. */
  readonly inbox: WorkLoop;
  /** Catchups of keys that checks have begun. */
  #catchups = 0;
  /** Whose machines are taking such messages. */
  readonly #taking = new Set<GhostMxid>();
  readonly #encrypting = new KeyedSerial<string>();
  /** To be woken when ghosts were taken. */
  readonly loop: WorkLoop;
  readonly #delivery: ReturnType<typeof createKeyDeliveryCheck>;
  readonly #encryption: ReturnType<typeof createRoomEncryption>;

  constructor(deps: GhostDevicesDependencies) {
    const { clock, homeserver, ghosts } = deps;
    this.#deps = deps;
    this.#machines = deps.machines((ghost) => this.#devices.get(ghost)?.lost());
    this.#deviceDeps = { ...deps, machines: this.#machines, api: homeserver.devices };
    this.#encryption = createRoomEncryption(homeserver, this.#machines, deps.ledger.memberships);
    this.#delivery = createKeyDeliveryCheck(clock, deps.random, (ghost, type, content) => {
      const deviceId = this.#of(ghost).deviceId ?? "*";
      return this.sendToDevice(ghost, type, { [ghost]: { [deviceId]: content } });
    });
    ghosts.onDeviceDeleted = (ghost, deviceId) => {
      const device = this.#devices.get(ghost);
      if (device?.deviceId === deviceId) void device.stop("device_deleted").catch(this.#logged);
    };
    this.loop = new WorkLoop({
      clock,
      round: (signal) =>
        this.#checkAll(signal).catch((error: unknown) => {
          // As a failure of the loop it would make ghosts that are taken meanwhile wait as well.
          this.#logged(error);
          this.#checkAgain(0, signal);
        }),
      onError: this.#logged,
      pollIntervalMs: CHECK_INTERVAL_MS,
    });
    this.inbox = new WorkLoop({ clock, round: () => this.#takeFromInbox(), onError: this.#logged });
  }

  start(): void {
    for (const loop of [this.loop, this.inbox]) loop.start();
  }

  async drain(): Promise<void> {
    await Promise.all([this.loop.drain(), this.inbox.drain()]);
    await Promise.all([...this.#devices.values()].map((device) => device.drain()));
    await this.#machines.close();
  }

  /** Closes a device that another process is to own; with `hasLost` it may own it already. */
  async close(ghost: GhostMxid, hasLost: boolean): Promise<void> {
    const device = this.#devices.get(ghost);
    device?.end();
    this.#devices.delete(ghost);
    // A machine that is being opened is closed once it is open: else it would stay so.
    const ended = hasLost ? device?.opened() : device?.drain();
    if (ended !== undefined) await resultWithin(this.#deps.clock, CLOSE_MS_MAX, ended);
    await resultWithin(this.#deps.clock, CLOSE_MS_MAX, this.#machines.shut(ghost));
  }

  owns(ghost: GhostMxid): boolean {
    return this.#deps.owns(ghost);
  }

  isSettled(ghost: GhostMxid): boolean {
    return this.#devices.get(ghost)?.isSettled === true;
  }

  known(): ReadonlyMap<GhostMxid, string> {
    return this.#recorded;
  }

  /** Opens one ghost's device: `retry` while the homeserver does not answer, `refused` when it is stopped. */
  async ensure(ghost: GhostMxid): Promise<Outcome<GhostActor>> {
    return this.owns(ghost) ? this.#of(ghost).ensure() : retry("device_elsewhere");
  }

  /** Takes in what a transaction brought; resolves when it is durable. @throws when the database cannot commit */
  async receive(changes: ReadonlyMap<GhostMxid, DeviceChanges>): Promise<void> {
    this.#delivery.received(changes);
    await Promise.all(
      [...changes].map(async ([ghost, change]) => {
        await this.#of(ghost).receive(change);
        this.#deps.observe.toDevice(change.toDevice.length, "transaction");
      }),
    );
  }

  /** Tries the ghosts in turn until one can decrypt; else returns the most informative answer. */
  async decrypt(ghosts: readonly GhostMxid[], event: EncryptedRoomEvent, timeoutMs: number) {
    let best = UNAVAILABLE;
    let isLate = false;
    const tryEach = async () => {
      for (const ghost of ghosts) {
        const tried = await this.#decryptAs(ghost, event, ghosts);
        if (isLate) return;
        if (rank(tried) > rank(best)) best = tried;
        if (best.kind === "decrypted") return;
      }
    };
    await resultWithin(this.#deps.clock, timeoutMs, tryEach());
    isLate = true;
    return best;
  }

  /** Has the catchup read what came for the ghost, because its machine is busy. */
  catchUpSoon(ghost: GhostMxid): void {
    this.#of(ghost).catchup.soon();
  }

  async catchup(ghost: GhostMxid, signal?: AbortSignal): Promise<Outcome<readonly RoomId[]>> {
    return this.owns(ghost) ? this.#of(ghost).catchup.run(signal) : retry("device_elsewhere");
  }

  /** Sends to-device messages that no machine made. @param messages by user and device, or `*` for all devices */
  async sendToDevice(
    ghost: GhostMxid,
    eventType: string,
    messages: Readonly<Record<string, Readonly<Record<string, Readonly<Record<string, unknown>>>>>>,
  ): Promise<Outcome<undefined>> {
    const actor = await this.ensure(ghost);
    if (actor.kind !== "ok") return actor;
    const transactionId = `db1.to_device.${this.#deps.random.bytes(24).toString("base64url")}`;
    return this.#deps.homeserver.devices.sendToDevice(actor.value, eventType, transactionId, messages);
  }

  async encryptEvent(actor: GhostActor, room: RoomId, event: EventContent): Promise<Outcome<EventContent>> {
    if (!(await this.#deps.ledger.memberships.isRoomEncrypted(room))) {
      const encryption = await this.#encryption.encryptionOf(actor, room);
      if (encryption.kind !== "ok") return encryption;
      if (encryption.value === undefined) return ok(event);
    }
    const ready = await this.ensure(actor.ghost);
    if (ready.kind === "retry") return ready;
    if (ready.kind === "refused") return retry("ghost_refused", undefined, ready.errcode);
    const device = this.#of(actor.ghost);
    device.roomsBegun.add(room);
    return this.#alone(actor, room, () => this.#encryption.encrypt(device, actor, room, event));
  }

  /** Begins the session for the next answer in a room, so that its key is on its way while the question is still read. */
  async beginSession(ghost: GhostMxid, room: RoomId): Promise<void> {
    const device = this.#devices.get(ghost);
    if (device?.status()?.state !== "ready" || device.roomsBegun.has(room)) return;
    device.roomsBegun.add(room);
    const actor = await device.ensure();
    if (actor.kind !== "ok") return;
    await this.#alone(actor.value, room, () => this.#encryption.share(device, actor.value, room, false));
  }

  #alone<T>(actor: GhostActor, room: RoomId, work: () => Promise<Outcome<T>>): Promise<Outcome<T>> {
    return this.#encrypting.run(`${actor.ghost} ${room}`, async () => {
      if (actor.signal?.aborted === true) return retry("stopped");
      try {
        return await work();
      } catch (error) {
        this.#logged(error);
        return retry("device_unavailable");
      }
    });
  }

  /** Deletes the sessions of a room that the ghost has left. Those of a device that is not open here are pruned by age. */
  async forgetRoom(ghost: GhostMxid, room: RoomId): Promise<void> {
    if (this.#devices.get(ghost)?.isOpen) await this.#machines.forgetRoom(ghost, room).catch(this.#logged);
  }

  statuses(): readonly DeviceStatus[] {
    return [...this.#devices.values()].flatMap((device) => device.status() ?? []);
  }

  keyDelivery(): KeyDeliveryState {
    return this.#delivery.state;
  }

  #of(ghost: GhostMxid): GhostDevice {
    const known = this.#devices.get(ghost);
    if (known !== undefined) return known;
    const made = new GhostDevice(ghost, this.#deviceDeps);
    this.#devices.set(ghost, made);
    return made;
  }

  /** @param ghosts all of the room's, whichever of them will answer */
  async #decryptAs(ghost: GhostMxid, event: EncryptedRoomEvent, ghosts: readonly GhostMxid[]) {
    const device = this.#of(ghost);
    if (!device.isOpen) return UNAVAILABLE;
    try {
      const isNew = await device.track([event.sender]);
      const first = await this.#machines.decrypt(ghost, event);
      const isQueried = "queried" in first;
      if (isQueried) this.#queryForOthers(ghosts, ghost, event.sender);
      if (!isNew && !isQueried) return first;
      if (first.kind !== "refused" || first.reason !== "device_not_trusted") {
        device.requests.driveSoon();
        return first;
      }
      await device.requests.drive();
      return await this.#machines.decrypt(ghost, event);
    } catch (error) {
      this.#logged(error);
      return UNAVAILABLE;
    }
  }

  /** The other ghosts of a room query too when a user wrote from a device that one does not know. */
  #queryForOthers(ghosts: readonly GhostMxid[], but: GhostMxid, user: UserId): void {
    for (const ghost of ghosts) {
      if (ghost === but || !this.owns(ghost)) continue;
      void this.#of(ghost)
        .receive({ ...NO_CHANGES, changedUsers: [user] })
        .catch(this.#logged);
    }
  }

  async #checkAll(signal: AbortSignal): Promise<void> {
    const recorded = await this.#deps.ledger.ghosts.recordedDevices();
    this.#recorded = new Map(recorded.map(({ ghost, deviceId }) => [ghost, deviceId]));
    for (const { ghost, deviceId } of recorded) {
      const device = this.#devices.get(ghost);
      if (device?.deviceId === undefined || device.deviceId === deviceId) continue;
      // An operator has reset the device. Its work ends first: it might still write its own record.
      device.end();
      await device.drain();
      this.#deps.ghosts.forget(ghost);
      this.#devices.delete(ghost);
    }
    const ghosts = new Set([...(await this.#deps.configured()), ...recorded.map(({ ghost }) => ghost)]);
    const devices = [...ghosts].filter((ghost) => this.owns(ghost)).map((ghost) => this.#of(ghost));
    await mapConcurrent(devices, CONCURRENCY, async (device) => {
      if (!signal.aborted) await this.#check(device, signal).catch(this.#logged);
    });
    const waits = devices.flatMap(({ opensAgainIn }) => opensAgainIn ?? []);
    if (waits.length > 0) this.#checkAgain(Math.min(...waits), signal);
    const ready = this.statuses().find(({ state }) => state === "ready");
    if (ready !== undefined && !signal.aborted) await this.#delivery.check(ready.ghost);
  }

  /** What keeps a device from being opened, such as a failover of the database, may be over before the next check. */
  #checkAgain(afterMs: number, signal: AbortSignal): void {
    const wake = () => this.loop.wake();
    void this.#deps.clock.sleep(Math.max(CHECK_AGAIN_MS, afterMs), signal).then(wake, () => undefined);
  }

  /** Each machine takes its messages in their order, and one that is slow holds up no other. */
  async #takeFromInbox(): Promise<boolean> {
    const { ledger, clock } = this.#deps;
    const open = [...this.#devices.values()].filter((device) => device.isOpen).map(({ ghost }) => ghost);
    const free = open.filter((ghost) => !this.#taking.has(ghost));
    if (free.length === 0) return false;
    const mail = await ledger.deviceInbox.read(free, INBOX_BATCH);
    const all = [...Map.groupBy(mail, ({ ghost }) => ghost)].map((one) => this.#takeMail(...one));
    await resultWithin(clock, TAKE_MS_MAX, allEnded(all));
    return mail.length > 0;
  }

  async #takeMail(ghost: GhostMxid, mail: readonly { readonly id: string; readonly changes: string }[]) {
    this.#taking.add(ghost);
    try {
      for (const { changes } of mail) {
        const stored = JSON.parse(changes) as DeviceChanges;
        // What a machine's thread cannot be sent would be tried again by each owner, and keep the rest from being read.
        const toDevice = stored.toDevice.filter((message) => !isTooDeep(message));
        await this.receive(new Map([[ghost, { ...stored, toDevice }]]));
      }
      await this.#deps.ledger.deviceInbox.delete(mail.map(({ id }) => id));
    } finally {
      this.#taking.delete(ghost);
    }
  }

  async #check(device: GhostDevice, signal: AbortSignal): Promise<void> {
    const ready = await device.ensure();
    if (ready.kind !== "ok") return;
    // Other servers can make both take long, and ghosts that were taken meanwhile are opened by the next check.
    if (device.requests.isDue) device.requests.driveSoon();
    if (device.catchup.isDue && this.#catchups < CONCURRENCY) void this.#catchUp(device, signal);
  }

  async #catchUp(device: GhostDevice, signal: AbortSignal): Promise<void> {
    this.#catchups += 1;
    await device.catchup.run(signal);
    this.#catchups -= 1;
    // Others may be due.
    this.loop.wake();
  }

  readonly #logged = (error: unknown): void => {
    const { log } = this.#deps;
    log.warn({ err: errorName(error) }, "an operation on the ghosts' devices failed");
  };
}

/** How informative an answer is: of several ghosts' answers the highest counts. */
function rank(decryption: Decryption): number {
  if (decryption.kind === "missing_key") return decryption.withheld === undefined ? 1 : 2;
  return { unavailable: 0, refused: 3, decrypted: 4 }[decryption.kind];
}
