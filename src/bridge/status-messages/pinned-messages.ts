// The list of a room's pinned messages (Matrix client-server API, "m.room.pinned_events").
// Invariant: what others have pinned stays, in its order.
import type { EventId, RoomId } from "../../domain/identifiers.ts";
import type { Homeserver } from "../matrix/homeserver.ts";
import type { GhostActor } from "../matrix/http.ts";
import type { Outcome } from "../matrix/request-result.ts";

const PINNED = "m.room.pinned_events";

/** Pins a message, or takes it from the list. A ghost that may not is refused by the homeserver. */
export async function setPinned(
  homeserver: Homeserver,
  actor: GhostActor,
  roomId: RoomId,
  eventId: EventId,
  isPinned: boolean,
): Promise<Outcome<undefined>> {
  const read = await homeserver.stateEvent(actor, roomId, PINNED);
  if (read.kind !== "ok") return read;
  const listed = read.value?.["pinned"];
  const present = Array.isArray(listed) ? listed.filter((one) => typeof one === "string") : [];
  if (present.includes(eventId) === isPinned) return { kind: "ok", value: undefined };
  const pinned = isPinned ? [...present, eventId] : present.filter((one) => one !== eventId);
  return homeserver.setState(actor, roomId, PINNED, { pinned });
}
