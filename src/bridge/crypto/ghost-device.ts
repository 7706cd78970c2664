// One ghost's device: opened once its store and the homeserver agree about it, published, used, stopped.
// Invariants: what another server sends reaches the machine only if an agent allows that server, because all of it grows
// the store; the homeserver gets a new epoch before it gets keys or messages made after it; a device that stopped takes
// part again after a reset, or a start with what was missing restored.
import { isDeepStrictEqual } from "node:util";
import { DrawbridgeError, errorName } from "../../domain/errors.ts";
import type { GhostMxid, RoomId, UserId } from "../../domain/identifiers.ts";
import { Serial } from "../../runtime/concurrency.ts";
import { isTakenFrom } from "../agents/sender-policy.ts";
import type { RecordedDevice } from "../ledger/ghosts.ts";
import type { Ledger } from "../ledger/ledger.ts";
import type { DeviceStopReason } from "../ledger/states.ts";
import type { DeviceRecord, OutgoingRequest, PublishedDevice } from "../matrix/device-api.ts";
import type { DeviceChanges } from "../matrix/device-changes.ts";
import type { Ghosts } from "../matrix/ghosts.ts";
import type { GhostActor } from "../matrix/http.ts";
import { type Failure, type Outcome, ok, type Refused, retry } from "../matrix/request-result.ts";
import { createDeviceRequests } from "./device-requests.ts";
import { createKeyCatchup, type KeyCatchupDependencies, type KeyCatchupObserver } from "./key-catchup.ts";
import { ThreadRefusal } from "./machine-thread.ts";
import type { Machines, OpenResult } from "./machines.ts";

export type DeviceStatus = NonNullable<ReturnType<GhostDevice["status"]>>;

export interface DeviceObserver extends KeyCatchupObserver {
  toDeviceRefused(count: number): void;
  stopped(reason: DeviceStopReason): void;
}

export interface GhostDeviceDependencies
  extends Pick<KeyCatchupDependencies, "api" | "clock" | "log" | "onNewKeys"> {
  readonly machines: Pick<
    Machines,
    "open" | "receive" | "outgoing" | "sent" | "crossSign" | "track" | "shut"
  >;
  readonly ghosts: Ghosts;
  readonly ledger: Pick<Ledger, "ghosts" | "memberships" | "toDevicePositions" | "deviceInbox">;
  readonly observe: DeviceObserver;
  /** The servers that an agent allows, besides the ghost's own. */
  readonly serversAllowed: () => Promise<ReadonlySet<string>>;
  readonly owns: (ghost: GhostMxid) => boolean;
  readonly onReady: () => void;
}

/** The machine cannot be called now, and not because the database cannot commit. */
const isUnavailable = (error: unknown) =>
  error instanceof DrawbridgeError &&
  error.code === "device_unavailable" &&
  !(error.cause instanceof ThreadRefusal && error.cause.kind === "database_unavailable");

export class GhostDevice {
  readonly ghost: GhostMxid;
  readonly requests: ReturnType<typeof createDeviceRequests>;
  readonly catchup: ReturnType<typeof createKeyCatchup>;
  readonly roomsBegun = new Set<RoomId>();
  readonly #deps: GhostDeviceDependencies;
  readonly #tracked = new Set<UserId>();
  readonly #raising = new Serial();
  #actor: GhostActor | undefined;
  /** The result of loading the store, while a machine is open. */
  #opened: OpenResult | undefined;
  /** Whether its store was found consistent with the homeserver: nothing reaches the machine before. */
  #isConsistent = false;
  #opening: Promise<Outcome<GhostActor>> | undefined;
  #isReady = false;
  #hasEnded = false;
  #stopped: DeviceStopReason | undefined;
  #crossSigned = false;
  #failure: Failure | undefined;
  #retryAt = 0;

