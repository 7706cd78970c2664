// One ghost's device: opened once its store and the homeserver agree about it, its requests made, its keys
// stocked, read back, stopped. Invariants: the homeserver hears of a new epoch before it gets keys or
// messages made after it; a position moves only after what lies before it is durable; one request of the
// machine is under way at a time; once stopped, nothing but a reset makes it start.
import type { Logger } from "pino";
import type { Clock } from "../../domain/clock.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import type { GhostMxid, RoomId, UserId } from "../../domain/identifiers.ts";
import { Serial } from "../../runtime/serial.ts";
import type { GhostDeviceLedger } from "../ledger/ghost-devices.ts";
import type { ReadPositionLedger } from "../ledger/types.ts";
import { type DeviceApi, TO_DEVICE_PAGE } from "../matrix/device-api.ts";
import type { Ghosts } from "../matrix/ghosts.ts";
import type { GhostActor } from "../matrix/homeserver.ts";
import { type Outcome, type Refused, type Retry, retry } from "../matrix/outcome.ts";
import type { CatchUp, DeviceObserver, DeviceStatus, DeviceStopReason } from "./device-types.ts";
import { judgeOpening } from "./judge-opening.ts";
import { ThreadRefusal } from "./machine-thread.ts";
import type { DeviceChanges, Machines, OpenResult, OutgoingRequest } from "./types.ts";

/** Answers of the homeserver lead to further requests, a few times over. */
const DRIVE_ROUNDS_MAX = 16;
/** Pages of one read-back; what is left is read by the next one. */
const READ_BACK_PAGES_MAX = 50;

export interface GhostDeviceDependencies {
  readonly machines: Machines;
  readonly api: DeviceApi;
  readonly ghosts: Ghosts;
  readonly ledger: GhostDeviceLedger & Pick<ReadPositionLedger, "toDevicePosition" | "setToDevicePosition">;
  readonly clock: Clock;
  readonly log: Logger;
  readonly observe: DeviceObserver;
  /** Keys came for these rooms. */
  readonly onNewKeys: (rooms: readonly RoomId[]) => void;
}

/** How often one-time keys are counted, and what transactions lost is read back, in quiet times. */
const READ_BACK_EVERY_MS = 5 * 60_000;
const READ_BACK_AGAIN_MS = 30_000;

type Failure = Retry | Refused;

/** The machine cannot be asked now, and not because the database cannot commit. */
const isUnavailable = (error: unknown) =>
  error instanceof DrawbridgeError &&
  error.code === "device_unavailable" &&
  !(error.cause instanceof ThreadRefusal && error.cause.kind === "database_unavailable");

const OK = { kind: "ok", value: undefined } as const;

export class GhostDevice {
  readonly ghost: GhostMxid;
  readonly #deps: GhostDeviceDependencies;
  /** The machine's requests, and what must not run between a question and its answer. */
  readonly #requests = new Serial();
  readonly #readBacks = new Serial();
  readonly #followed = new Set<UserId>();
  #actor: GhostActor | undefined;
  /** What came of loading the store; undefined while no machine is open. */
  #opened: OpenResult | undefined;
  #opening: Promise<Outcome<GhostActor>> | undefined;
  #isReady = false;
  #stopped: DeviceStopReason | undefined;
  #published = false;
  #crossSigned = false;
  #readBackFailing = false;
  #waitingReadBack: Promise<Outcome<CatchUp>> | undefined;
  #driveWaits = false;
  /** No attempt to open, and none to go on with failed requests, before this. */
  #retryAt = 0;
  #lastFailure: Failure | undefined;
  /** Requests wait for the homeserver: the next look goes on with them. */
  driveDue = false;
  /** When it is read back next, if nobody asks for it before. */
  #readBackAt = Number.POSITIVE_INFINITY;

  constructor(ghost: GhostMxid, deps: GhostDeviceDependencies) {
    this.ghost = ghost;
    this.#deps = deps;
  }

  get deviceId(): string | undefined {
    return this.#actor?.deviceId;
  }

  get isReady(): boolean {
    return this.#isReady;
  }

  get stopped(): DeviceStopReason | undefined {
    return this.#stopped;
  }

  get isReadBackDue(): boolean {
    return this.#deps.clock.now() >= this.#readBackAt;
  }

  /** Whether its machine can be asked. */
  get isOpen(): boolean {
    return this.#opened?.kind === "opened" && this.#stopped === undefined;
  }

