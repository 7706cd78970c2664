// One ghost's device: opened once its store and the homeserver agree about it, published, used, stopped.
// Invariants: the homeserver hears of a new epoch before it gets keys or messages made after it; once
// stopped, nothing but a reset, or a start with what was missing put back, lets it take part again.
import type { Logger } from "pino";
import type { Clock } from "../../domain/clock.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import type { GhostMxid, RoomId, UserId } from "../../domain/identifiers.ts";
import type { Ledger } from "../ledger/ledger.ts";
import type { DeviceStopReason } from "../ledger/states.ts";
import type { DeviceApi, DeviceChanges, OutgoingRequest } from "../matrix/device-api.ts";
import type { Ghosts } from "../matrix/ghosts.ts";
import type { GhostActor } from "../matrix/http.ts";
import { type Outcome, type Refused, type Retry, retry } from "../matrix/outcome.ts";
import { DeviceRequests } from "./device-requests.ts";
import type { DeviceObserver, DeviceStatus } from "./device-types.ts";
import { judgeOpening } from "./judge-opening.ts";
import { KeyCatchup } from "./key-catchup.ts";
import { ThreadRefusal } from "./machine-thread.ts";
import type { Machines, OpenResult } from "./types.ts";

export interface GhostDeviceDependencies {
  readonly machines: Machines;
  readonly api: DeviceApi;
  readonly ghosts: Ghosts;
  readonly ledger: Pick<Ledger, "ghosts" | "memberships" | "toDevicePositions">;
  readonly clock: Clock;
  readonly log: Logger;
  readonly observe: DeviceObserver;
  /** Keys came for these rooms. */
  readonly onNewKeys: (rooms: readonly RoomId[]) => void;
}

/** The machine cannot be asked now, and not because the database cannot commit. */
const isUnavailable = (error: unknown) =>
  error instanceof DrawbridgeError &&
  error.code === "device_unavailable" &&
  !(error.cause instanceof ThreadRefusal && error.cause.kind === "database_unavailable");

const OK = { kind: "ok", value: undefined } as const;

export class GhostDevice {
  readonly ghost: GhostMxid;
  readonly requests: DeviceRequests;
  readonly catchup: KeyCatchup;
  readonly #deps: GhostDeviceDependencies;
  readonly #followed = new Set<UserId>();
  #actor: GhostActor | undefined;
  /** What came of loading the store; undefined while no machine is open. */
  #opened: OpenResult | undefined;
  /** Whether its store was found to fit what the homeserver says: nothing comes to the machine before. */
  #isJudged = false;
  #opening: Promise<Outcome<GhostActor>> | undefined;
  #isReady = false;
  #stopped: DeviceStopReason | undefined;
  #published = false;
  #crossSigned = false;
  #failure: Retry | Refused | undefined;
  /** Not opened again before this. */
  #retryAt = 0;

