// A transaction in: keys first, then read, open, derive, commit. Invariants: when `handle` returns, all of it is durable, what
// came for machines of other processes included; when it throws, the homeserver comes again, and what was kept is not handled
// twice; no machine is called while the database transaction is open; one that does not answer delays no transaction for
// long, and none with its keys again.
import type { Clock } from "../../domain/clock.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import type { EventId, GhostMxid, RoomId, UserId } from "../../domain/identifiers.ts";
import type { UnknownObject } from "../../domain/json.ts";
import { resultWithin } from "../../runtime/concurrency.ts";
import type { AgentDirectory } from "../agents/loaded-agents.ts";
import { isTakenFrom, serversAllowed } from "../agents/sender-policy.ts";
import type { Admission, Admitted, Capacity, MalformedEvent } from "../ledger/admission-types.ts";
import type { Ledger } from "../ledger/ledger.ts";
import { isPassing } from "../ledger/postgres-servers.ts";
import type { RoomOrder } from "../ledger/room-order.ts";
import { type DeviceChanges, NO_CHANGES } from "../matrix/device-changes.ts";
import { redactedIn } from "./cancellations.ts";
import { aboutOf, candidatesOf, interpretMessages, postedIn, roomStateOf } from "./interpret-messages.ts";
import type { Namespace } from "./namespace.ts";
import { type createRecentEvents, type Decryptor, ghostsOf, openEncrypted } from "./open-encrypted.ts";
import { couldAsk, type EncryptedEvent, type ReadableEvent, readEvents } from "./read-events.ts";
import { readDevicePart } from "./transaction-extensions.ts";

/** What ghosts' devices add to intake, unless `encryption.mode` is `refuse`. */
export interface EncryptedIntake {
  readonly devices: Decryptor & {
    receive(changes: ReadonlyMap<GhostMxid, DeviceChanges>): Promise<unknown>;
    catchUpSoon(ghost: GhostMxid): void;
    owns(ghost: GhostMxid): boolean;
    /** The devices of all ghosts, whichever process owns their machines. */
    known(): ReadonlyMap<GhostMxid, string>;
  };
  /** Whether encrypted events are opened, or wait for their keys (`encryption.mode: on`). */
  readonly takesPart: boolean;
  readonly plainInEncrypted: boolean;
  readonly keyWaitMs: number;
  readonly recent: Pick<ReturnType<typeof createRecentEvents>, "keep">;
}

export interface HandledTransaction extends Admitted {
  readonly read: ReturnType<typeof readEvents>;
  readonly roomStateChanged: boolean;
  readonly mail: number;
  /** Messages for machines of other processes that were dropped; each machine counts its own. */
  readonly toDeviceRefused: number;
  readonly opened: number;
}

/** @param extras `caughtUp`: of events of a catchup, which does not wait for `ready`, the order of their rooms */
export type TransactionHandler = (
  transactionId: string,
  events: readonly unknown[],
  extras?: {
    readonly extensions?: UnknownObject;
    readonly bodySha256?: Buffer;
    readonly caughtUp?: RoomOrder;
  },
) => Promise<HandledTransaction>;

/** How long keys may take to become durable. Later they are still at the homeserver. */
const RECEIVE_MS_MAX = 2_000;

/** Of one ghost, while its machine is busy. */
const USERS_KEPT_MAX = 10_000;

const NOTHING_OPENED = { messages: [], malformed: [], waiting: [], opened: 0, decryptedIn: [] };

