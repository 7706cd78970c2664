// Sends an event under its stored transaction ID, as the ghost's device, and never twice.
// Invariants:
// - the attempt is recorded before the first request, so a crash leaves the time it was made;
// - the transaction ID alone dedupes while the homeserver remembers it (24 hours for a device's requests);
//   past 20 hours the timeline after the question is read first, for an event that carries the ID;
// - where that cannot be read the event is given up: sent once or not at all;
// - it is marked as automated, inside the ciphertext and outside;
// - for an encrypted room it is encrypted at each try, and never goes out in any other form.
// See docs/decisions/0006-sending-and-transaction-ids.md.
import type { Clock } from "../../domain/clock.ts";
import type { EventId, GhostMxid, RoomId, TransactionId } from "../../domain/identifiers.ts";
import type { UnknownObject } from "../../domain/json.ts";
import type { DelegationLedger } from "../ledger/ledger.ts";
import type { PendingSend } from "../ledger/replies.ts";
import { TRANSACTION_KEY } from "../ledger/transaction-ids.ts";
import { AUTOMATED_MARKS } from "./automated.ts";
import type { Ghosts } from "./ghosts.ts";
import type { Homeserver } from "./homeserver.ts";
import type { GhostActor } from "./http.ts";
import { DONE, type Failure, type Outcome, ok, refused } from "./request-result.ts";

/** How long the homeserver surely remembers a transaction ID: four hours short of what it keeps. */
export const TRANSACTION_MEMORY_MS = 20 * 60 * 60 * 1000;
/** How far back an earlier send is searched, in pages of 100 of the ghost's own events. */
const LOOK_BACK_PAGES_MAX = 200;

/** What any event is once it was encrypted. */
const ENCRYPTED = "m.room.encrypted";

export type SendResult =
  | { readonly kind: "sent"; readonly eventId: EventId }
  /** `afterMs` is 0 only when the caller's signal ended it. */
  | { readonly kind: "retry"; readonly afterMs: number }
  | { readonly kind: "refused"; readonly reason: "room_unreachable" | "reply_refused" };

export interface EventSender {
  /**
   * @param signal ends a request in flight; once it has aborted none is begun
   * @throws DrawbridgeError `lease_lost` when another has the event by now
   */
  send(send: PendingSend, signal?: AbortSignal): Promise<SendResult>;
}

/** An event to send, whatever it is for. */
export interface OutgoingEvent {
  readonly roomId: RoomId;
  readonly ghost: GhostMxid;
  readonly eventType: string;
  readonly content: UnknownObject;
  /** Whether all devices of the room may read it, also those whose questions are refused: it holds nothing of questions. */
  readonly forAllDevices?: boolean;
  readonly transactionId: TransactionId;
  /** The event it answers; an earlier send is searched from there on. */
  readonly sourceEventId: EventId | undefined;
  readonly firstAttemptedAt: number | undefined;
  /** Records that a request is about to be made; rejects when the right to it was lost. Resolves to the ID of a sent event. */
  readonly recordAttempt: (now: number) => Promise<EventId | undefined>;
}

export type EventContent = Pick<OutgoingEvent, "eventType" | "content" | "forAllDevices">;

/** Makes an event ready for its room: unchanged, or encrypted. */
export type EncryptEvent = (
  actor: GhostActor,
  room: RoomId,
  event: EventContent,
) => Promise<Outcome<EventContent>>;

/** Where ghosts take no part in encrypted rooms: what was asked in one, while they did, is not answered in plain text. */
export function plainRoomsOnly(ledger: { isRoomEncrypted(room: RoomId): Promise<boolean> }): EncryptEvent {
  return async (_actor, room, event) =>
    (await ledger.isRoomEncrypted(room)) ? refused(400, "DRAWBRIDGE_ROOM_ENCRYPTED") : ok(event);
}

