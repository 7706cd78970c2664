// One pass over all rooms that closes them to the closing partners. Invariants: a room is reported closed only after
// its state, its enforcement at home and at every retained server were observed to be right; one room's failure does
// not keep others from being closed; every room that is not where it should be is named with its reason.
import { undefinedFor } from "../../../domain/errors.ts";
import { type RoomId, type ServerName, visibleId } from "../../../domain/identifiers.ts";
import { counted } from "../../../domain/printable.ts";
import { mapConcurrent } from "../../../runtime/concurrency.ts";
import type { OutOfReach, PartOutcome } from "../plane.ts";
import { type EnforcementGap, enforceAtHome, enforceAtRetained, mustBeProven } from "./acl-enforcement.ts";
import { closeRoom, type SettledRoom } from "./close-one-room.ts";
import { blockAll, isOurs, type Obstacle } from "./plan-room-steps.ts";
import { inviteLevel, levelOf } from "./power-levels.ts";
import { endOf } from "./replace-retire-or-keep.ts";
import { type ExistingRoom, replaceRoom, retireRoom } from "./replace-room.ts";
import { ROOM_REASONS, type RoomReason } from "./room-reasons.ts";
import { joinedByServer, presentIn, presentOf, type RoomState } from "./room-state.ts";
import { listRooms, ROOMS_AT_ONCE, type RoomsSession, readRoom, unlessDown, whyFailed } from "./session.ts";
import { recordOf } from "./undo-journal.ts";

/** How many times rooms that appear while the pass is under way are included. */
const WAVES_MAX = 4;
/** How long users are banned in one pass, in milliseconds: the border waits for it, and the ACLs deny them already. */
const BANNING_MAX_MS = 600_000;
/** Rooms replaced or retired at once: each costs a homeserver a new room and many invitations. */
const ENDED_AT_ONCE = 4;
const NOTE_EVERY = 25;

export async function closeRooms(session: RoomsSession): Promise<PartOutcome> {
  const pass = closingPass(session);
  await pass.closeAll();
  // Before rooms are replaced: the new ones are proven when they are made.
  const isTouched = ({ aclChanged, plan }: SettledRoom) => aclChanged || plan.concerned.length > 0;
  const touched = [...pass.settled.values()].filter(isTouched);
  const firstGaps = await pass.proveAtRetained(touched);
  const ended = await endRooms(session, pass);
  // Somebody may have come, or set another ACL, since a room was read.
  const changed = touched.filter((one) => one.changed && !ended.rooms.has(one.room));
  const closedAgain = await pass.closeWave(changed.map(({ room }) => room));
  const overtaken = closedAgain.filter(({ aclChanged }) => aclChanged);
  const retainedGaps = [
    ...firstGaps.filter(({ room }) => !overtaken.some((one) => one.room === room)),
    ...(await pass.proveAtRetained(overtaken)),
  ];
  const gaps = [...pass.homeGaps.values(), ...retainedGaps].filter(({ room }) => !ended.rooms.has(room));
  const obstacles = [...pass.settled.values()]
    .filter(({ room }) => !ended.rooms.has(room))
    .flatMap(({ room, obstacles: some }) => some.map((one) => ({ room, ...one })));
  for (const room of pass.unread)
    obstacles.push(...blockAll([], session, "unread").map((one) => ({ room, ...one })));
  const found = new Map<string, OutOfReach>();
  const add = (partner: string, subject: string, reason: RoomReason) => {
    found.set(`${partner} ${subject} ${reason}`, { partner, subject, reason, hint: ROOM_REASONS[reason] });
  };
  const { closing, own } = session.intent;
  if (!pass.knowsAll())
    for (const { partner, reason } of blockAll([], session, "unproven_at_home")) add(partner, own, reason);
  for (const { room, partner, reason } of [...obstacles, ...ended.obstacles])
    add(partner, visibleId(room), reason);
  for (const { room, server, reason } of gaps) {
    const concerned = pass.settled.get(room)?.plan.concerned ?? [];
    const partners = concerned.length > 0 ? concerned : closing;
    const where = reason === "stale_at_home" ? "" : ` at ${server}`;
    const subject = reason === "unproven_at_home" ? own : `${visibleId(room)}${where}`;
    const named = partners.length > 0 ? partners.map(({ serverName }) => serverName) : [server];
    for (const partner of named) add(partner, subject, reason);
  }
  return { changed: pass.hasChanged() || ended.rooms.size > 0, outOfReach: [...found.values()] };
}

type ClosingPass = ReturnType<typeof closingPass>;

