// A room's current state as the rooms plane reads it. Pure. Invariants: a user's server is everything after the first
// colon, because homeservers accept IDs that the grammar excludes; a membership that cannot be read is kept as such.
import { type EventId, type RoomId, serverHost, serverOf, type UserId } from "../../../domain/identifiers.ts";
import type { UnknownObject } from "../../../domain/json.ts";
import type { StateEvent } from "../../homeserver/synapse-admin-api.ts";
import type { FoundAcl } from "./acl.ts";
import { hasPrivilegedCreators, withIntegers } from "./power-levels.ts";

export type RoomState = Readonly<ReturnType<typeof readRoomState>>;

export type Membership = "join" | "invite" | "knock" | "leave" | "ban";

export interface Member {
  readonly membership: Membership;
  readonly sender: string;
  readonly eventId: EventId;
  /** When, by the clock of its sender's server. */
  readonly at?: number | undefined;
}

/** State that a replacement takes over, each with the text that it must have. */
export const TAKEN_OVER: Readonly<Record<string, string>> = {
  "m.room.name": "name",
  "m.room.topic": "topic",
  "m.room.avatar": "url",
  "m.room.encryption": "algorithm",
  "m.room.history_visibility": "history_visibility",
};
const RULES = ["m.room.create", "m.room.join_rules", "m.room.power_levels", "m.room.server_acl"];
const SINGLE: ReadonlySet<string> = new Set([...RULES, ...Object.keys(TAKEN_OVER)]);

const MEMBERSHIPS: ReadonlySet<unknown> = new Set(["join", "invite", "knock", "leave", "ban"]);

export function readRoomState(roomId: RoomId, events: readonly StateEvent[]) {
  /** State that is read here, by type; state key empty. */
  const single = new Map<string, UnknownObject>();
  const members = new Map<UserId, Member>();
  /** State keys of memberships that name no server, or hold no membership: anybody's, for all that is known. */
  const unreadable: string[] = [];
  let creator: UserId | undefined;
  let acl: (Partial<Member> & Pick<Member, "eventId"> & { readonly content: FoundAcl }) | undefined;
  for (const event of events) {
    const { event_id, origin_server_ts: at, content } = event;
    const eventId = event_id as EventId;
    if (event.type === "m.room.member") {
      const user = reportedUser(event.state_key);
      const membership = content["membership"];
      if (user === undefined || !MEMBERSHIPS.has(membership)) {
        unreadable.push(event.state_key);
        continue;
      }
      members.set(user, { membership: membership as Membership, sender: event.sender, eventId, at });
    } else if (event.state_key === "" && SINGLE.has(event.type)) {
      single.set(event.type, content);
      if (event.type === "m.room.create") creator = reportedUser(event.sender);
      if (event.type === "m.room.server_acl") acl = { content, eventId, sender: event.sender, at };
    }
  }
  const create = single.get("m.room.create") ?? {};
  const version = typeof create["room_version"] === "string" ? create["room_version"] : "1";
  const isPrivileged = hasPrivilegedCreators(version);
  const more = create["additional_creators"];
  const additional: string[] = Array.isArray(more) ? more.filter((user) => typeof user === "string") : [];
  const levels = single.get("m.room.power_levels");
  const joinRule = single.get("m.room.join_rules")?.["join_rule"];
  const predecessor = create["predecessor"] as { room_id?: unknown } | undefined;
  return {
    roomId,
    version,
    creator,
    /** False when the room was made for its own homeserver alone. */
    federates: create["m.federate"] !== false,
    members,
    unreadable,
    power: {
      content: levels && withIntegers(levels),
      creator,
      privileged: new Set(isPrivileged ? [creator, ...additional].filter((user) => user !== undefined) : []),
    },
    acl,
    joinRule: typeof joinRule === "string" ? joinRule : "invite",
    single,
    predecessor: typeof predecessor?.room_id === "string" ? predecessor.room_id : undefined,
  };
}

/** A user ID as the homeserver reports it; undefined when it names no server, or when no homeserver can act on it. */
function reportedUser(id: string): UserId | undefined {
  const colon = id.indexOf(":");
  return id.startsWith("@") && colon > 0 && colon < id.length - 1 ? (id as UserId) : undefined;
}

const PRESENT: ReadonlySet<Membership> = new Set(["join", "invite", "knock"]);

/** Whether two names are of one host: ACLs know no port, so another server on a partner's host counts as the partner's. */
export function isOneHost(server: string, other: string): boolean {
  return server === other || serverHost(server) === serverHost(other);
}

/** Users who are in the room, invited to it or knocking. */
export function presentIn({ members }: RoomState): readonly UserId[] {
  return [...members].flatMap(([user, { membership }]) => (PRESENT.has(membership) ? [user] : []));
}

/** Who is in the room of this server's host; sorted. */
export function presentOf(room: RoomState, server: string): readonly UserId[] {
  const present = presentIn(room).filter((user) => isOneHost(serverOf(user), server));
  return present.sort();
}

/** Users of this server's host who have left and may join again, uninvited, through another server; sorted. */
export function formerOf(room: RoomState, server: string, own: string): readonly UserId[] {
  const isOther = (joined: string) => joined !== own && !isOneHost(joined, server);
  const isShared = [...joinedByServer(room).keys()].some(isOther);
  if (!isShared || !JOINED_WITHOUT_INVITATION.has(room.joinRule)) return [];
  const left = [...room.members].filter(([, { membership }]) => membership === "leave");
  const former = left.flatMap(([user]) => (isOneHost(serverOf(user), server) ? user : []));
  return former.sort();
}

export type Presence = Exclude<Membership, "ban">;

export function presenceOf(room: RoomState, user: UserId): Presence {
  const membership = room.members.get(user)?.membership;
  return membership === undefined || membership === "ban" ? "invite" : membership;
}

/** Users who have joined, by server; both sorted. */
export function joinedByServer(room: RoomState): ReadonlyMap<string, readonly UserId[]> {
  const joined = [...room.members].filter(([, { membership }]) => membership === "join");
  return Map.groupBy(joined.map(([user]) => user).sort(), serverOf);
}

const JOINED_WITHOUT_INVITATION: ReadonlySet<string> = new Set(["public", "restricted", "knock_restricted"]);
/** Members of another room, which may be on any server, come into a restricted one. */
const OPEN_TO_STRANGERS: ReadonlySet<string> = new Set([...JOINED_WITHOUT_INVITATION, "knock"]);

/** Whether servers other than `own` take part, took part, or may simply come. */
export function isFederated(room: RoomState, own: string): boolean {
  if (!room.federates) return false;
  if (room.acl !== undefined || OPEN_TO_STRANGERS.has(room.joinRule)) return true;
  for (const user of room.members.keys()) if (serverOf(user) !== own) return true;
  return false;
}