  constructor(ghost: GhostMxid, deps: GhostDeviceDependencies) {
    this.ghost = ghost;
    this.#deps = deps;
    this.requests = createDeviceRequests({
      ...deps,
      ghost,
      actor: () => (this.isOpen ? this.#actor : undefined),
      raiseEpoch: () => this.raiseEpoch(),
      onRefused: (outcome, kind) => this.#refused(outcome, kind),
    });
    this.catchup = createKeyCatchup({
      ...deps,
      positions: deps.ledger.toDevicePositions,
      ghost,
      ensure: () => this.ensure(),
      take: (changes) => this.#take(changes),
      onRefused: (outcome) => this.#refused(outcome, undefined),
    });
  }

  get deviceId(): string | undefined {
    return this.#actor?.deviceId;
  }

  get isSettled(): boolean {
    return this.#isReady || this.#failure !== undefined;
  }

  get isOpen(): boolean {
    return this.#opened?.kind === "opened" && this.#isConsistent && this.#stopped === undefined;
  }

  get #isElsewhere(): boolean {
    return this.#hasEnded || !this.#deps.owns(this.ghost);
  }

  /** In how many milliseconds opening it may be tried again; undefined when that needs nothing, or an operator. */
  get opensAgainIn(): number | undefined {
    if (this.#isReady || this.#stopped !== undefined || this.#failure === undefined) return undefined;
    return Math.max(0, this.#retryAt - this.#deps.clock.now());
  }

  /** `starting`: not open yet; it is tried again by itself. */
  status() {
    if (this.#actor === undefined) return undefined;
    return {
      ghost: this.ghost,
      deviceId: this.#actor.deviceId,
      state: this.#stopped !== undefined ? "stopped" : this.#isReady ? "ready" : "starting",
      stopped: this.#stopped,
      crossSigned: this.#crossSigned,
      catchupFailing: this.catchup.isFailing,
    } as const;
  }

  async ensure(): Promise<Outcome<GhostActor>> {
    if (this.#hasEnded) return retry("device_elsewhere");
    if (this.#isReady && this.#actor !== undefined) return ok(this.#actor);
    const isTooSoon = this.#deps.clock.now() < this.#retryAt || this.#stopped !== undefined;
    if (this.#opening === undefined && this.#failure !== undefined && isTooSoon) return this.#failure;
    this.#opening ??= this.#openLogged();
    return this.#opening;
  }

  /** Takes in what a transaction brought; the catchup reads what is dropped. @throws when the database cannot commit */
  async receive(changes: DeviceChanges): Promise<void> {
    if (!this.isOpen) return;
    try {
      const rooms = await this.#take(changes);
      if (rooms.length > 0) this.#deps.onNewKeys(rooms);
    } catch (error) {
      // A transaction that is refused comes again without its to-device messages, so they are read then too.
      this.catchup.soon();
      if (!isUnavailable(error)) throw error;
    }
  }

  async track(users: readonly UserId[]): Promise<boolean> {
    const fresh = users.filter((user) => !this.#tracked.has(user));
    if (fresh.length === 0 || !this.isOpen) return false;
    await this.#deps.machines.track(this.ghost, fresh);
    for (const user of fresh) this.#tracked.add(user);
    return true;
  }

  /** Records here and at the homeserver that the state has advanced, so that a store restored to an older one is detected. */
  raiseEpoch(): Promise<Outcome<undefined>> {
    return this.#raising.run(() => this.#raiseEpoch());
  }

  async #raiseEpoch(): Promise<Outcome<undefined>> {
    const { ledger, api } = this.#deps;
    const { ghost, deviceId } = this;
    const epoch = deviceId === undefined ? undefined : await ledger.ghosts.raiseEpoch(ghost, deviceId);
    if (deviceId === undefined || epoch === undefined) return retry("device_unavailable");
    const written = await api.setDeviceRecord(ghost, { deviceId, epoch });
    const recorded = await ledger.ghosts.recordedDevice(ghost);
    if (recorded === undefined || recorded.deviceId === deviceId) return written;
    // The record of a reset is written back, else the new device would seem to have lost its store.
    await api.setDeviceRecord(ghost, { deviceId: recorded.deviceId, epoch: recorded.store?.epoch ?? 0 });
    return retry("device_unavailable");
  }

  lost(): void {
    if (this.#opened === undefined) return;
    this.#forgetMachine();
    this.#failed(retry("device_unavailable"));
  }

  /** Another process is to own the ghost, or it has another device: what still waits for this one does not open it again. */
  end(): void {
    this.#hasEnded = true;
    this.lost();
  }

  async stop(reason: DeviceStopReason): Promise<void> {
    if (this.#stopped !== undefined) return;
    const { machines, ledger, clock, log, observe } = this.#deps;
    const { ghost, deviceId } = this;
    const wasOpen = this.#opened !== undefined;
    this.#forgetMachine();
    this.#stopped = reason;
    this.#failed(retry("ghost_refused"));
    log.error({ event: "ghost_device_stopped", ghost, deviceId, reason }, "a ghost's device has stopped");
    observe.stopped(reason);
    if (deviceId !== undefined) await ledger.ghosts.recordStopped(ghost, deviceId, reason, clock.now());
    if (wasOpen) await machines.shut(ghost);
  }

  /** Resolves when its machine is not being opened any more. */
  async opened(): Promise<void> {
    await this.#opening;
  }

  async drain(): Promise<void> {
    await this.opened();
    await this.catchup.ended();
    await this.requests.ended();
    await this.#raising.ended();
  }

  async #take(changes: DeviceChanges): Promise<readonly RoomId[]> {
    const { machines, serversAllowed, observe } = this.#deps;
    const allowed = await serversAllowed();
    const toDevice = changes.toDevice.filter(({ sender }) => isTakenFrom(sender, this.ghost, allowed));
    observe.toDeviceRefused(changes.toDevice.length - toDevice.length);
    const roomsWithNewKeys = await machines.receive(this.ghost, { ...changes, toDevice });
    this.requests.driveSoon();
    return roomsWithNewKeys;
  }

  #forgetMachine(): void {
    this.#opened = undefined;
    this.#isConsistent = false;
    this.#isReady = false;
    this.#tracked.clear();
    this.roomsBegun.clear();
  }

  #failed(failure: Failure): void {
    this.#failure = failure;
    const { afterMs } = failure.kind === "retry" ? failure : retry("ghost_refused");
    this.#retryAt = this.#deps.clock.now() + afterMs;
  }

  async #openLogged(): Promise<Outcome<GhostActor>> {
    const outcome = await this.#open().catch((error: unknown) => {
      const err = errorName(error);
      this.#deps.log.warn({ ghost: this.ghost, err }, "a ghost's device could not be opened");
      return retry("device_unavailable");
    });
    this.#opening = undefined;
    if (outcome.kind !== "ok") this.#failed(outcome);
    return outcome;
  }

  async #open(): Promise<Outcome<GhostActor>> {
    const { ghosts, api, ledger, machines, clock } = this.#deps;
    const { ghost } = this;
    let made = await ghosts.ensureGhost(ghost);
    // Its device may have been reset while another process had the ghost.
    const current = made.kind === "ok" ? await ledger.ghosts.recordedDevice(ghost) : undefined;
    if (made.kind === "ok" && current !== undefined && current.deviceId !== made.value.deviceId) {
      ghosts.forget(ghost);
      made = await ghosts.ensureGhost(ghost);
    }
    if (made.kind !== "ok") return made;
    const actor = made.value;
    const { deviceId } = actor;
    this.#actor = actor;

    const load = async () => {
      // Opening the store takes it from the machine of its owner.
      if (!this.#isElsewhere) this.#opened = await machines.open(ghost, deviceId, "load");
    };
    // The homeserver is read before the ledger: what is recorded there is never ahead of it.
    const [record, published] = await Promise.all([
      api.deviceRecord(ghost),
      api.publishedDevice(ghost, deviceId),
      this.#opened ?? load(),
    ]);
    if (record.kind !== "ok") return record;
    if (published.kind !== "ok") return published;
    // Another process may have made it after it was looked for, and published it.
    if (this.#opened?.kind === "no_store") await load();
    if (this.#opened === undefined || this.#isElsewhere) return retry("device_unavailable");
    const store = (await ledger.ghosts.recordedDevice(ghost))?.store;
    const facts = { deviceId, opened: this.#opened, store, published: published.value, record: record.value };
    const found = checkConsistency(facts);
    if (found === "create") {
      this.#opened = undefined;
      const created = await machines.open(ghost, deviceId, "create");
      // Another process was faster: the store that it made is loaded next time.
      if (created.kind !== "opened") return retry("device_unavailable");
      this.#opened = created;
    } else if (found !== "consistent") {
      await this.stop(found);
      return retry("ghost_refused");
    }
    // The machine may have been taken away meanwhile.
    if (this.#opened === undefined || this.#isElsewhere) return retry("device_unavailable");
    this.#isConsistent = true;
    await ledger.ghosts.recordStopped(ghost, deviceId, undefined, clock.now());
    // The homeserver itself was restored from a backup: a position from its future would skip messages.
    const ahead = record.value !== undefined && store !== undefined && record.value.epoch + 1 < store.epoch;
    if (ahead) await ledger.toDevicePositions.set(ghost, null, await ledger.toDevicePositions.get(ghost));
    // Not awaited: what makes use of a new epoch raises it once more, after this.
    void this.raiseEpoch().catch(() => undefined);
    this.#crossSigned = published.value?.crossSigned === true;
    return this.#publish(actor);
  }

  async #publish(actor: GhostActor): Promise<Outcome<GhostActor>> {
    const { ledger, clock, log } = this.#deps;
    const { ghost } = this;
    if (this.#crossSigned) {
      // Whatever else is to be requested delays nobody who can use the device as it is.
      this.requests.driveSoon();
    } else {
      const driven = await this.requests.drive();
      if (driven.kind === "retry") return driven;
      const signed = await this.requests.alone(() => this.#deps.machines.crossSign(ghost));
      if (signed.kind === "retry") return signed;
      const published = await this.#deps.api.publishedDevice(ghost, actor.deviceId);
      if (published.kind !== "ok") return published;
      if (published.value === undefined) return retry("device_unavailable");
      this.#crossSigned = published.value.crossSigned;
    }
    await ledger.ghosts.recordPublished(ghost, actor.deviceId, clock.now());
    if (!this.isOpen) return retry("device_unavailable");
    this.#isReady = true;
    this.#failure = undefined;
    const { deviceId } = actor;
    log.info({ ghost, deviceId, crossSigned: this.#crossSigned }, "a ghost's device is ready");
    this.#deps.onReady();
    // What transactions brought before it was open was dropped; the homeserver still has it.
    void this.catchup.run();
    return ok(actor);
  }

  async #refused(outcome: Refused, kind: OutgoingRequest["kind"] | undefined): Promise<void> {
    if (outcome.errcode === "M_UNKNOWN_DEVICE" && this.#actor !== undefined) {
      // Stops the device when it had keys; one that had none is made again, and goes on.
      await this.#deps.ghosts.restoreDevice(this.#actor);
    } else if (kind === "keys_upload" && outcome.status === 400) {
      // The homeserver has other keys under these IDs: this store has made them a second time.
      await this.stop("store_behind");
    }
  }
}

export interface DeviceFacts {
  readonly deviceId: string;
  readonly opened: OpenResult;
  /** Read after the homeserver's part: while another process still runs, the epoch here only grows. */
  readonly store: RecordedDevice["store"];
  readonly published: PublishedDevice | undefined;
  /** What was recorded about the device at the homeserver. */
  readonly record: DeviceRecord | undefined;
}

/** A device whose store and the homeserver are inconsistent stops; none is ever made where there was one before. */
export function checkConsistency(facts: DeviceFacts): "consistent" | "create" | DeviceStopReason {
  const { deviceId, opened, store, published, record } = facts;
  switch (opened.kind) {
    case "no_store":
      // The record is written before the first key is uploaded, and a reset writes it with epoch 0.
      return published !== undefined || (record?.epoch ?? 0) > 0 ? "store_lost" : "create";
    case "foreign":
    // Only a creation is answered so, and none was requested yet.
    case "store_exists":
      return "store_foreign";
    case "opened": {
      if (published === undefined && store?.publishedAt !== undefined) return "device_deleted";
      if (record !== undefined) {
        // A reset has happened that this store does not contain, or uploads have.
        if (record.deviceId !== deviceId) return "store_behind";
        if (record.epoch > (store?.epoch ?? 0)) return "store_behind";
      }
      const isOurs = published === undefined || isDeepStrictEqual(published.identity, opened.identity);
      return isOurs ? "consistent" : "store_foreign";
    }
  }
}