export function createTransactionHandler(options: {
  readonly ledger: Pick<Ledger, "intake" | "memberships">;
  readonly agents: Pick<AgentDirectory, "current">;
  readonly namespace: Namespace;
  readonly clock: Clock;
  readonly capacity: Capacity;
  readonly contextLifetimeMs: number;
  readonly slotFor?: Admission["slotFor"];
  readonly encryption?: EncryptedIntake | undefined;
  /** Resolves within five seconds: a catchup that comes before a transaction in order. */
  readonly ready?: () => Promise<void>;
}): TransactionHandler {
  const { ledger, agents, namespace, clock, encryption } = options;
  /**
   * Ghosts whose machines still take in what came before, and users whose devices changed meanwhile: of those who came into a
   * room a homeserver may not say that later. Everything else that comes is still there when the machine has done.
   */
  const late = new Map<GhostMxid, Set<UserId>>();

  /** Each ghost by itself: a machine is slow where other servers have given it much to do. */
  const takeIn = async (devices: EncryptedIntake["devices"], own: ReadonlyMap<GhostMxid, DeviceChanges>) => {
    const taking = [...own].map(async ([ghost, changes]) => {
      const kept = late.get(ghost);
      if (kept !== undefined) {
        for (const user of changes.changedUsers) if (kept.size < USERS_KEPT_MAX) kept.add(user);
        return devices.catchUpSoon(ghost);
      }
      const users = new Set<UserId>();
      late.set(ghost, users);
      try {
        await devices.receive(new Map([[ghost, changes]]));
        while (users.size > 0) {
          const changedUsers = [...users];
          users.clear();
          await devices.receive(new Map([[ghost, { ...NO_CHANGES, changedUsers }]]));
        }
      } finally {
        late.delete(ghost);
      }
    });
    await resultWithin(clock, RECEIVE_MS_MAX, Promise.all(taking));
  };

  /** Makes durable what came for own machines; returns the rest. Counts of keys alone are not worth a row. */
  const receive = async (
    extensions: UnknownObject,
    events: readonly ReadableEvent[],
    allowed: ReadonlySet<string>,
  ) => {
    if (encryption === undefined) return { mail: [], toDeviceRefused: 0 };
    const { devices } = encryption;
    const changes = readDevicePart(extensions, namespace, devices.known(), events);
    const own = new Map([...changes].filter(([ghost]) => devices.owns(ghost)));
    if (own.size > 0) await takeIn(devices, own);
    let toDeviceRefused = 0;
    const mail = [...changes].flatMap(([ghost, { toDevice: sent, ...change }]) => {
      if (own.has(ghost)) return [];
      const toDevice = sent.filter(({ sender }) => isTakenFrom(sender, ghost, allowed));
      toDeviceRefused += sent.length - toDevice.length;
      return toDevice.length + change.changedUsers.length + change.leftUsers.length === 0
        ? []
        : { ghost, changes: JSON.stringify({ ...change, toDevice }) };
    });
    return { mail, toDeviceRefused };
  };

  return async (transactionId, rawEvents, { extensions = {}, bodySha256, caughtUp } = {}) => {
    if (caughtUp === undefined) await options.ready?.();
    const read = readEvents(rawEvents);
    const current = await agents.current();
    const { byGhost, partnerGhosts } = current;
    const { mail, toDeviceRefused } = await receive(extensions, read.events, serversAllowed(current));
    const { plain, encrypted, reactions } = candidatesOf(read.events, namespace, partnerGhosts);
    const roomState = roomStateOf(read.events, namespace, byGhost);

    const open = async (events: readonly EncryptedEvent[]) => {
      if (events.length === 0 || encryption?.takesPart !== true) return NOTHING_OPENED;
      const joined = await ledger.memberships.joinedGhosts([...new Set(events.map(({ room }) => room))]);
      const decrypt: Decryptor["decrypt"] = async (ghosts, ...event) =>
        ghosts.every((ghost) => late.has(ghost))
          ? { kind: "unavailable" }
          : await encryption.devices.decrypt(ghosts, ...event);
      return await openEncrypted(events, {
        devices: { decrypt },
        ghosts: (room) => ghostsOf(room, joined, roomState, byGhost),
        targets: byGhost,
        clock,
      });
    };
    const { messages, malformed, waiting, opened, decryptedIn } = await open(encrypted);

    const candidates = [...plain, ...messages.filter(couldAsk)].sort((a, b) => a.position - b.position);
    const allMalformed = [...read.malformed, ...malformed];
    const receivedAt = clock.now();
    const posted = postedIn(read.events, namespace);
    const asked = {
      posted,
      candidates,
      reactions,
      waiting,
      deadline: receivedAt + (encryption?.keyWaitMs ?? 0),
      plainInEncrypted: encryption?.takesPart === true && encryption.plainInEncrypted,
      contextSince: receivedAt - options.contextLifetimeMs,
    };
    encryption?.recent.keep(waiting.filter(({ isUntried }) => isUntried));
    const admitted = await ledger.intake.admit({
      transactionId,
      ingress: caughtUp === undefined ? "transaction" : "recovered",
      order: caughtUp,
      receivedAt,
      bodySha256,
      mail,
      events: [...read.events, ...read.malformed.filter(isNamed)],
      malformed: allMalformed,
      roomState,
      redacted: redactedIn(read.events),
      posted,
      about: aboutOf(candidates, partnerGhosts, waiting, reactions),
      decryptedIn,
      derive: (known) => interpretMessages(asked, known, byGhost, namespace),
      capacity: options.capacity,
      slotFor: options.slotFor,
    });
    return {
      ...admitted,
      read: { events: read.events, malformed: allMalformed },
      roomStateChanged: roomState.length > 0,
      mail: mail.length,
      toDeviceRefused,
      opened,
    };
  };
}

const isNamed = (event: MalformedEvent): event is MalformedEvent & { event: EventId; room: RoomId } =>
  event.event !== undefined && event.room !== undefined;

const AGAIN_MS = 100;
/** When the last try begins. Where a server hangs, a try takes some 25 s; Synapse gives a transaction up after a minute. */
const BEGIN_MS_MAX = 25_000;

/** Whether the database is away; a ghost's device throws only because its keys could not be committed. */
function mayPass(error: unknown): boolean {
  const isOfDevice = error instanceof DrawbridgeError && error.code === "device_unavailable";
  return isOfDevice || isPassing(error);
}

/**
 * Has a transaction wait for a database that is away for a moment: the homeserver would come again by itself, but ever more
 * rarely. The transaction is handled again as a whole. @param stop ends the wait: then the failure is thrown
 */
export function throughFailover(handle: TransactionHandler, clock: Clock, stop: AbortSignal) {
  return async (...transaction: Parameters<TransactionHandler>) => {
    const until = clock.now() + BEGIN_MS_MAX;
    for (;;) {
      try {
        return await handle(...transaction);
      } catch (error) {
        if (!mayPass(error) || stop.aborted || clock.now() + AGAIN_MS > until) throw error;
        await clock.sleep(AGAIN_MS, stop).catch(() => undefined);
      }
    }
  };
}
