// A room that an organisation has replaced, as a containment does to rooms of its partner's: what is in its place
// becomes the shared room, under the address that the partner has given up. Invariants: found by the predecessor
// that the new room names, which only who made it could write; opened as a shared room is, so that what keeps
// others out of it is federation policy alone.
import { z } from "zod";
import { parseRoomId, type RoomId } from "../../src/domain/identifiers.ts";
import type { MatrixUser } from "../matrix-user.ts";

/** Of the replacement's moderator, who has gone into it, what is needed here. */
type Member = Pick<MatrixUser, "call" | "request">;

const Creation = z.object({ predecessor: z.object({ room_id: z.string() }).optional() });

/**
 * The room that stands for another, or for what stood for it; undefined when this person is in none.
 * @throws DrawbridgeError `homeserver_refused`, `homeserver_unavailable`
 */
export async function replacementOf(room: string, member: Member): Promise<RoomId | undefined> {
  const { joined_rooms: joined } = await member.call("GET", "/joined_rooms");
  const next = new Map<string, RoomId>();
  for (const id of (Array.isArray(joined) ? joined : []).map(parseRoomId)) {
    if (id === undefined) continue;
    const { status, body } = await member.request("GET", stateOf(id, "m.room.create"));
    const predecessor = status === 200 ? Creation.safeParse(body).data?.predecessor?.room_id : undefined;
    if (predecessor !== undefined) next.set(predecessor, id);
  }
  let last = next.get(room);
  // A loop cannot come about: a room is made after the one that it names.
  for (let later = last; later !== undefined; later = next.get(later)) last = later;
  return last;
}

/**
 * Opens it to whoever knows the address, as the room was that it stands for.
 * @param acl of a shared room
 * @throws DrawbridgeError `homeserver_refused`, `homeserver_unavailable`
 */
export async function openAsShared(
  room: RoomId,
  moderator: Member,
  acl: Readonly<Record<string, unknown>>,
): Promise<void> {
  const levels = await moderator.call("GET", stateOf(room, "m.room.power_levels"));
  await moderator.call("PUT", stateOf(room, "m.room.server_acl"), acl);
  await moderator.call("PUT", stateOf(room, "m.room.power_levels"), { ...levels, invite: 0 });
  await moderator.call("PUT", stateOf(room, "m.room.join_rules"), { join_rule: "public" });
}

function stateOf(room: string, type: string): string {
  return `/rooms/${encodeURIComponent(room)}/state/${type}/`;
}
