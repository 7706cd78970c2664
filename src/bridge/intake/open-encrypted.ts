// Encrypted events of a transaction, tried at once: what opens goes on as the message it held, what does not waits for its
// key. Invariants: nothing here throws and nothing here is stored; the tries of one transaction end within the budget; only
// events of rooms with a ghost, by senders who may ask one of them, are tried or waited for: nobody else can hold up a room.
import { LRUCache } from "lru-cache";
import { canonicalize } from "../../domain/canonical-json.ts";
import type { Clock } from "../../domain/clock.ts";
import { sha256 } from "../../domain/digest.ts";
import type { EventId, GhostMxid, RoomId } from "../../domain/identifiers.ts";
import type { Json, UnknownObject } from "../../domain/json.ts";
import { resultWithin } from "../../runtime/concurrency.ts";
import type { AgentTarget } from "../agents/loaded-agents.ts";
import { isSenderAllowed } from "../agents/sender-policy.ts";
import type { MalformedEvent, RoomStateEvent } from "../ledger/admission-types.ts";
import { type EncryptedEvent, type MessageEvent, malformedEncrypted, readDecrypted } from "./read-events.ts";

const BUDGET_MS = 2_000;
/** Of a room that nothing is known of, so many ghosts are tried. */
const UNKNOWN_ROOM_GHOSTS_MAX = 16;

export type Decryption =
  | ({ readonly kind: "decrypted" } & Parameters<typeof readDecrypted>[1])
  | { readonly kind: "missing_key" | "refused" | "unavailable" };

const UNAVAILABLE: Decryption = { kind: "unavailable" };

export interface Decryptor {
  decrypt(ghosts: readonly GhostMxid[], event: EncryptedEvent, timeoutMs: number): Promise<Decryption>;
}

export interface WaitingEvent extends EncryptedEvent {
  readonly fingerprint: Buffer;
  /** The event is an edit, or refers to another one, and is opened: it waits only for its question. */
  readonly isOpened?: boolean;
  /** No machine of its ghosts has answered. */
  readonly isUntried?: boolean;
}

/** The ghosts of a room as recorded, with what the transaction itself says of them. */
export function ghostsOf(
  room: RoomId,
  joined: ReadonlyMap<RoomId, readonly GhostMxid[]>,
  roomState: readonly RoomStateEvent[],
  configured: ReadonlyMap<GhostMxid, AgentTarget>,
): readonly GhostMxid[] {
  const arriving = roomState.flatMap((state) =>
    state.kind === "ghost" && state.room === room && state.membership === "join" ? [state.ghost] : [],
  );
  const recorded = joined.get(room);
  if (recorded === undefined && arriving.length === 0) {
    return [...configured.keys()].slice(0, UNKNOWN_ROOM_GHOSTS_MAX);
  }
  return [...new Set([...(recorded ?? []), ...arriving])];
}

export async function openEncrypted(
  events: readonly EncryptedEvent[],
  context: {
    readonly devices: Decryptor;
    readonly ghosts: (room: RoomId) => readonly GhostMxid[];
    readonly targets: ReadonlyMap<GhostMxid, AgentTarget>;
    readonly clock: Clock;
  },
) {
  const { devices, clock, targets } = context;
  const deadline = clock.now() + BUDGET_MS;
  const decrypt = async (ghosts: readonly GhostMxid[], event: EncryptedEvent) => {
    const leftMs = Math.max(0, deadline - clock.now());
    return (await resultWithin(clock, leftMs, devices.decrypt(ghosts, event, leftMs))) ?? UNAVAILABLE;
  };
  const messages: MessageEvent[] = [];
  const malformed: MalformedEvent[] = [];
  /** To be tried again: their key is missing, their sender's device is not trusted yet, or their question waits. */
  const waiting: WaitingEvent[] = [];
  const rooms: RoomId[] = [];
  const tried = events
    .map((event) => ({ event, ghosts: context.ghosts(event.room) }))
    .map((one) => ({ ...one, ...rightsOf(one.event, one.ghosts, targets) }))
    .filter(({ mayAsk }) => mayAsk);
  const results = await Promise.all(
    tried.map(async (one) => {
      const result = await decrypt(one.ghosts, one.event).catch(() => UNAVAILABLE);
      return { ...one, result };
    }),
  );
  for (const { event, mayHoldUp, result } of results) {
    if (result.kind !== "decrypted") {
      if (!mayHoldUp) continue;
      const fingerprint = eventFingerprint(event.raw);
      if (fingerprint === undefined) malformed.push(malformedEncrypted(event, "content"));
      else waiting.push({ ...event, fingerprint, isUntried: result.kind === "unavailable" });
      continue;
    }
    rooms.push(event.room);
    const read = readDecrypted(event, result);
    if (read.message !== undefined) messages.push(read.message);
    const refersTo = event.replaces ?? read.message?.inReplyTo ?? read.message?.threadRoot;
    if (read.message !== undefined && refersTo !== undefined && mayHoldUp) {
      const fingerprint = eventFingerprint(event.raw);
      if (fingerprint !== undefined) waiting.push({ ...event, fingerprint, isOpened: true });
    }
    if (read.malformed !== undefined) malformed.push(read.malformed);
  }
  return { messages, malformed, waiting, opened: rooms.length, decryptedIn: [...new Set(rooms)] };
}

/**
 * Events that came while no machine of their ghosts answered here, as after a failover of the database: the next attempt to
 * open them need not fetch them. They are in memory alone and bounded in number; each is taken once, within ten seconds.
 */
export function createRecentEvents(clock: Pick<Clock, "now">) {
  const kept = new LRUCache<EventId, UnknownObject>({ max: 256, ttl: 10_000, ttlResolution: 0, perf: clock });
  return {
    keep(events: readonly Pick<EncryptedEvent, "event" | "raw">[]): void {
      kept.purgeStale();
      for (const { event, raw } of events) kept.set(event, raw);
    },

    /** The event as the homeserver sent it, unless that was too long ago or it was taken before. */
    take(event: EventId): UnknownObject | undefined {
      const raw = kept.get(event);
      kept.delete(event);
      return raw;
    },
  };
}

/**
 * Everybody may ask a ghost whose agent was removed: it answers that with a notice. But nobody may hold up a room by that,
 * unless every ghost there is such.
 */
function rightsOf(
  { sender }: EncryptedEvent,
  ghosts: readonly GhostMxid[],
  targets: ReadonlyMap<GhostMxid, AgentTarget>,
): { readonly mayAsk: boolean; readonly mayHoldUp: boolean } {
  const served = ghosts.flatMap((ghost) => targets.get(ghost) ?? []);
  const isAllowed = served.some(({ entry }) => isSenderAllowed(entry, sender));
  return { mayAsk: isAllowed || served.length < ghosts.length, mayHoldUp: isAllowed || served.length === 0 };
}

const EVENT_FIELDS = ["event_id", "room_id", "sender", "type", "origin_server_ts", "content"] as const;

/** SHA-256 of an encrypted event in canonical form (RFC 8785), by which it is known later, if it has one. */
export function eventFingerprint(raw: UnknownObject): Buffer | undefined {
  try {
    return sha256(canonicalize(EVENT_FIELDS.map((field) => (raw[field] ?? null) as Json)));
  } catch {
    return undefined;
  }
}
