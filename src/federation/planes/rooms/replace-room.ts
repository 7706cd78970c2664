// Ends a room for us: replaces it by a room of ours, or retires it. Invariants: a new room has its ACL before anybody
// is in it and admits invited users only; the old room is left only when everybody whom we can move has been moved;
// each step is in the journal, so that a second run never makes a second new room.
import { undefinedFor } from "../../../domain/errors.ts";
import { type RoomId, serverOf, type UserId } from "../../../domain/identifiers.ts";
import { mapConcurrent, pollUntil } from "../../../runtime/concurrency.ts";
import { ADMINISTRATOR, governedAcl, isClosing, MODERATOR } from "./plan-room-steps.ts";
import { byLevel, hasPrivilegedCreators, levelOf } from "./power-levels.ts";
import { type ClosingPartner, peopleAndGhosts } from "./render.ts";
import type { RoomReason } from "./room-reasons.ts";
import { joinedByServer, presenceOf, presentOf, type RoomState, TAKEN_OVER } from "./room-state.ts";
import { type RoomsSession, readRoom, unlessDown, whyFailed } from "./session.ts";
import { announce, type JournalEntry, type RoomRecord, recordOf } from "./undo-journal.ts";

/** A room of ours that takes the place of another, closed already; its actor may invite there. */
export interface ExistingRoom {
  readonly room: RoomId;
  readonly actor: UserId;
}

interface EndingRoom {
  readonly session: RoomsSession;
  readonly state: RoomState;
  readonly concerned: readonly ClosingPartner[];
  /** Rooms that are known here: any that was made before a crash is among them. */
  readonly rooms: readonly RoomState[];
  readonly existing?: ExistingRoom | undefined;
}

const MOVES_AT_ONCE = 4;
/** How many users a room may be made with: as many as Synapse takes by default (`rc_invites.per_room`). */
const INVITED_AT_ONCE = 10;
/** How long one pass moves people into a new room, in milliseconds, because a containment may be waiting for it. */
const MOVING_MAX_MS = 120_000;
const DELETED = { withinMs: 120_000, everyMs: 100 };
/** A new room's events have to say more than those that they copy. */
const COPIED_BYTES_MAX = 32_768;

/** Replaces a room, or leaves it when nobody of ours is in it. */
export async function replaceRoom(ending: EndingRoom) {
  const { session, state, concerned } = ending;
  const purge = concerned.some(({ mode }) => mode === "removed");
  const records = concerned.map(({ serverName }) => recordOf(session, serverName, state.roomId));
  const known = records.find((one) => one?.replace);
  const note = (entry: JournalEntry) => announce(session, concerned, () => entry);
  let replacement = known?.replacement?.to;
  const failed = (obstacle: RoomReason) => ({ obstacle, replacement });
  try {
    const before = known?.replacement;
    // One that has been replaced in turn, or purged, is nowhere to move to.
    const isThere = before !== undefined && (await isOneOfOursIn(session, before.to));
    let creator = known?.replace?.creator;
    const isAble = async (user: UserId) => isThere || (await session.tokens.as(user)) !== undefined;
    if (creator === undefined || (creator !== null && !(await isAble(creator))))
      creator = await whoReplaces(ending);
    if (known?.replace === undefined) {
      await announce(session, concerned, (partner) => {
        const users = presentOf(state, partner).map((user) => ({ user, before: presenceOf(state, user) }));
        return { act: "replace", room: state.roomId, creator, users };
      });
    }
    let counts = { moved: 0, invited: 0 };
    let obstacle: RoomReason | undefined;
    if (creator !== null) {
      const made = isThere ? before : await makeRoom(ending, creator);
      if (made === undefined) return failed("not_replaced");
      replacement = made.to;
      if (!isThere) await note(made);
      const asked = (isThere ? known?.invitedAgain : undefined) ?? new Set();
      const asking = (user: UserId) => note({ act: "invited_again", room: state.roomId, user });
      const done = await moveEverybody(session, creator, made, { asked, asking });
      if (done === undefined) return failed("not_replaced");
      if (done === "late") return failed("being_invited");
      counts = done.counts;
      if (done.isOneLeftOut) obstacle = "left_out";
    }
    if (!(await takeAway(session, state.roomId, purge))) return failed("not_deleted");
    const how = creator === null ? "left" : "replaced";
    await note({ act: "gone", room: state.roomId, how, purged: purge, ...counts });
    return { obstacle, replacement };
  } catch (error) {
    await whyFailed(session, error);
    return failed("not_replaced");
  }
}

