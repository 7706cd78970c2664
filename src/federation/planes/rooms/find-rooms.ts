// Which rooms there are, found from the homeserver and from no list that somebody keeps.
// Invariant: a room is found by its listing, by events sent to a partner's server, and by the partner's own users,
// because each alone has gaps: the listing lags behind, and not every server was sent an event.
import type { RoomId, ServerName, UserId } from "../../../domain/identifiers.ts";
import { mapConcurrent } from "../../../runtime/concurrency.ts";
import { presentOf, type RoomState } from "./room-state.ts";
import { ROOMS_AT_ONCE, type RoomsSession } from "./session.ts";

/** Rooms that the homeserver lists, and those of the partners' servers. */
export async function listRooms(
  { operator }: Pick<RoomsSession, "operator">,
  partners: readonly ServerName[],
): Promise<readonly RoomId[]> {
  const [listed, ...sentTo] = await Promise.all([
    operator.rooms(),
    ...partners.map((server) => operator.destinationRooms(server)),
  ]);
  return [...new Set([...listed.map(({ roomId }) => roomId), ...sentTo.flat()])];
}

/** Further rooms that the partners' users found so far are in, or invited to. */
export async function roomsOfUsers(
  { operator }: Pick<RoomsSession, "operator">,
  users: readonly UserId[],
  known: ReadonlySet<RoomId>,
): Promise<readonly RoomId[]> {
  const found = new Set<RoomId>();
  await mapConcurrent(users, ROOMS_AT_ONCE, async (user) => {
    for (const [room, membership] of await operator.memberships(user)) {
      if (membership !== "leave" && membership !== "ban" && !known.has(room)) found.add(room);
    }
  });
  return [...found];
}

/** Users of the partners in these rooms. */
export function usersOf(rooms: readonly RoomState[], partners: readonly ServerName[]): readonly UserId[] {
  const users = new Set<UserId>();
  for (const room of rooms) {
    for (const partner of partners) for (const user of presentOf(room, partner)) users.add(user);
  }
  return [...users];
}