function closingPass(session: RoomsSession) {
  const { intent, journals, operator } = session;
  const partners = intent.closing.map(({ serverName }) => serverName as ServerName);
  const settled = new Map<RoomId, SettledRoom>();
  const homeGaps = new Map<RoomId, EnforcementGap>();
  /** Rooms of which nothing is known: another server can keep the state of one to itself, or make it too long to be read. */
  const unread = new Set<RoomId>();
  const begun = new Set<RoomId>();
  let isUnlisted = false;
  const banUntil = session.clock.now() + BANNING_MAX_MS;
  let changed = false;

  const states = (): readonly RoomState[] => [...settled.values()].map(({ state }) => state);

  /** Where the border module does not list all rooms, those that are known are closed, and the others are not said to be. */
  const list = () =>
    listRooms(session, partners, async (error) => {
      // A token that cannot be read keeps no room open either.
      await whyFailed(session, error).catch(undefinedFor("secret_unavailable"));
      isUnlisted = true;
      return [];
    });

  async function closeAll(): Promise<void> {
    const listed = await list();
    const journaled = [...journals.values()].flatMap(({ rooms }) => rooms.map(({ room }) => room));
    let wave: readonly RoomId[] = [...new Set([...listed, ...journaled])];
    const closing = `${counted(partners.length, "partner")} ${partners.length === 1 ? "is" : "are"}`;
    session.note(`${counted(wave.length, "room")} known; ${closing} to be out of them`);
    for (let waves = 0; wave.length > 0 && waves < WAVES_MAX; waves++) {
      await closeWave(wave);
      const more = new Set([...(await roomsOfUsers()), ...(await list())]);
      wave = [...more].filter((room) => !begun.has(room));
    }
  }

  /** Rooms that users of the partners are in or invited to: those who were found, and those whom this plane banned. */
  async function roomsOfUsers(): Promise<readonly RoomId[]> {
    const users = partners.flatMap((partner) => [
      ...states().flatMap((state) => presentOf(state, partner)),
      ...(journals.get(partner)?.rooms ?? []).flatMap(({ bans }) => [...bans.keys()]),
    ]);
    const rooms = await mapConcurrent([...new Set(users)], ROOMS_AT_ONCE, async (user) => {
      const memberships = [...(await operator.memberships(user))];
      return memberships.flatMap(([room, how]) => (how === "leave" || how === "ban" ? [] : room));
    });
    return rooms.flat();
  }

  /** Closes these rooms, and has the homeserver enforce what their state says; returns those that it knows. */
  async function closeWave(rooms: readonly RoomId[]): Promise<readonly SettledRoom[]> {
    for (const room of rooms) {
      begun.add(room);
      unread.delete(room);
    }
    const closed: SettledRoom[] = [];
    let done = 0;
    await mapConcurrent(rooms, ROOMS_AT_ONCE, async (room) => {
      const one = await closeUnlessGone(session, room, banUntil).catch(unlessDown(session, "unread"));
      if (one === "unread") unread.add(room);
      else if (one !== undefined) {
        closed.push(one);
        settled.set(room, one);
        if (one.changed) changed = true;
      }
      done += 1;
      if (done % NOTE_EVERY === 0) session.note(`${done} of ${rooms.length} rooms checked`);
    });
    await proveAtHome(rooms);
    return closed;
  }

  /** Every room in which users of ours are, touched or not: any of them may be enforced otherwise than its state says. */
  async function proveAtHome(rooms: readonly RoomId[]): Promise<void> {
    const here = rooms.filter((room) => {
      const one = settled.get(room);
      return one !== undefined && joinedByServer(one.state).has(intent.own);
    });
    for (const room of here) homeGaps.delete(room);
    const { gaps, isRepaired } = await enforceAtHome(session, here);
    for (const gap of gaps) homeGaps.set(gap.room, gap);
    if (isRepaired) changed = true;
  }

  /** Whether retained servers show the ACLs of these rooms, of those at least that are to be kept. */
  async function proveAtRetained(rooms: readonly SettledRoom[]): Promise<readonly EnforcementGap[]> {
    const kept = rooms
      .filter((one) => endOf(one) !== "replace")
      .filter(({ state, plan, aclChanged }) => mustBeProven(state, plan.concerned, aclChanged))
      .map(({ state }) => state);
    const gaps = await enforceAtRetained(session, kept);
    const isAtHome = ({ reason }: EnforcementGap) => reason !== "unproven_at_retained";
    for (const gap of gaps.filter(isAtHome)) homeGaps.set(gap.room, gap);
    return gaps.filter((gap) => !isAtHome(gap));
  }

  const hasChanged = () => changed;
  const knowsAll = () => !isUnlisted;
  return { settled, homeGaps, unread, hasChanged, knowsAll, states, closeAll, closeWave, proveAtRetained };
}