/** Has every user of ours leave a room, and blocks it. Its history stays in the database. */
export async function retireRoom({ session, state, concerned }: EndingRoom) {
  const room = state.roomId;
  const nobody = { purged: false, moved: 0, invited: 0 };
  await announce(session, concerned, () => ({ act: "gone", room, how: "retired", ...nobody }));
  const isAway = await takeAway(session, room, false).catch(unlessDown(session, false));
  return { obstacle: isAway ? undefined : "not_deleted", replacement: undefined } as const;
}

/** Who makes the new room: our person with the most power; the operator for ghosts alone; null when nobody is left. */
async function whoReplaces({ session, state, existing }: EndingRoom): Promise<UserId | null> {
  const local = joinedByServer(state).get(session.intent.own) ?? [];
  if (local.length === 0) return null;
  if (existing !== undefined) return existing.actor;
  for (const user of byLevel(state.power, local))
    if ((await session.operator.isPerson(user)) && (await session.tokens.as(user)) !== undefined) return user;
  return session.operatorId;
}

type Replacement = NonNullable<RoomRecord["replacement"]>;

async function makeRoom(ending: EndingRoom, creator: UserId): Promise<Replacement | undefined> {
  const { session, state, rooms, existing } = ending;
  const { intent } = session;
  // Without an ACL it was left when its making was refused half-way. One with users of a closing partner is not of our
  // making: its creator has upgraded the room.
  const earlier = rooms.find(
    ({ predecessor, creator: maker, acl, members }) =>
      predecessor === state.roomId &&
      maker === creator &&
      acl !== undefined &&
      members.get(creator)?.membership === "join" &&
      ![...members.keys()].some((user) => isClosing(intent.closing, serverOf(user))),
  );
  const local = [...(joinedByServer(state).get(intent.own) ?? [])];
  const others = [...state.members]
    .filter(([user, { membership }]) => {
      const server = serverOf(user);
      if (server === intent.own) return membership === "invite";
      // The new room's ACL would refuse users of servers that the registry does not admit.
      return intent.retained.includes(server) && (membership === "invite" || membership === "join");
    })
    .map(([user]) => user)
    .sort();
  const room = state.roomId;
  const aliases = (await (await session.tokens.as(local[0] ?? creator))?.localAliases(room)) ?? [];
  const request = newRoom(ending, creator, local);
  const acting = await session.tokens.as(creator);
  // Invitations that make the room are not counted for who is invited, and Synapse lets a user be invited once in 333 s.
  const invite = local.filter((user) => user !== creator).slice(0, INVITED_AT_ONCE);
  const to =
    existing?.room ??
    earlier?.roomId ??
    (await acting?.createRoom({ ...request, invite }).catch(undefinedFor("homeserver_refused"))) ??
    (await acting?.createRoom(request));
  return to && { act: "replacement", room, to, aliases: [...aliases], members: local, invited: others };
}

function newRoom({ session, state: old }: EndingRoom, creator: UserId, local: readonly UserId[]) {
  const powers = local
    .filter((user) => user !== creator)
    .map((user) => [user, Math.min(levelOf(old.power, user), ADMINISTRATOR)] as const)
    .filter(([, level]) => level !== 0);
  // Such a creator has no level; the homeserver refuses one.
  const creators = hasPrivilegedCreators(old.version) ? [] : [[creator, ADMINISTRATOR] as const];
  const stateOf = (type: string, content: object) => ({ type, state_key: "", content });
  const copied = Object.entries(TAKEN_OVER).flatMap(([type, member]) => {
    const content = takenOver(old.single.get(type), member);
    return content === undefined ? [] : stateOf(type, content);
  });
  return {
    preset: "private_chat",
    visibility: "private",
    creation_content: { predecessor: { room_id: old.roomId } },
    power_level_content_override: { users: Object.fromEntries([...powers, ...creators]), invite: MODERATOR },
    room_version: old.version,
    initial_state: [
      stateOf("m.room.server_acl", governedAcl(old, session.intent)),
      ...copied,
      stateOf("m.room.join_rules", { join_rule: "invite" }),
      stateOf("m.room.guest_access", { guest_access: "forbidden" }),
    ],
  };
}

/** Content as a homeserver takes it in a new room: others may have written anything into the old one, or redacted it. */
function takenOver(content: Readonly<Record<string, unknown>> | undefined, member: string) {
  const text = content?.[member];
  return [content, { [member]: text }].find(
    (one) => typeof text === "string" && Buffer.byteLength(JSON.stringify(one)) <= COPIED_BYTES_MAX,
  );
}

