// Sends an event under its stored transaction ID, as the ghost's device, and never twice (docs/decisions/0006).
// Invariants: the attempt is recorded before the first request; once the homeserver may have forgotten the transaction ID,
// the timeline after the question is searched for it first, and where that cannot be read the event is given up; for an
// encrypted room it is encrypted at each try; it is marked as automated, inside the ciphertext and outside.
import type { Clock } from "../../domain/clock.ts";
import type { EventId, RoomId } from "../../domain/identifiers.ts";
import type { DelegationLedger } from "../ledger/ledger.ts";
import type { PendingSend } from "../ledger/replies.ts";
import { TRANSACTION_KEY } from "../ledger/transaction-ids.ts";
import { AUTOMATED_MARKS } from "./automated.ts";
import type { Ghosts } from "./ghosts.ts";
import type { Homeserver } from "./homeserver.ts";
import type { GhostActor } from "./http.ts";
import { DONE, type Failure, mapValue, type Outcome, ok, refused } from "./request-result.ts";

/** Four hours short of how long the homeserver remembers the transaction IDs of a device. */
export const TRANSACTION_MEMORY_MS = 20 * 60 * 60 * 1000;
const SEARCH_PAGES_MAX = 200;

export type SendResult =
  | { readonly kind: "sent"; readonly eventId: EventId }
  /** `afterMs` is 0 only when the caller's signal ended it. */
  | { readonly kind: "retry"; readonly afterMs: number }
  | { readonly kind: "refused"; readonly reason: "room_unreachable" | "reply_refused" };

export interface OutgoingEvent extends Omit<PendingSend, "sendId" | "purpose" | "ordinal" | "sourceEventId"> {
  /** Whether all devices of the room may read it, also those whose questions are refused. */
  readonly forAllDevices?: boolean;
  /** The event it answers, behind which an earlier send is searched. */
  readonly sourceEventId: EventId | undefined;
  /** Rejects when the right to send was lost. Resolves to the ID of an event that was sent. */
  readonly recordAttempt: (now: number) => Promise<EventId | undefined>;
}

export type EventContent = Pick<OutgoingEvent, "eventType" | "content" | "forAllDevices">;

export type EncryptEvent = (
  actor: GhostActor,
  room: RoomId,
  event: EventContent,
) => Promise<Outcome<EventContent>>;

/**
 * Whether a room is, or ever was, encrypted. The state of one that is not known to be is read each time: what the ledger knows
 * may be out of date.
 */
export async function isRoomEncrypted({ homeserver, ledger }: RoomReader, actor: GhostActor, room: RoomId) {
  if (await ledger.isRoomEncrypted(room)) return ok(true);
  const state = await homeserver.stateEvent(actor, room, "m.room.encryption");
  return mapValue(state, (content) => content !== undefined);
}

export interface RoomReader {
  readonly homeserver: Pick<Homeserver, "stateEvent">;
  readonly ledger: { isRoomEncrypted(room: RoomId): Promise<boolean> };
}

/** For ghosts that take no part in encrypted rooms any more: what was asked in one is not answered in plain text. */
export function plainRoomsOnly(reader: RoomReader): EncryptEvent {
  return async (actor, room, event) => {
    const encrypted = await isRoomEncrypted(reader, actor, room);
    if (encrypted.kind !== "ok") return encrypted;
    return encrypted.value ? refused(400, "DRAWBRIDGE_ROOM_ENCRYPTED") : ok(event);
  };
}

export interface SenderDependencies {
  readonly homeserver: Homeserver;
  readonly ghosts: Ghosts;
  readonly clock: Clock;
  /** Without it everything is sent as it is. */
  readonly encryptEvent?: EncryptEvent | undefined;
}

export async function sendOnce(deps: SenderDependencies, event: OutgoingEvent, signal?: AbortSignal) {
  const { homeserver, ghosts, clock, encryptEvent } = deps;
  const { roomId, transactionId, firstAttemptedAt } = event;
  const acting = <T>(action: (actor: GhostActor) => Promise<Outcome<T>>) =>
    ghosts.acting(event.ghost, action, signal);
  const ready = await ghosts.readyGhost(event.ghost, signal);
  if (ready.kind === "retry") return giveBack(ready);

  if (firstAttemptedAt !== undefined && clock.now() - firstAttemptedAt >= TRANSACTION_MEMORY_MS) {
    const earlier = await acting((actor) => findEarlier(homeserver, actor, event));
    if (earlier.kind !== "ok") return giveBack(earlier);
    if (earlier.value !== undefined) return sentAs(earlier.value);
  }
  const marked = { ...event, content: { ...event.content, ...AUTOMATED_MARKS } };
  const outgoing =
    encryptEvent === undefined ? ok(marked) : await acting((actor) => encryptEvent(actor, roomId, marked));
  if (outgoing.kind !== "ok") return giveBack(outgoing);
  const { eventType } = outgoing.value;
  // Outside the ciphertext, where an earlier send is recognised, and programs without the key see what it is.
  const content = { ...outgoing.value.content, ...AUTOMATED_MARKS, [TRANSACTION_KEY]: transactionId };
  const known = await event.recordAttempt(clock.now());
  if (known !== undefined) return sentAs(known);
  const send = (actor: GhostActor) => homeserver.sendEvent(actor, roomId, eventType, transactionId, content);
  const sent = await acting(send);
  return sent.kind === "ok" ? sentAs(sent.value) : giveBack(sent);
}

export function createEventSender(
  deps: SenderDependencies & { readonly ledger: Pick<DelegationLedger, "recordAttempt"> },
) {
  return {
    /** @throws DrawbridgeError `lease_lost` when another has the event by now */
    send: (send: PendingSend, signal?: AbortSignal) => {
      const recordAttempt = (now: number) => deps.ledger.recordAttempt(send.sendId, now);
      return sendOnce(deps, { ...send, recordAttempt }, signal);
    },
  };
}

async function findEarlier(
  homeserver: Homeserver,
  actor: GhostActor,
  { roomId, eventType, ghost, sourceEventId, transactionId }: OutgoingEvent,
): Promise<Outcome<EventId | undefined>> {
  const unknowable = refused(404, "M_NOT_FOUND");
  if (sourceEventId === undefined) return unknowable;
  const start = await homeserver.timelineAfter(actor, roomId, sourceEventId);
  if (start.kind !== "ok") return start;
  let from = start.value;
  for (let page = 0; page < SEARCH_PAGES_MAX; page++) {
    const read = await homeserver.ownEventsFrom(actor, roomId, [eventType, "m.room.encrypted"], from);
    if (read.kind !== "ok") return read;
    const found = read.value.events.find(
      ({ sender, content }) => sender === ghost && content[TRANSACTION_KEY] === transactionId,
    );
    if (found !== undefined) return ok(found.event_id);
    if (read.value.next === undefined || read.value.next === from) return DONE;
    from = read.value.next;
  }
  return unknowable;
}

export const sentAs = (eventId: EventId): SendResult => ({ kind: "sent", eventId });

function giveBack(outcome: Failure): SendResult {
  if (outcome.kind === "retry") return { kind: "retry", afterMs: outcome.afterMs };
  const unreachable = outcome.errcode === "M_FORBIDDEN" || outcome.errcode === "M_NOT_FOUND";
  return { kind: "refused", reason: unreachable ? "room_unreachable" : "reply_refused" };
}
