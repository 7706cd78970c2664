// The machines of all ghosts, spread over threads, and the claims of their stores; a thread that a panic ended is replaced.
// Invariants: a ghost has at most one machine, and calls wait while it is opened again; an input that ends a thread again and
// again is skipped; no plaintext, ciphertext or key is in an error or a log line; a store's random key is sealed for its
// device, by the first configured key; a store of another device, or that no key unseals, is left unchanged.
import { LRUCache } from "lru-cache";
import type { Pool } from "pg";
import type { Logger } from "pino";
import type { Clock, Random } from "../../domain/clock.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import type { GhostMxid, RoomId } from "../../domain/identifiers.ts";
import { resultWithin } from "../../runtime/concurrency.ts";
import type { ContentKeys } from "../ledger/content-keys.ts";
import {
  claimCryptoStore,
  createCryptoStore,
  type DeviceIdentity,
  findCryptoStore,
  forgetTrackedUsers,
} from "../ledger/crypto-stores.ts";
import { type DeviceChanges, NO_CHANGES } from "../matrix/device-changes.ts";
import type { Decryption, EncryptedRoomEvent } from "./decrypt-event.ts";
import type { ClaimedStore } from "./machine.ts";
import {
  createMachineThread,
  type MachineCall,
  type MachineCalls,
  type MachineThread,
  type ThreadDependencies,
  ThreadEnded,
  type ThreadErrorKind,
  ThreadRefusal,
} from "./machine-thread.ts";
import { createStorePool } from "./store-writer.ts";

const STORE_KEY_BYTES = 32;
const LOADS_MAX = 5;
const REOPEN_WAIT_MS = 10_000;
const REOPEN_RETRY_FIRST_MS = 250;
const REOPEN_RETRY_MS_MAX = 30_000;
/** A machine that ends its thread so often while it is opened is given up. */
const PANICS_AT_OPENING_MAX = 3;
/** What was in the machine so often when its thread ended is taken for the cause. */
const PANICS_OF_ONE_MAX = 3;
const SUSPECTS_MAX = 1_000;
/** Users whose devices a machine follows, when it is opened: it reads them one by one, and no more than RECORDS_MAX. */
const TRACKED_MAX = 20_000;

export type LossReason = "fence_lost" | "no_store" | "foreign" | "panic" | "users_forgotten";

export interface ClaimDependencies {
  readonly pool: Pool;
  readonly storeKeys: ContentKeys;
  readonly clock: Clock;
  readonly random: Random;
}

export type Claim =
  | { readonly kind: "claimed"; readonly store: ClaimedStore; readonly hasForgotten?: boolean }
  /** `foreign`: the store is another device's, or no configured key unseals it. */
  | { readonly kind: "no_store" | "store_exists" | "foreign" };

export type OpenResult =
  | { readonly kind: "opened"; readonly identity: DeviceIdentity }
  | Exclude<Claim, { readonly kind: "claimed" }>;

export interface MachinesDependencies extends Omit<ClaimDependencies, "pool">, ThreadDependencies {
  readonly threads: number;
  readonly log: Logger;
  readonly onLost: (ghost: GhostMxid, why: LossReason) => void;
}

interface Entry {
  readonly ghost: GhostMxid;
  readonly deviceId: string;
  readonly thread: MachineThread;
  opening: Promise<unknown> | undefined;
}

function unavailable(ghost: GhostMxid, cause?: unknown): DrawbridgeError {
  if (cause instanceof DrawbridgeError) return cause;
  const hint =
    "Usually nothing: it is opened again by itself. `drawbridge ghost device status` says why it is not.";
  const problem = `the device of ${ghost} cannot be used now`;
  return new DrawbridgeError("device_unavailable", problem, { hint, cause });
}

export class Machines {
  readonly #deps: MachinesDependencies;
  readonly #pool: Pool;
  readonly #threads: readonly MachineThread[];
  readonly #entries = new Map<GhostMxid, Entry>();
  readonly #suspects = new LRUCache<string, number>({ max: SUSPECTS_MAX });
  readonly #closing = new AbortController();
  #closed: Promise<void> | undefined;

  readonly outgoing = this.#forward("outgoing");
  readonly sent = this.#forward("sent");
  readonly crossSign = this.#forward("crossSign");
  readonly track = this.#forward("track");
  readonly missingSessions = this.#forward("missingSessions");
  readonly shareRoomKey = this.#forward("shareRoomKey");
  readonly encrypt = this.#forward("encrypt");
  readonly forgetRoom = this.#forward("forgetRoom");