/**
 * Invites everybody, has our people join, and moves the aliases; undefined when one of ours could not be moved, `late` when
 * the time was over before: another pass goes on. @param before whom of other servers a pass has invited, or tried to
 */
async function moveEverybody(
  session: RoomsSession,
  creator: UserId,
  { room, to, aliases, members, invited }: Replacement,
  before: { readonly asked: ReadonlySet<UserId>; readonly asking: (user: UserId) => Promise<void> },
) {
  const isIn = await membershipIn(session, to);
  // Of a server that is closed since an earlier pass nobody is invited.
  const isClosed = (user: UserId) => isClosing(session.intent.closing, serverOf(user));
  const isAsked = (user: UserId) => user === creator || isIn.has(user) || before.asked.has(user);
  const toInvite = [...members, ...invited].filter((user) => !isAsked(user) && !isClosed(user));
  const until = session.clock.now() + MOVING_MAX_MS;
  let isLate = false;
  const acting = await session.tokens.as(creator);
  if (acting === undefined) return undefined;
  // Another server that does not answer keeps nobody in the old room, where the closing partner may be.
  const silent = new Set<string>();
  const invite = async (user: UserId) => {
    const server = serverOf(user);
    if (silent.has(server)) return;
    const leftMs = until - session.clock.now();
    const inviting = leftMs > 0 ? acting.invite(to, user, leftMs) : Promise.resolve("limited");
    const answer = await inviting.catch(async (error: unknown) => {
      await whyFailed(session, error);
      if (server === session.intent.own) throw error;
      silent.add(server);
    });
    if (answer === "limited") isLate = true;
    else if (answer !== undefined && server !== session.intent.own) await before.asking(user);
  };
  for (const some of peopleAndGhosts(session.intent, toInvite))
    await mapConcurrent(some, MOVES_AT_ONCE, invite);
  if (isLate) return "late";
  for (const alias of aliases) {
    const leadsTo = await session.operator.roomOfAlias(alias);
    if (leadsTo === to) continue;
    if (leadsTo === room) await session.operator.deleteAlias(alias);
    await acting.putAlias(alias, to);
  }
  const [first] = aliases;
  if (first !== undefined) await acting.putState(to, "m.room.canonical_alias", "", { alias: first });
  // A ghost accepts its invitation by itself, as the bridge does with every other.
  const people = await mapConcurrent(members, MOVES_AT_ONCE, async (user) => {
    if (user === creator) return true;
    if (!(await session.operator.isPerson(user))) return undefined;
    if (isIn.get(user) === "join") return true;
    if (session.clock.now() >= until) {
      isLate = true;
      return undefined;
    }
    return (await (await session.tokens.as(user))?.join(to)) === true;
  });
  if (isLate) return "late";
  const now = await membershipIn(session, to);
  // Who may not join, such as one who is locked, has the invitation, and keeps nobody in the old room.
  if (members.some((user, index) => people[index] === false && !now.has(user))) return undefined;
  const counts = {
    moved: people.filter((isMoved) => isMoved === true).length,
    invited: [...now.values()].filter((membership) => membership === "invite").length,
  };
  return { counts, isOneLeftOut: silent.size > 0 || people.includes(false) };
}

async function membershipIn(session: RoomsSession, room: RoomId): Promise<ReadonlyMap<UserId, string>> {
  const members = [...((await readRoom(session, room))?.members ?? [])];
  const memberships = members.map(([user, { membership }]) => [user, membership] as const);
  return new Map(memberships.filter(([, membership]) => membership === "join" || membership === "invite"));
}

/** Takes our users out of the room, blocks it and, with `purge`, deletes it; whether that succeeded. */
async function takeAway(session: RoomsSession, room: RoomId, purge: boolean): Promise<boolean> {
  const { operator, clock } = session;
  if ((await operator.roomState(room)) === undefined && (await operator.isBlocked(room))) return true;
  const deletionId = await operator.deleteRoom(room, purge);
  const isEnded = (one: string | undefined) => one === "failed" || one === "complete";
  const end = await pollUntil(clock, DELETED, () => operator.deletion(room, deletionId), isEnded);
  if (end === "failed") return false;
  if (purge) return (await readRoom(session, room)) === undefined;
  return !(await isOneOfOursIn(session, room)) && (await operator.isBlocked(room));
}

async function isOneOfOursIn(session: RoomsSession, room: RoomId): Promise<boolean> {
  const state = await readRoom(session, room);
  return state !== undefined && joinedByServer(state).has(session.intent.own);
}
