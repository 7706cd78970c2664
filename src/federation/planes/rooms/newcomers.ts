// Servers that joined a room after its ACL was set, and so may not enforce it. Pure.
// A homeserver that is invited asks itself for the ACL of a room of which it has no state, remembers that there
// is none, and goes on so when the ACL comes with the join: Synapse forgets it only with the next ACL event.
// Invariant: times are compared, never trusted: one that is still to come says nothing, so that a server whose
// clock is ahead is not sent the ACL again and again.
import { type ServerName, serverOf } from "../../../domain/identifiers.ts";
import type { ServerAcl } from "./acl.ts";
import type { RoomsIntent } from "./intent.ts";
import type { RoomState } from "./room-state.ts";

/** @param now Unix time in milliseconds */
export function cameAfterAcl(room: RoomState, { own, closing }: RoomsIntent, now: number): ServerName[] {
  const setAt = room.acl?.at;
  if (setAt === undefined || closing.length === 0) return [];
  const passedOver = new Set([own, ...closing.map(({ serverName }) => serverName)]);
  const isLate = new Map<ServerName, boolean>();
  for (const [user, { membership, at }] of room.members) {
    const server = serverOf(user);
    if (membership !== "join" || passedOver.has(server)) continue;
    // Whoever of it was there before has had its server told of every ACL since.
    const cameLater = at !== undefined && at > setAt && at <= now;
    isLate.set(server, cameLater && isLate.get(server) !== false);
  }
  return [...isLate].flatMap(([server, late]) => (late ? [server] : [])).sort();
}

/** The same ACL as another event: a homeserver makes none of what stands there word for word. */
export function inAnotherOrder({ allow, deny, ...rest }: ServerAcl): ServerAcl | undefined {
  const [first, ...others] = allow;
  if (first !== undefined && others.length > 0) return { ...rest, allow: [...others, first], deny };
  const [denied, ...more] = deny;
  if (denied !== undefined && more.length > 0) return { ...rest, allow, deny: [...more, denied] };
  return undefined;
}