  constructor(deps: MachinesDependencies) {
    const { senderDevices, verifiedIdentities } = deps.policy;
    this.#deps = deps;
    this.#pool = createStorePool(deps.databaseUrl, "drawbridge-stores");
    const threadDeps = { ...deps, policy: { senderDevices, verifiedIdentities } };
    this.#threads = Array.from({ length: deps.threads }, () => {
      const thread: MachineThread = createMachineThread(threadDeps, {
        lost: (ghost, why) => this.#lost(ghost, thread, why),
        ended: () => this.#reopenAll(thread),
      });
      return thread;
    });
  }

  /** Opens a ghost's machine, with `create` a new one, under a new fence. */
  async open(ghost: GhostMxid, deviceId: string, mode: "load" | "create"): Promise<OpenResult> {
    await this.shut(ghost);
    const claim = await this.#claim(ghost, deviceId, mode);
    if (claim.kind !== "claimed") return claim;
    const thread = this.#leastUsed();
    const entry: Entry = { ghost, deviceId, thread, opening: undefined };
    this.#entries.set(ghost, entry);
    try {
      const opening = thread.ask({ do: "open", store: claim.store }) as Promise<DeviceIdentity>;
      return { kind: "opened", identity: await this.#opens(entry, opening) };
    } catch (error) {
      if (this.#entries.get(ghost) === entry) this.#entries.delete(ghost);
      if (error instanceof ThreadRefusal && error.kind === "foreign") return { kind: "foreign" };
      throw unavailable(ghost, error);
    }
  }

  #claim(ghost: GhostMxid, deviceId: string, mode: "load" | "create"): Promise<Claim> {
    const claim = mode === "create" ? createStore : loadStore;
    return claim({ ...this.#deps, pool: this.#pool }, ghost, deviceId);
  }

  #leastUsed(): MachineThread {
    const used = [...this.#entries.values()];
    const count = (of: MachineThread) => used.filter(({ thread }) => thread === of).length;
    return this.#threads.reduce((least, thread) => (count(thread) < count(least) ? thread : least));
  }

  #lost(ghost: GhostMxid, thread: MachineThread, why: ThreadErrorKind): void {
    const entry = this.#entries.get(ghost);
    if (entry === undefined || entry.thread !== thread) return;
    if (why === "fence_lost") this.#giveUp(entry, "fence_lost");
    else this.#reopen(entry);
  }

  #giveUp(entry: Entry, why: LossReason): void {
    if (this.#entries.get(entry.ghost) !== entry) return;
    this.#entries.delete(entry.ghost);
    this.#deps.log.warn({ ghost: entry.ghost, why }, "a ghost's machine is gone");
    this.#deps.onLost(entry.ghost, why);
  }

  #reopenAll(thread: MachineThread): void {
    if (this.#closing.signal.aborted) return;
    const ghosts = [...this.#entries.values()].filter((entry) => entry.thread === thread);
    const { log } = this.#deps;
    log.error({ ghosts: ghosts.length }, "a thread of cryptographic machines ended; it is replaced");
    for (const entry of ghosts) this.#reopen(entry);
  }

  #reopen(entry: Entry): void {
    void this.#opens(entry, this.#openAgain(entry)).catch(() => undefined);
  }

  /** Callers wait while an entry is being opened, and get the rejection. */
  async #opens<Result>(entry: Entry, opening: Promise<Result>): Promise<Result> {
    entry.opening = opening;
    const result = await opening;
    if (entry.opening === opening) entry.opening = undefined;
    return result;
  }

  async #openAgain(entry: Entry): Promise<void> {
    const { ghost, deviceId, thread } = entry;
    const { clock, log } = this.#deps;
    let panics = 0;
    for (let waitMs = REOPEN_RETRY_FIRST_MS; ; waitMs = Math.min(2 * waitMs, REOPEN_RETRY_MS_MAX)) {
      try {
        if (this.#entries.get(ghost) !== entry) throw unavailable(ghost);
        const claim = await this.#claim(ghost, deviceId, "load");
        if (claim.kind === "claimed" && claim.hasForgotten !== true) {
          await thread.ask({ do: "open", store: claim.store });
          log.info({ ghost }, "a ghost's machine was opened again");
          return;
        }
        // Whoever had users tracked has to do so again.
        if (claim.kind === "claimed") this.#giveUp(entry, "users_forgotten");
        else this.#giveUp(entry, claim.kind === "foreign" ? "foreign" : "no_store");
      } catch (error) {
        if (error instanceof ThreadEnded) panics += 1;
        const kind = error instanceof ThreadRefusal ? error.kind : undefined;
        if (kind === "foreign" || kind === "fence_lost") this.#giveUp(entry, kind);
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
    if (entry.opening !== undefined) {
      const opened = entry.opening.then(() => true);
      const isOpen = await resultWithin(this.#deps.clock, REOPEN_WAIT_MS, opened).catch((error: unknown) => {
        throw unavailable(ghost, error);
      });
      if (isOpen === undefined) throw unavailable(ghost);
    }
    return entry.thread.ask({ do: "call", ghost, call, args });
  }

  /** A method of the machine, called from outside its thread; it rejects with a DrawbridgeError. */
  #forward<Call extends MachineCall>(call: Call) {
    return (ghost: GhostMxid, ...args: Parameters<MachineCalls[Call]>) =>
      this.#ask(ghost, call, args).catch((error: unknown) => {
        throw unavailable(ghost, error);
      }) as ReturnType<MachineCalls[Call]>;
  }

  async receive(ghost: GhostMxid, changes: DeviceChanges): Promise<readonly RoomId[]> {
    const received = await this.#receiveOnce(ghost, changes);
    if (received !== undefined) return received;
    const thread = this.#entries.get(ghost)?.thread;
    if (thread === undefined) throw unavailable(ghost);
    // The thread ended while it took these in: each is tried alone, and one that ends it every time is skipped.
    const messages = changes.toDevice.map((message) => ({ ...NO_CHANGES, toDevice: [message] }));
    return thread.alone.run(async () => {
      const rooms = new Set<RoomId>();
      for (const part of [{ ...changes, toDevice: [] }, ...messages]) {
        for (const room of await this.#receiveCarefully(ghost, part)) rooms.add(room);
      }
      return [...rooms];
    });
  }

  /** Undefined when its thread ended meanwhile. */
  #receiveOnce(ghost: GhostMxid, changes: DeviceChanges) {
    const received = this.#ask(ghost, "receive", [changes]) as ReturnType<MachineCalls["receive"]>;
    return received.catch((error: unknown) => {
      if (error instanceof ThreadEnded) return undefined;
      throw unavailable(ghost, error);
    });
  }

  async #receiveCarefully(ghost: GhostMxid, changes: DeviceChanges) {
    for (let panics = 0; panics < PANICS_OF_ONE_MAX; panics++) {
      const received = await this.#receiveOnce(ghost, changes);
      if (received !== undefined) return received;
    }
    this.#deps.log.error({ ghost }, "a to-device message ended its thread each time; it is skipped");
    return [];
  }

  async decrypt(ghost: GhostMxid, event: EncryptedRoomEvent): Promise<Decryption> {
    if ((this.#suspects.get(event.event) ?? 0) >= PANICS_OF_ONE_MAX) {
      return { kind: "refused", reason: "undecryptable" };
    }
    const ask = () => this.#ask(ghost, "decrypt", [event]) as Promise<Decryption>;
    // Without other such events beside it, so that only one that ends the thread by itself is counted again.
    const thread = this.#suspects.has(event.event) ? this.#entries.get(ghost)?.thread : undefined;
    try {
      const decryption = await (thread === undefined ? ask() : thread.alone.run(ask));
      this.#suspects.delete(event.event);
      if (decryption.kind !== "decrypted") return decryption;
      return { ...decryption, indexDigest: Buffer.from(decryption.indexDigest) };
    } catch (error) {
      const times = this.#suspects.get(event.event) ?? 0;
      if (error instanceof ThreadEnded) this.#suspects.set(event.event, times + 1);
      return { kind: "unavailable" };
    }
  }

  async shut(ghost: GhostMxid): Promise<void> {
    const entry = this.#entries.get(ghost);
    this.#entries.delete(ghost);
    await entry?.thread.ask({ do: "shut", ghost }).catch(() => undefined);
  }

  close(): Promise<void> {
    this.#closing.abort();
    this.#entries.clear();
    this.#closed ??= Promise.all(this.#threads.map((thread) => thread.close())).then(() => this.#pool.end());
    return this.#closed;
  }
}