  status(): DeviceStatus | undefined {
    if (this.#actor === undefined) return undefined;
    return {
      ghost: this.ghost,
      deviceId: this.#actor.deviceId,
      state: this.#stopped !== undefined ? "stopped" : this.#isReady ? "ready" : "starting",
      stopped: this.#stopped,
      published: this.#published,
      crossSigned: this.#crossSigned,
      catchUpFailing: this.#readBackFailing,
    };
  }

  /** Opens it, unless that was tried and failed a moment ago. */
  ensure(): Promise<Outcome<GhostActor>> {
    if (this.#isReady && this.#actor !== undefined) {
      return Promise.resolve({ kind: "ok", value: this.#actor });
    }
    if (this.#opening !== undefined) return this.#opening;
    const now = this.#deps.clock.now();
    if (this.#stopped !== undefined || (this.#lastFailure !== undefined && now < this.#retryAt)) {
      return Promise.resolve(this.#lastFailure ?? retry("device_unavailable"));
    }
    this.#opening = this.#open()
      .catch((error: unknown) => {
        // The database, or the machine's thread.
        this.#deps.log.warn(
          { ghost: this.ghost, err: error instanceof Error ? error.name : "unknown" },
          "a ghost's device could not be opened",
        );
        return retry("device_unavailable");
      })
      .then((outcome) => {
        this.#opening = undefined;
        if (outcome.kind !== "ok") this.#failed(outcome);
        return outcome;
      });
    return this.#opening;
  }

  /**
   * Takes in what a transaction brought. What the machine cannot take now is dropped: the homeserver still
   * has it, and it is read back.
   * @throws when the database cannot commit
   */
  async receive(changes: DeviceChanges): Promise<readonly RoomId[]> {
    if (!this.isOpen) return [];
    try {
      return await this.#take(changes);
    } catch (error) {
      if (!isUnavailable(error)) throw error;
      this.#readBackAt = 0;
      return [];
    }
  }

  async #take(changes: DeviceChanges): Promise<readonly RoomId[]> {
    const { roomsWithNewKeys } = await this.#deps.machines.receive(this.ghost, changes);
    this.driveSoon();
    return roomsWithNewKeys;
  }

  /** Makes the machine's requests until it wants none. */
  drive(): Promise<Outcome<undefined>> {
    return this.#requests.run(() => this.#drive());
  }

  /** The same, later, by itself. */
  driveSoon(): void {
    if (this.#driveWaits) return;
    this.#driveWaits = true;
    void this.#requests
      .run(() => {
        this.#driveWaits = false;
        return this.#drive();
      })
      .catch(() => this.#failed(retry("device_unavailable")));
  }

  /** Makes one request that the machine gave out of turn, such as a claim of keys. */
  submit(request: OutgoingRequest): Promise<Outcome<undefined>> {
    return this.#requests.run(() => this.#submit(request));
  }

  /** Work between whose steps no other request of the machine may come. */
  alone<T>(
    work: (submit: (request: OutgoingRequest) => Promise<Outcome<undefined>>) => Promise<T>,
  ): Promise<T> {
    return this.#requests.run(() => work((request) => this.#submit(request)));
  }

  /** Follows users' devices; true when some were not followed before, so that their keys are being asked for. */
  async follow(users: readonly UserId[]): Promise<boolean> {
    const fresh = users.filter((user) => !this.#followed.has(user));
    if (fresh.length === 0 || !this.isOpen) return false;
    await this.#deps.machines.track(this.ghost, fresh);
    for (const user of fresh) this.#followed.add(user);
    return true;
  }

  /**
   * Writes, here and at the homeserver, that the device's state has come further: whoever puts back an
   * older state is found out by it.
   */
  async raiseEpoch(): Promise<Outcome<undefined>> {
    const { ledger, api } = this.#deps;
    const { ghost, deviceId } = this;
    if (deviceId === undefined) return retry("device_unavailable");
    const epoch = await ledger.raiseEpoch(ghost, deviceId);
    if (epoch === undefined) return retry("device_unavailable");
    return api.setDeviceRecord(ghost, { deviceId, epoch }, this.#actor?.signal);
  }

  /** Reads back to-device messages. A call while one runs waits for the next one, together with all others. */
  catchUp(signal?: AbortSignal): Promise<Outcome<CatchUp>> {
    if (this.#waitingReadBack !== undefined) return this.#waitingReadBack;
    const waiting = this.#readBacks.run(async () => {
      this.#waitingReadBack = undefined;
      const outcome = await this.#readBack(signal).catch(() => retry("device_unavailable"));
      const isStopped = outcome.kind === "retry" && outcome.cause === "stopped";
      if (!isStopped) this.#readBackFailing = outcome.kind !== "ok";
      const waitMs = outcome.kind === "ok" ? READ_BACK_EVERY_MS : READ_BACK_AGAIN_MS;
      this.#readBackAt = this.#deps.clock.now() + waitMs;
      this.#deps.observe.caughtUp(outcome.kind);
      return outcome;
    });
    this.#waitingReadBack = waiting;
    return waiting;
  }

  /** The machine was taken away: by another process, or with its thread. It is opened again later. */
  lost(): void {
    if (this.#opened === undefined) return;
    this.#letGo();
    this.#failed(retry("ghost_refused"));
  }

  /** Ends for good, until an operator resets the device. */
  async stop(reason: DeviceStopReason): Promise<void> {
    if (this.#stopped !== undefined) return;
    const { machines, ledger, clock, log, observe } = this.#deps;
    const { ghost, deviceId } = this;
    const wasOpen = this.#opened !== undefined;
    this.#letGo();
    this.#stopped = reason;
    this.#lastFailure = retry("ghost_refused");
    log.error({ event: "ghost_device_stopped", ghost, deviceId, reason }, "a ghost's device has stopped");
    observe.stopped(reason);
    if (deviceId !== undefined) await ledger.deviceStopped(ghost, deviceId, reason, clock.now());
    if (wasOpen) await machines.shut(ghost);
  }

  /** Resolves when nothing of it is under way. */
  async drain(): Promise<void> {
    await this.#opening;
    await this.#readBacks.ended();
    await this.#requests.ended();
  }

  #letGo(): void {
    this.#opened = undefined;
    this.#isReady = false;
    this.#followed.clear();
  }

  #failed(failure: Failure): void {
    this.#lastFailure = failure;
    const waitMs = failure.kind === "retry" ? failure.afterMs : retry("ghost_refused").afterMs;
    this.#retryAt = this.#deps.clock.now() + waitMs;
  }

  async #open(): Promise<Outcome<GhostActor>> {
    const { ghosts, api, ledger, machines, clock } = this.#deps;
    const { ghost } = this;
    const made = await ghosts.ensureGhost(ghost);
    if (made.kind !== "ok") return made;
    const { deviceId } = made.value;
    this.#actor = made.value;

    // The homeserver first: what it was told of is never ahead of the ledger.
    const record = await api.deviceRecord(ghost);
    if (record.kind !== "ok") return record;
    const published = await api.publishedDevice(ghost, deviceId);
    if (published.kind !== "ok") return published;
    this.#opened ??= await machines.open(ghost, deviceId, "load");
    const store = (await ledger.recordedDevice(ghost))?.store;
    const facts = { deviceId, opened: this.#opened, store, published: published.value, record: record.value };
    const judged = judgeOpening(facts);
    if (judged.kind === "stop") {
      await this.stop(judged.reason);
      return retry("ghost_refused");
    }
    if (judged.kind === "create") {
      this.#opened = undefined;
      const created = await machines.open(ghost, deviceId, "create");
      // Another process was faster: what it made is loaded next time.
      if (created.kind !== "opened") return retry("device_unavailable");
      this.#opened = created;
    }
    await ledger.deviceStopped(ghost, deviceId, undefined, clock.now());
    const isBehind =
      record.value !== undefined && store !== undefined && record.value.epoch + 1n < store.epoch;
    // The homeserver itself was put back from a backup: a position of the future would skip messages.
    if (isBehind) await ledger.setToDevicePosition(ghost, null);
    const raised = await this.raiseEpoch();
    if (raised.kind !== "ok") return raised;
    return this.#publish(made.value, published.value?.crossSigned === true);
  }

  /** Has the homeserver know the device's keys and its cross-signing identity. */
  async #publish(actor: GhostActor, crossSigned: boolean): Promise<Outcome<GhostActor>> {
    const { machines, ledger, api, clock, log } = this.#deps;
    const driven = await this.drive();
    if (driven.kind !== "ok") return driven;
    const { ghost } = this;
    this.#published = true;
    await ledger.devicePublished(ghost, actor.deviceId, clock.now());
    this.#crossSigned = crossSigned;
    if (!crossSigned) {
      const signed = await this.alone(async (submit) => {
        for (const request of await machines.crossSign(ghost)) {
          const outcome = await submit(request);
          if (outcome.kind !== "ok") return outcome;
        }
        return OK;
      });
      if (signed.kind === "retry") return signed;
      const seen = await api.publishedDevice(ghost, actor.deviceId);
      this.#crossSigned = seen.kind === "ok" && seen.value?.crossSigned === true;
      if (!this.#crossSigned) log.warn({ ghost }, "a ghost's device is not cross-signed");
    }
    this.#isReady = true;
    this.#lastFailure = undefined;
    log.info(
      { ghost, deviceId: actor.deviceId, crossSigned: this.#crossSigned },
      "a ghost's device is ready",
    );
    // What the transactions brought before it was open was dropped; the homeserver still has it.
    void this.catchUp();
    return { kind: "ok", value: actor };
  }

  async #drive(): Promise<Outcome<undefined>> {
    if (!this.isOpen) return retry("device_unavailable");
    this.driveDue = false;
    let failure: Failure | undefined;
    for (let round = 0; round < DRIVE_ROUNDS_MAX && failure === undefined; round++) {
      const requests = await this.#deps.machines.outgoing(this.ghost);
      if (requests.length === 0) return OK;
      for (const request of requests) {
        const outcome = await this.#submit(request);
        if (outcome.kind === "ok") continue;
        failure ??= outcome;
        if (outcome.kind === "retry") break;
      }
    }
    if (failure === undefined) return OK;
    this.driveDue = true;
    return failure;
  }

  async #submit(request: OutgoingRequest): Promise<Outcome<undefined>> {
    const { api, machines, log } = this.#deps;
    const actor = this.#actor;
    if (actor === undefined || !this.isOpen) return retry("device_unavailable");
    if (request.kind === "keys_upload") {
      const raised = await this.raiseEpoch();
      if (raised.kind !== "ok") return raised;
    }
    const outcome = await api.submit(actor, request);
    if (outcome.kind === "ok") {
      await machines.sent(this.ghost, request, outcome.value);
      return OK;
    }
    if (outcome.kind === "refused") {
      log.warn(
        { ghost: this.ghost, request: request.kind, errcode: outcome.errcode },
        "a request of a device was refused",
      );
      await this.#refused(actor, outcome, request.kind);
    }
    return outcome;
  }

  /** What a refusal says of the device itself. */
  async #refused(actor: GhostActor, outcome: Refused, kind?: OutgoingRequest["kind"]): Promise<void> {
    if (outcome.errcode === "M_UNKNOWN_DEVICE") {
      // Stops it when it had keys; one that had none is put again, and goes on.
      await this.#deps.ghosts.mend(actor);
    } else if (kind === "keys_upload" && outcome.status === 400) {
      // Keys of these IDs are there already, and others: this store has made them a second time.
      await this.stop("store_behind");
    }
  }

  async #readBack(signal?: AbortSignal): Promise<Outcome<CatchUp>> {
    const ensured = await this.ensure();
    if (ensured.kind !== "ok") return ensured;
    const { api, ledger, observe, onNewKeys } = this.#deps;
    const actor = { ...ensured.value, signal };
    const rooms = new Set<RoomId>();
    let messages = 0;
    let since = await ledger.toDevicePosition(this.ghost);
    for (let page = 0; page < READ_BACK_PAGES_MAX; page++) {
      const read = await api.toDeviceSince(actor, since);
      if (read.kind === "refused") await this.#refused(actor, read);
      if (read.kind !== "ok") return read;
      const { changes, next } = read.value;
      if (!this.isOpen) return retry("device_unavailable");
      for (const room of await this.#take(changes)) rooms.add(room);
      if (next !== since) await ledger.setToDevicePosition(this.ghost, next);
      since = next;
      messages += changes.toDevice.length;
      if (changes.toDevice.length < TO_DEVICE_PAGE) break;
    }
    observe.toDevice(messages, "catch_up");
    const roomsWithNewKeys = [...rooms];
    if (roomsWithNewKeys.length > 0) onNewKeys(roomsWithNewKeys);
    return { kind: "ok", value: { messages, roomsWithNewKeys } };
  }
}
