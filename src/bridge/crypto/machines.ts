// The machines of all ghosts, spread over threads. Here is known which ghost is where, and here a thread that
// a panic ended is replaced, with all its ghosts opened again from their stores.
// Invariants: a ghost has one machine at most; calls made while it is being opened again wait for that; what
// ends a thread again and again is passed over, so that it cannot keep the others from their work.
import type { Logger } from "pino";
import { DrawbridgeError } from "../../domain/errors.ts";
import type { GhostMxid } from "../../domain/identifiers.ts";
import type { DeviceIdentity } from "../ledger/crypto-stores.ts";
import { createLedgerPool } from "../ledger/postgres.ts";
import type { DeviceChanges } from "../matrix/device-api.ts";
import { type ClaimDependencies, claimStore } from "./machine-claim.ts";
import type { SenderPolicy } from "./machine-policy.ts";
import { MachineSlot } from "./machine-slot.ts";
import { ThreadEnded, ThreadRefusal } from "./machine-thread.ts";
import type { MachineCall, MachineCalls, ThreadErrorKind } from "./thread-protocol.ts";
import type { Decryption, EncryptedRoomEvent, Machines, OpenResult } from "./types.ts";

/** For claiming stores. */
const CONNECTIONS = 2;
const CONNECT_TIMEOUT_MS = 5_000;
const STATEMENT_TIMEOUT_MS = 30_000;

/** Longest that a call waits for its ghost's machine to be opened again. */
const REOPEN_WAIT_MS = 10_000;
const REOPEN_RETRY_FIRST_MS = 250;
const REOPEN_RETRY_MS_MAX = 30_000;
/** A machine that ends its thread this often while it is opened is given up. */
const PANICS_AT_OPENING_MAX = 3;
/** Something that was in the machine each time its thread ended, this often, is taken for the cause. */
const PANICS_OF_ONE_MAX = 3;
/** Events remembered for that; more than were ever in the machines at once. */
const SUSPECTS_MAX = 1_000;

/** Why a ghost's machine was taken away. */
export type LossReason = "fence_lost" | "no_store" | "foreign" | "panic";

export interface MachinesDependencies extends Omit<ClaimDependencies, "pool"> {
  readonly threads: number;
  readonly databaseUrl: string;
  readonly policy: SenderPolicy;
  readonly threadEntry?: URL;
  readonly log: Logger;
  readonly onLost: (ghost: GhostMxid, why: LossReason) => void;
}

interface Entry {
  readonly ghost: GhostMxid;
  readonly deviceId: string;
  readonly slot: MachineSlot;
  /** While its machine is being opened: resolves when it is, rejects when it was given up. */
  opening: Promise<unknown> | undefined;
}

const unavailable = (ghost: GhostMxid, cause?: unknown) =>
  new DrawbridgeError("device_unavailable", `the device of ${ghost} cannot be used now`, {
    hint: "Usually nothing: it is opened again by itself. `drawbridge ghost device status` tells why it is not.",
    ...(cause === undefined ? {} : { cause }),
  });

/** Starts the threads; their machines are opened one by one, as ghosts are. */
export function createMachines(deps: MachinesDependencies): Machines {
  const { senderDevices, verifiedIdentities } = deps.policy;
  const pool = createLedgerPool({
    connectionString: deps.databaseUrl,
    max: CONNECTIONS,
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    statement_timeout: STATEMENT_TIMEOUT_MS,
    keepAlive: true,
    application_name: "drawbridge-stores",
  });
  pool.on("error", () => {});
  return new ThreadedMachines({
    ...deps,
    pool,
    policy: { senderDevices, verifiedIdentities },
  });
}

class ThreadedMachines implements Machines {
  readonly #deps: MachinesDependencies & ClaimDependencies;
  readonly #slots: readonly MachineSlot[];
  readonly #entries = new Map<GhostMxid, Entry>();
  readonly #suspects = new Map<string, number>();
  readonly #closing = new AbortController();
  #closed: Promise<void> | undefined;