const sealIdentity = (ghost: GhostMxid, deviceId: string) => `crypto store of ${ghost}, device ${deviceId}`;

export async function createStore(on: ClaimDependencies, ghost: GhostMxid, deviceId: string): Promise<Claim> {
  const key = on.random.bytes(STORE_KEY_BYTES);
  const sealedKey = on.storeKeys.seal(key.toString("base64"), sealIdentity(ghost, deviceId));
  const fence = await createCryptoStore(on.pool, { ghost, deviceId, sealedKey }, on.clock.now());
  if (fence === undefined) return { kind: "store_exists" };
  return { kind: "claimed", store: { ghost, deviceId, key, fence, layout: [], identity: undefined } };
}

export async function loadStore(on: ClaimDependencies, ghost: GhostMxid, deviceId: string): Promise<Claim> {
  for (let attempt = 0; attempt < LOADS_MAX; attempt++) {
    const found = await findCryptoStore(on.pool, ghost);
    if (found?.identity === undefined) return { kind: "no_store" };
    if (found.deviceId !== deviceId) return { kind: "foreign" };
    const identity = sealIdentity(ghost, deviceId);
    const opened = on.storeKeys.openIfKnown(found.sealedKey, identity);
    if (opened === undefined) return { kind: "foreign" };
    const isNewest = on.storeKeys.isNewest(found.sealedKey);
    const sealed = isNewest ? found.sealedKey : on.storeKeys.seal(opened, identity);
    const claimed = await claimCryptoStore(on.pool, ghost, found, sealed);
    // The store was reset or sealed anew meanwhile: it is read again.
    if (claimed === undefined) continue;
    const { fence, layout, identity: present } = claimed;
    const key = Buffer.from(opened, "base64");
    const store = { ghost, deviceId, key, fence, layout, identity: present };
    // A failed statement may have been committed.
    const hasForgotten = await forgetTrackedUsers(on.pool, ghost, TRACKED_MAX).catch(() => true);
    return { kind: "claimed", store, hasForgotten };
  }
  throw new DrawbridgeError("device_unavailable", `the store of ${ghost} changes while it is opened`, {
    hint: "Nothing: it is opened again by itself.",
  });
}