async function closeUnlessGone(session: RoomsSession, room: RoomId, banUntil: number) {
  const { closing } = session.intent;
  if (closing.some(({ serverName }) => recordOf(session, serverName, room)?.gone !== undefined)) {
    const state = await readRoom(session, room);
    // A user of ours may have come back to a room that was left for good.
    if (state === undefined || !joinedByServer(state).has(session.intent.own)) return undefined;
  }
  return closeRoom(session, room, banUntil);
}

async function endRooms(session: RoomsSession, pass: ClosingPass) {
  const rooms = new Set<RoomId>();
  const obstacles: (Obstacle & { room: RoomId })[] = [];
  const made: RoomId[] = [];
  const states = pass.states();
  const existingFor = existingRooms(session, pass);
  await mapConcurrent([...pass.settled.values()], ENDED_AT_ONCE, async (one) => {
    const { room, state, plan } = one;
    const end = endOf(one);
    if (end === undefined) return;
    const ending = { session, state, concerned: plan.concerned, rooms: states, existing: existingFor(one) };
    const endRoom = end === "replace" ? replaceRoom : retireRoom;
    const { obstacle: reason, replacement } = await endRoom(ending);
    rooms.add(room);
    if (replacement !== undefined) made.push(replacement);
    if (reason === undefined) {
      session.note(replacement === undefined ? `${room} is left` : `${room} is replaced by ${replacement}`);
    } else {
      for (const { serverName: partner } of plan.concerned) obstacles.push({ room, partner, reason });
    }
  });
  await finishGone(session, pass.unread);
  await pass.closeWave(made);
  return { rooms, obstacles };
}

/** Finds the room of ours that stands for another already, so that mutual containments make no new one each time. */
function existingRooms({ intent }: RoomsSession, { settled, homeGaps }: ClosingPass) {
  const byRoom = new Map<string, ExistingRoom>();
  const byPredecessor = new Map<string, ExistingRoom>();
  for (const one of settled.values()) {
    const { room, state, plan, obstacles } = one;
    const { actor } = plan;
    if (actor === undefined || levelOf(state.power, actor) < inviteLevel(state.power)) continue;
    // One without an ACL may have been left when its making was refused half-way.
    if (!isOurs(state, intent.own) || homeGaps.has(room) || state.acl === undefined) continue;
    if (obstacles.length > 0 || endOf(one) !== undefined) continue;
    byRoom.set(room, { room, actor });
    if (state.predecessor !== undefined) byPredecessor.set(state.predecessor, { room, actor });
  }
  return ({ room, state, plan }: SettledRoom) => {
    if (plan.concerned.some(({ mode }) => mode !== "contained")) return undefined;
    const former = settled.get((state.predecessor ?? "") as RoomId);
    // A room's creator names the room that it has replaced, and could name any of ours.
    const isFormer = former !== undefined && hasEverybodyOf(former.state, state);
    return byPredecessor.get(room) ?? (isFormer ? byRoom.get(former.room) : undefined);
  };
}

/** Whether everybody who is in a room is in the other one too, or has left that by themselves. */
function hasEverybodyOf(other: RoomState, room: RoomState): boolean {
  return presentIn(room).every((user) => {
    const member = other.members.get(user);
    const isIn = member?.membership === "join" || member?.membership === "invite";
    return isIn || (member?.membership === "leave" && member.sender === user);
  });
}

/** Writes the missing entry of a pass that was killed when the old room was gone already. */
async function finishGone(session: RoomsSession, unread: Set<RoomId>): Promise<void> {
  const { operator } = session;
  const isGone = async (room: RoomId) => !(await readRoom(session, room)) && operator.isBlocked(room);
  for (const journal of session.journals.values()) {
    for (const { room, replace, replacement, gone } of journal.rooms) {
      if (replace === undefined || gone !== undefined || unread.has(room)) continue;
      const found = await isGone(room).catch(unlessDown(session, "unread"));
      if (found === "unread") unread.add(room);
      if (found !== true) continue;
      const { members = [], invited = [] } = replacement ?? {};
      const how = replacement === undefined ? "left" : "replaced";
      const counts = { moved: members.length, invited: invited.length };
      await journal.append({ act: "gone", room, how, purged: true, ...counts });
    }
  }
}