  constructor(ghost: GhostMxid, deps: GhostDeviceDependencies) {
    this.ghost = ghost;
    this.#deps = deps;
    this.requests = new DeviceRequests({
      ...deps,
      ghost,
      actor: () => (this.isOpen ? this.#actor : undefined),
      raiseEpoch: () => this.raiseEpoch(),
      onRefused: (outcome, kind) => this.#refused(outcome, kind),
    });
    this.catchup = new KeyCatchup({
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

  get isReady(): boolean {
    return this.#isReady;
  }

  get stopped(): DeviceStopReason | undefined {
    return this.#stopped;
  }

  /** Whether its machine can be asked. */
  get isOpen(): boolean {
    return this.#opened?.kind === "opened" && this.#isJudged && this.#stopped === undefined;
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
      catchupFailing: this.catchup.isFailing,
    };
  }

  /** Opens it, unless that was tried and failed a moment ago. */
  ensure(): Promise<Outcome<GhostActor>> {
    if (this.#isReady && this.#actor !== undefined) {
      return Promise.resolve({ kind: "ok", value: this.#actor });
    }
    if (this.#opening !== undefined) return this.#opening;
    const isTooSoon = this.#deps.clock.now() < this.#retryAt;
    if (this.#failure !== undefined && (isTooSoon || this.#stopped !== undefined)) {
      return Promise.resolve(this.#failure);
    }
    this.#opening = this.#openOrSay();
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
      const rooms = await this.#take(changes);
      if (rooms.length > 0) this.#deps.onNewKeys(rooms);
      return rooms;
    } catch (error) {
      // Also when the transaction is refused: it comes again without its to-device messages.
      this.catchup.soon();
      if (!isUnavailable(error)) throw error;
      return [];
    }
  }

  /** Follows users' devices; true when some were not followed before, so that their keys are to be asked for. */
  async follow(users: readonly UserId[]): Promise<boolean> {
    const fresh = users.filter((user) => !this.#followed.has(user));
    if (fresh.length === 0 || !this.isOpen) return false;
    await this.#deps.machines.track(this.ghost, fresh);
    for (const user of fresh) this.#followed.add(user);
    return true;
  }

  /**
   * Writes, here and at the homeserver, that the device's state has come further: whoever puts back an
   * older state is found out by it. Overtaken by a reset, it puts the reset's record back: the new device would
   * else be taken for one whose store was lost.
   */
  async raiseEpoch(): Promise<Outcome<undefined>> {
    const { ledger, api } = this.#deps;
    const { ghost, deviceId } = this;
    const epoch = deviceId === undefined ? undefined : await ledger.ghosts.raiseEpoch(ghost, deviceId);
    if (deviceId === undefined || epoch === undefined) return retry("device_unavailable");
    const told = await api.setDeviceRecord(ghost, { deviceId, epoch });
    const recorded = await ledger.ghosts.recordedDevice(ghost);
    if (recorded === undefined || recorded.deviceId === deviceId) return told;
    await api.setDeviceRecord(ghost, { deviceId: recorded.deviceId, epoch: recorded.store?.epoch ?? 0n });
    return retry("device_unavailable");
  }

  /** The machine was taken away: by another process, or with its thread. It is opened again later. */
  lost(): void {
    if (this.#opened === undefined) return;
    this.#releaseLeases();
    this.#failed(retry("ghost_refused"));
  }

  /** It takes no part any more. */
  async stop(reason: DeviceStopReason): Promise<void> {
    if (this.#stopped !== undefined) return;
    const { machines, ledger, clock, log, observe } = this.#deps;
    const { ghost, deviceId } = this;
    const wasOpen = this.#opened !== undefined;
    this.#releaseLeases();
    this.#stopped = reason;
    this.#failed(retry("ghost_refused"));
    log.error({ event: "ghost_device_stopped", ghost, deviceId, reason }, "a ghost's device has stopped");
    observe.stopped(reason);
    if (deviceId !== undefined) await ledger.ghosts.recordStopped(ghost, deviceId, reason, clock.now());
    if (wasOpen) await machines.shut(ghost);
  }

  /** Resolves when nothing of it is under way. */
  async drain(): Promise<void> {
    await this.#opening;
    await this.catchup.ended();
    await this.requests.ended();
  }

  async #take(changes: DeviceChanges): Promise<readonly RoomId[]> {
    const { roomsWithNewKeys } = await this.#deps.machines.receive(this.ghost, changes);
    this.requests.driveSoon();
    return roomsWithNewKeys;
  }

  #releaseLeases(): void {
    this.#opened = undefined;
    this.#isJudged = false;
    this.#isReady = false;
    this.#followed.clear();
  }

  #failed(failure: Retry | Refused): void {
    this.#failure = failure;
    const { afterMs } = failure.kind === "retry" ? failure : retry("ghost_refused");
    this.#retryAt = this.#deps.clock.now() + afterMs;
  }

  async #openOrSay(): Promise<Outcome<GhostActor>> {
    let outcome: Outcome<GhostActor>;
    try {
      outcome = await this.#open();
    } catch (error) {
      // The database, or the machine's thread.
      const err = error instanceof Error ? error.name : "unknown";
      this.#deps.log.warn({ ghost: this.ghost, err }, "a ghost's device could not be opened");
      outcome = retry("device_unavailable");
    }
    this.#opening = undefined;
    if (outcome.kind !== "ok") this.#failed(outcome);
    return outcome;
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
    const store = (await ledger.ghosts.recordedDevice(ghost))?.store;
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
    // It may have been taken away while it was judged.
    if (this.#opened === undefined) return retry("device_unavailable");
    this.#isJudged = true;
    await ledger.ghosts.recordStopped(ghost, deviceId, undefined, clock.now());
    // The homeserver itself was put back from a backup: a position of the future would skip messages.
    const isAhead =
      record.value !== undefined && store !== undefined && record.value.epoch + 1n < store.epoch;
    if (isAhead) await ledger.toDevicePositions.set(ghost, null, await ledger.toDevicePositions.get(ghost));
    const raised = await this.raiseEpoch();
    if (raised.kind !== "ok") return raised;
    return this.#publish(made.value, published.value?.crossSigned === true);
  }

  /** Has the homeserver know the device's keys and its cross-signing identity. */
  async #publish(actor: GhostActor, crossSigned: boolean): Promise<Outcome<GhostActor>> {
    const { ledger, clock, log } = this.#deps;
    const { ghost } = this;
    const driven = await this.requests.drive();
    if (driven.kind === "retry") return driven;
    const signed = crossSigned ? OK : await this.#crossSign();
    if (signed.kind === "retry") return signed;
    const seen = await this.#deps.api.publishedDevice(ghost, actor.deviceId);
    if (seen.kind !== "ok") return seen;
    if (seen.value === undefined || !this.isOpen) return retry("device_unavailable");
    await ledger.ghosts.recordPublished(ghost, actor.deviceId, clock.now());
    this.#published = true;
    this.#crossSigned = seen.value.crossSigned;
    this.#isReady = true;
    this.#failure = undefined;
    log.info(
      { ghost, deviceId: actor.deviceId, crossSigned: this.#crossSigned },
      "a ghost's device is ready",
    );
    // What transactions brought before it was open was dropped; the homeserver still has it.
    void this.catchup.run();
    return { kind: "ok", value: actor };
  }

  #crossSign(): Promise<Outcome<undefined>> {
    return this.requests.alone(async (submit) => {
      for (const request of await this.#deps.machines.crossSign(this.ghost)) {
        const outcome = await submit(request);
        if (outcome.kind !== "ok") return outcome;
      }
      return OK;
    });
  }

  /** What a refusal says of the device itself. */
  async #refused(outcome: Refused, kind: OutgoingRequest["kind"] | undefined): Promise<void> {
    if (outcome.errcode === "M_UNKNOWN_DEVICE" && this.#actor !== undefined) {
      // Stops it when it had keys; one that had none is put again, and goes on.
      await this.#deps.ghosts.restoreDevice(this.#actor);
    } else if (kind === "keys_upload" && outcome.status === 400) {
      // Keys of these IDs are there already, and others: this store has made them a second time.
      await this.stop("store_behind");
    }
  }
}
