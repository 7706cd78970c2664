// A room's current state as the rooms plane reads it. Pure. Invariants: a user's server is everything after the first
// colon, because homeservers accept IDs that the grammar excludes; a membership that cannot be read is kept as such.
import { type EventId, type RoomId, serverHost, serverOf, type UserId } from "../../../domain/identifiers.ts";
import { isObject, membersOf } from "../../../domain/json.ts";
import type { StateEvent } from "../../homeserver/synapse-admin-api.ts";
import type { FoundAcl } from "./acl.ts";

/** The content of m.room.power_levels; a level that is no number counts as its default, as homeservers count it. */
export type PowerContent = Readonly<Record<string, unknown>>;

export type RoomState = Readonly<ReturnType<typeof readRoomState>>;
type Power = RoomState["power"];

export function levelOf(power: Power, user: string): number {
  if (power.privileged.has(user)) return Number.POSITIVE_INFINITY;
  if (power.content === undefined) return user === power.creator ? 100 : 0;
  const users = membersOf(power.content["users"]);
  return numberOr(users[user], numberOr(power.content["users_default"], 0));
}

export const banLevel = (power: Power): number => numberOr(power.content?.["ban"], 50);

export const inviteLevel = (power: Power): number => numberOr(power.content?.["invite"], 0);

export function mayBan(power: Power, actor: string, target: string): boolean {
  const level = levelOf(power, actor);
  return level >= banLevel(power) && level > levelOf(power, target);
}

export function maySend(power: Power, actor: string, type: string): boolean {
  const { content } = power;
  if (content === undefined) return levelOf(power, actor) >= 0;
  const needed = numberOr(membersOf(content["events"])[type], numberOr(content["state_default"], 50));
  return levelOf(power, actor) >= needed;
}

export function byLevel({ power }: RoomState, users: readonly UserId[]): UserId[] {
  return users.toSorted((a, b) => levelOf(power, b) - levelOf(power, a) || (a < b ? -1 : 1));
}

/** Message types whose own level lets people write below a level of `events_default`. */
const STATE_TYPES = /^m\.(?:room\.(?!message$|encrypted$|redaction$)|space\.)/;

/** The levels of a room in which nobody below `level` can write; undefined when they are so already. */
export function readOnly(content: PowerContent, level: number): PowerContent | undefined {
  const events = membersOf(content["events"]);
  const raised = Object.fromEntries(
    Object.entries(events).map(([type, value]) => [
      type,
      STATE_TYPES.test(type) ? value : Math.max(level, numberOr(value, 0)),
    ]),
  );
  const before = numberOr(content["events_default"], 0);
  const isUnchanged =
    before >= level && Object.entries(raised).every(([type, value]) => value === events[type]);
  return isUnchanged ? undefined : { ...content, events: raised, events_default: Math.max(level, before) };
}

function numberOr(value: unknown, otherwise: number): number {
  if (typeof value === "number" && Number.isFinite(value)) return value;
  // Before room version 10 a level could be written as text.
  if (typeof value === "string" && /^\s*[+-]?[0-9]{1,15}\s*$/.test(value)) return Number(value);
  return otherwise;
}

/** Levels as homeservers take them: before room version 10 others may have written text or fractions, before 6 any number. */
function withIntegers(content: unknown): PowerContent {
  const members = Object.entries(membersOf(content)).map(([name, value]) => {
    if (isObject(value)) return [name, withIntegers(value)];
    return [name, typeof value === "string" || typeof value === "number" ? integerOr(value) : value];
  });
  return Object.fromEntries(members);
}

function integerOr(value: string | number): string | number {
  const level = numberOr(value, Number.NaN);
  if (Number.isNaN(level)) return value;
  return Math.min(Math.max(Math.trunc(level), Number.MIN_SAFE_INTEGER), Number.MAX_SAFE_INTEGER);
}

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
const SINGLE: ReadonlySet<string> = new Set([
  ...["m.room.create", "m.room.join_rules", "m.room.power_levels", "m.room.server_acl"],
  ...Object.keys(TAKEN_OVER),
]);

const MEMBERSHIPS: ReadonlySet<unknown> = new Set(["join", "invite", "knock", "leave", "ban"]);

export function readRoomState(roomId: RoomId, events: readonly StateEvent[]) {
  /** State that is read here, by type; state key empty. */
  const single = new Map<string, Readonly<Record<string, unknown>>>();
  const members = new Map<UserId, Member>();
  /** State keys of memberships that name no server, or hold no membership: anybody's, for all that is known. */
  const unreadable: string[] = [];
  let creator: UserId | undefined;
  let acl:
    | (Pick<Member, "eventId" | "at"> & Partial<Pick<Member, "sender">> & { readonly content: FoundAcl })
    | undefined;
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
      content: single.has("m.room.power_levels")
        ? withIntegers(single.get("m.room.power_levels"))
        : undefined,
      creator,
      /** Creators whom no level binds: room version 12 and later. */
      privileged: new Set(isPrivileged ? [creator, ...additional].filter((user) => user !== undefined) : []),
    },
    acl,
    joinRule: typeof joinRule === "string" ? joinRule : "invite",
    single,
    predecessor: typeof predecessor?.room_id === "string" ? predecessor.room_id : undefined,
  };
}

/** Whether no level binds a room's creators. */
export function hasPrivilegedCreators(version: string): boolean {
  return Number(version) >= 12 || version.startsWith("org.matrix.hydra.");
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
  return presentIn(room)
    .filter((user) => isOneHost(serverOf(user), server))
    .sort();
}

/** Users of this server's host who have left and may join again, uninvited, through another server; sorted. */
export function formerOf(room: RoomState, server: string, own: string): readonly UserId[] {
  const others = [...joinedByServer(room).keys()].filter(
    (joined) => joined !== own && !isOneHost(joined, server),
  );
  if (others.length === 0 || !JOINED_WITHOUT_INVITATION.has(room.joinRule)) return [];
  return [...room.members]
    .filter(([user, { membership }]) => membership === "leave" && isOneHost(serverOf(user), server))
    .map(([user]) => user)
    .sort();
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