export interface SenderDependencies {
  readonly homeserver: Homeserver;
  readonly ghosts: Ghosts;
  readonly clock: Clock;
  /** Where ghosts take part in encrypted rooms; without it everything is sent as it is. */
  readonly encryptEvent?: EncryptEvent | undefined;
}

/** Sends one event, or finds the one sent before. */
export async function sendOnce(
  deps: SenderDependencies,
  event: OutgoingEvent,
  signal?: AbortSignal,
): Promise<SendResult> {
  const { homeserver, ghosts, clock, encryptEvent } = deps;
  const { roomId, transactionId, firstAttemptedAt } = event;
  const acting = <T>(action: (actor: GhostActor) => Promise<Outcome<T>>) =>
    ghosts.acting(event.ghost, action, signal);
  const ready = await ghosts.readyGhost(event.ghost, signal);
  if (ready.kind === "retry") return giveBack(ready);

  if (firstAttemptedAt !== undefined && clock.now() - firstAttemptedAt >= TRANSACTION_MEMORY_MS) {
    const earlier = await acting((actor) => findEarlier(homeserver, actor, event));
    if (earlier.kind !== "ok") return giveBack(earlier);
    if (earlier.value !== undefined) return { kind: "sent", eventId: earlier.value };
  }
  const marked = { ...event, content: { ...event.content, ...AUTOMATED_MARKS } };
  const outgoing =
    encryptEvent === undefined ? ok(marked) : await acting((actor) => encryptEvent(actor, roomId, marked));
  if (outgoing.kind !== "ok") return giveBack(outgoing);
  const { eventType } = outgoing.value;
  // Outside the ciphertext, where an earlier send can be recognised, and programs without the key see what it is.
  const content = { ...outgoing.value.content, ...AUTOMATED_MARKS, [TRANSACTION_KEY]: transactionId };
  const known = await event.recordAttempt(clock.now());
  if (known !== undefined) return { kind: "sent", eventId: known };
  const sent = await acting((actor) =>
    homeserver.sendEvent(actor, roomId, eventType, transactionId, content),
  );
  return sent.kind === "ok" ? { kind: "sent", eventId: sent.value } : giveBack(sent);
}

/** Sends the events of delegations. */
export function createEventSender(
  deps: SenderDependencies & { readonly ledger: Pick<DelegationLedger, "recordAttempt"> },
): EventSender {
  return {
    send: (send, signal) => {
      const recordAttempt = (now: number) => deps.ledger.recordAttempt(send.sendId, now);
      return sendOnce(deps, { ...send, recordAttempt }, signal);
    },
  };
}

/** The ghost's own event under this transaction ID, if the timeline after the source has one. */
async function findEarlier(
  homeserver: Homeserver,
  actor: GhostActor,
  event: OutgoingEvent,
): Promise<Outcome<EventId | undefined>> {
  const unknowable = refused(404, "M_NOT_FOUND");
  if (event.sourceEventId === undefined) return unknowable;
  const start = await homeserver.timelineAfter(actor, event.roomId, event.sourceEventId);
  if (start.kind !== "ok") return start;
  let from = start.value;
  for (let page = 0; page < LOOK_BACK_PAGES_MAX; page++) {
    const read = await homeserver.ownEventsFrom(actor, event.roomId, [event.eventType, ENCRYPTED], from);
    if (read.kind !== "ok") return read;
    const found = read.value.events.find(
      (own) => own.sender === event.ghost && own.content[TRANSACTION_KEY] === event.transactionId,
    );
    if (found !== undefined) return ok(found.event_id);
    if (read.value.next === undefined || read.value.next === from) return DONE;
    from = read.value.next;
  }
  return unknowable;
}

function giveBack(outcome: Failure): SendResult {
  if (outcome.kind === "retry") return { kind: "retry", afterMs: outcome.afterMs };
  const unreachable = outcome.errcode === "M_FORBIDDEN" || outcome.errcode === "M_NOT_FOUND";
  return { kind: "refused", reason: unreachable ? "room_unreachable" : "reply_refused" };
}