  constructor(deps: MachinesDependencies & ClaimDependencies) {
    this.#deps = deps;
    this.#slots = Array.from({ length: deps.threads }, () => {
      const slot: MachineSlot = new MachineSlot(deps, {
        lost: (ghost, why) => this.#lost(ghost, slot, why),
        ended: () => this.#reopenAll(slot),
      });
      return slot;
    });
  }

  async open(ghost: GhostMxid, deviceId: string, mode: "load" | "create"): Promise<OpenResult> {
    await this.shut(ghost);
    const claim = await claimStore(this.#deps, ghost, deviceId, mode);
    if (claim.kind !== "claimed") return claim;
    const slot = this.#leastUsed();
    const opening = slot.ask({ do: "open", task: claim.task }) as Promise<DeviceIdentity>;
    const entry: Entry = { ghost, deviceId, slot, opening };
    this.#entries.set(ghost, entry);
    try {
      const identity = await opening;
      if (entry.opening === opening) entry.opening = undefined;
      return { kind: "opened", identity, created: mode === "create" };
    } catch (error) {
      if (this.#entries.get(ghost) === entry) this.#entries.delete(ghost);
      if (error instanceof ThreadRefusal && error.kind === "foreign") return { kind: "foreign" };
      throw unavailable(ghost, error);
    }
  }

  /** Ghosts are few and live long: each goes where the fewest are. */
  #leastUsed(): MachineSlot {
    const used = [...this.#entries.values()];
    const count = (slot: MachineSlot) => used.filter((entry) => entry.slot === slot).length;
    return this.#slots.reduce((least, slot) => (count(slot) < count(least) ? slot : least));
  }

  #lost(ghost: GhostMxid, slot: MachineSlot, why: ThreadErrorKind): void {
    const entry = this.#entries.get(ghost);
    if (entry === undefined || entry.slot !== slot) return;
    if (why === "fence_lost") this.#giveUp(entry, "fence_lost");
    else this.#reopen(entry);
  }

  #giveUp(entry: Entry, why: LossReason): void {
    if (this.#entries.get(entry.ghost) !== entry) return;
    this.#entries.delete(entry.ghost);
    this.#deps.log.warn({ ghost: entry.ghost, why }, "a ghost's machine is gone");
    this.#deps.onLost(entry.ghost, why);
  }

  #reopenAll(slot: MachineSlot): void {
    if (this.#closing.signal.aborted) return;
    const ghosts = [...this.#entries.values()].filter((entry) => entry.slot === slot);
    this.#deps.log.error(
      { ghosts: ghosts.length },
      "a thread of cryptographic machines ended; it is replaced",
    );
    for (const entry of ghosts) this.#reopen(entry);
  }

  #reopen(entry: Entry): void {
    const opening = this.#openAgain(entry);
    entry.opening = opening;
    const opened = () => {
      if (entry.opening === opening) entry.opening = undefined;
    };
    // Who waits for it is told when it failed; where nobody does, onLost has said it.
    opening.then(opened, () => undefined);
  }

  async #openAgain(entry: Entry): Promise<void> {
    const { ghost, deviceId, slot } = entry;
    const { clock, log } = this.#deps;
    let panics = 0;
    for (let waitMs = REOPEN_RETRY_FIRST_MS; ; waitMs = Math.min(2 * waitMs, REOPEN_RETRY_MS_MAX)) {
      try {
        if (this.#entries.get(ghost) !== entry) throw unavailable(ghost);
        const claim = await claimStore(this.#deps, ghost, deviceId, "load");
        if (claim.kind === "claimed") {
          await slot.ask({ do: "open", task: claim.task });
          log.info({ ghost }, "a ghost's machine was opened again");
          return;
        }
        this.#giveUp(entry, claim.kind === "foreign" ? "foreign" : "no_store");
      } catch (error) {
        if (error instanceof ThreadEnded) panics += 1;
        if (error instanceof ThreadRefusal && error.kind === "foreign") this.#giveUp(entry, "foreign");
        if (error instanceof ThreadRefusal && error.kind === "fence_lost") this.#giveUp(entry, "fence_lost");
        if (panics === PANICS_AT_OPENING_MAX) this.#giveUp(entry, "panic");
      }
      if (this.#entries.get(ghost) !== entry) throw unavailable(ghost);
      await clock.sleep(waitMs, this.#closing.signal);
    }
  }

  /** @throws DrawbridgeError `device_unavailable`, ThreadEnded, ThreadRefusal */
  async #ask(ghost: GhostMxid, call: MachineCall, args: readonly unknown[]): Promise<unknown> {
    const entry = this.#entries.get(ghost);
    if (entry === undefined) throw unavailable(ghost);
    if (entry.opening !== undefined) await this.#patiently(ghost, entry.opening);
    return entry.slot.ask({ do: "call", ghost, call, args });
  }

  async #patiently(ghost: GhostMxid, opening: Promise<unknown>): Promise<void> {
    const patience = new AbortController();
    const given = this.#deps.clock.sleep(REOPEN_WAIT_MS, patience.signal).then(
      () => Promise.reject(unavailable(ghost)),
      () => undefined,
    );
    try {
      await Promise.race([opening, given]);
    } catch (error) {
      throw unavailable(ghost, error);
    } finally {
      patience.abort();
    }
  }

  /** The same for callers to whom it is all one why it did not work. */
  async #call<Call extends MachineCall>(
    ghost: GhostMxid,
    call: Call,
    ...args: Parameters<MachineCalls[Call]>
  ): Promise<Awaited<ReturnType<MachineCalls[Call]>>> {
    try {
      return (await this.#ask(ghost, call, args)) as Awaited<ReturnType<MachineCalls[Call]>>;
    } catch (error) {
      throw error instanceof DrawbridgeError ? error : unavailable(ghost, error);
    }
  }

  async receive(ghost: GhostMxid, changes: DeviceChanges) {
    try {
      return { roomsWithNewKeys: await this.#receiveOnce(ghost, changes) };
    } catch (error) {
      if (!(error instanceof ThreadEnded))
        throw error instanceof DrawbridgeError ? error : unavailable(ghost, error);
    }
    return { roomsWithNewKeys: await this.#receiveOneByOne(ghost, changes) };
  }

  async #receiveOnce(ghost: GhostMxid, changes: DeviceChanges) {
    return (await this.#ask(ghost, "receive", [changes])) as Awaited<ReturnType<MachineCalls["receive"]>>;
  }

  /**
   * The thread ended while it took these in; perhaps one of them is the cause. Each is tried by itself, and
   * one that ends its thread every time is passed over: it would come again for ever.
   */
  #receiveOneByOne(ghost: GhostMxid, changes: DeviceChanges) {
    const slot = this.#entries.get(ghost)?.slot;
    if (slot === undefined) throw unavailable(ghost);
    return slot.alone(async () => {
      const rooms = new Set(await this.#receiveCarefully(ghost, { ...changes, toDevice: [] }));
      for (const message of changes.toDevice) {
        const one = { ...changes, toDevice: [message], changedUsers: [], leftUsers: [] };
        const bare = { ...one, oneTimeKeyCounts: undefined, unusedFallbackKeys: undefined };
        for (const room of await this.#receiveCarefully(ghost, bare)) rooms.add(room);
      }
      return [...rooms];
    });
  }

  async #receiveCarefully(ghost: GhostMxid, changes: DeviceChanges) {
    for (let panics = 0; panics < PANICS_OF_ONE_MAX; panics++) {
      try {
        return await this.#receiveOnce(ghost, changes);
      } catch (error) {
        if (!(error instanceof ThreadEnded)) throw unavailable(ghost, error);
      }
    }
    this.#deps.log.error({ ghost }, "a to-device message ended its thread each time; it is passed over");
    return [];
  }

  async decrypt(ghost: GhostMxid, event: EncryptedRoomEvent): Promise<Decryption> {
    if ((this.#suspects.get(event.event) ?? 0) >= PANICS_OF_ONE_MAX) {
      return { kind: "refused", reason: "undecryptable" };
    }
    const ask = () => this.#ask(ghost, "decrypt", [event]) as Promise<Decryption>;
    // One that was there when a thread ended is tried with no other such beside it: then only the one that
    // ends the thread by itself is counted again.
    const slot = this.#suspects.has(event.event) ? this.#entries.get(ghost)?.slot : undefined;
    try {
      const decryption = await (slot === undefined ? ask() : slot.alone(ask));
      this.#suspects.delete(event.event);
      if (decryption.kind !== "decrypted") return decryption;
      return { ...decryption, indexDigest: Buffer.from(decryption.indexDigest) };
    } catch (error) {
      if (error instanceof ThreadEnded) this.#suspect(event);
      return { kind: "unavailable" };
    }
  }

  #suspect({ event }: EncryptedRoomEvent): void {
    const [oldest] = this.#suspects.keys();
    if (this.#suspects.size >= SUSPECTS_MAX && oldest !== undefined) this.#suspects.delete(oldest);
    this.#suspects.set(event, (this.#suspects.get(event) ?? 0) + 1);
  }

  outgoing: Machines["outgoing"] = (ghost) => this.#call(ghost, "outgoing");
  sent: Machines["sent"] = (ghost, request, body) => this.#call(ghost, "sent", request, body);
  crossSign: Machines["crossSign"] = (ghost) => this.#call(ghost, "crossSign");
  track: Machines["track"] = (ghost, users) => this.#call(ghost, "track", users);
  missingSessions: Machines["missingSessions"] = (ghost, users) =>
    this.#call(ghost, "missingSessions", users);
  shareRoomKey: Machines["shareRoomKey"] = (ghost, ...rest) => this.#call(ghost, "shareRoomKey", ...rest);
  encrypt: Machines["encrypt"] = (ghost, ...rest) => this.#call(ghost, "encrypt", ...rest);

  async shut(ghost: GhostMxid): Promise<void> {
    const entry = this.#entries.get(ghost);
    this.#entries.delete(ghost);
    await entry?.slot.ask({ do: "shut", ghost }).catch(() => undefined);
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    this.#closing.abort();
    this.#entries.clear();
    await Promise.all(this.#slots.map((slot) => slot.close()));
    await this.#deps.pool.end();
  }
}
