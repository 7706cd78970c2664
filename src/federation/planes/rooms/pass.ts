// One pass over all rooms: what the intent closes is closed, what it no longer closes is taken back.
// Invariants: a room is reported closed only after its state, its enforcement at home and at every retained
// server were seen as they should be; one room's trouble does not keep others from being closed; whatever is
// not where it should be is named with its reason.
import type { RoomId, ServerName } from "../../../domain/identifiers.ts";
import { mapConcurrent } from "../../../runtime/concurrency.ts";
import type { OutOfReach } from "../plane.ts";
import { closeRoom, type SettledRoom, verifyRoom } from "./close-room.ts";
import {
  type EnforcementCounts,
  type EnforcementGap,
  enforceAtHome,
  enforceAtRetained,
  isToBeShown,
} from "./enforcement.ts";
import type { ClosingPartner } from "./intent.ts";
import { listRooms, roomsOfUsers, usersOf } from "./inventory.ts";
import type { Obstacle } from "./plan.ts";
import { ROOM_REASONS, type RoomReason } from "./reasons.ts";
import { replaceRoom, retireRoom } from "./replace-room.ts";
import { joinedByServer, type RoomState } from "./room-state.ts";
import { journalOf, ROOMS_AT_ONCE, type RoomsSession, readRoom, recordOf } from "./session.ts";

export interface PassResult {
  readonly changed: boolean;
  readonly outOfReach: readonly OutOfReach[];
}

/** Rooms that appear while the pass is under way are taken along this many times. */
const WAVES_MAX = 4;
/** Rooms replaced or retired at once: each is a new room and many invitations to a homeserver. */
const ENDED_AT_ONCE = 4;
const NOTE_EVERY = 25;
const UNCLOSABLE: ReadonlySet<RoomReason> = new Set([
  "no_power",
  "partner_holds_power",
  "partner_created",
  "left",
]);

/** Brings every room to the intent. */
export async function closeRooms(session: RoomsSession): Promise<PassResult> {
  const { intent, note } = session;
  const partners = intent.closing.map(({ serverName }) => serverName as ServerName);
  const counts: EnforcementCounts = { checked: 0, stale: 0, repaired: 0, resent: 0 };
  const homeGaps = new Map<RoomId, EnforcementGap>();
  const settled = new Map<RoomId, SettledRoom>();
  const seen = new Set<RoomId>();
  let changed = false;

  const keep = async (one: SettledRoom) => {
    settled.set(one.room, one);
    if (one.changed) changed = true;
    const gap = await enforceAtHome(session, one.state, one.aclBefore, counts);
    if (gap === undefined) homeGaps.delete(one.room);
    else homeGaps.set(one.room, gap);
  };
  const settle = async (room: RoomId) => {
    const one = await settleRoom(session, room);
    if (one === undefined) return;
    // An ACL that was set by a pass which was killed then may be stale as well.
    if (isTouched(one) || (session.journals.size > 0 && one.state.acl !== undefined)) await keep(one);
    else settled.set(room, one);
  };
  const settleAll = async (rooms: readonly RoomId[]) => {
    for (const room of rooms) seen.add(room);
    let done = 0;
    await mapConcurrent(rooms, ROOMS_AT_ONCE, async (room) => {
      await settle(room);
      done += 1;
      if (done % NOTE_EVERY === 0) note(`${done} of ${rooms.length} rooms looked at`);
    });
  };
  const statesOf = () => [...settled.values()].map(({ state }) => state);

  let wave = await listRooms(session, partners);
  const journaled = [...session.journals.values()].flatMap(({ rooms }) => rooms.map(({ room }) => room));
  wave = [...new Set([...wave, ...journaled])];
  const many = partners.length === 1 ? "is" : "are";
  note(
    `${counted(wave.length, "room")} known; ${counted(partners.length, "partner")} ${many} to be out of them`,
  );
  for (let waves = 0; wave.length > 0 && waves < WAVES_MAX; waves++) {
    await settleAll(wave);
    const users = new Set([...usersOf(statesOf(), partners), ...bannedUsers(session, partners)]);
    const more = await roomsOfUsers(session, [...users], seen);
    const listed = await listRooms(session, partners);
    wave = [...new Set([...more, ...listed])].filter((room) => !seen.has(room));
  }

  const touched = [...settled.values()].filter(isTouched);
  const statesOfKept = (rooms: readonly SettledRoom[]) =>
    rooms
      .filter((one) => endOf(one) !== "replace")
      .filter(({ state, plan, aclChanged }) => isToBeShown(state, plan.concerned, aclChanged))
      .map(({ state }) => state);
  const firstGaps = await enforceAtRetained(session, statesOfKept(touched), counts);
  const ended = await endRooms(session, settled, statesOf(), settle);
  if (ended.changed) changed = true;

  // A second look, which reads: somebody may have come, or set another ACL, since the room was read.
  const again = touched.filter((one) => one.changed && !ended.rooms.has(one.room));
  const overtaken = new Map<RoomId, SettledRoom>();
  await mapConcurrent(again, ROOMS_AT_ONCE, async ({ room }) => {
    const one = await verifyRoom(session, room);
    if (one === undefined) return;
    await keep(one);
    if (one.aclChanged) overtaken.set(room, one);
  });
  const retainedGaps = [
    ...firstGaps.filter(({ room }) => !overtaken.has(room)),
    ...(await enforceAtRetained(session, statesOfKept([...overtaken.values()]), counts)),
  ];

  if (counts.checked > 0) {
    note(
      `asked the own homeserver ${counted(counts.checked, "time")} whether it enforces a room's ACL: ` +
        `${counted(counts.stale, "time")} it did not yet, ${counted(counts.repaired, "room")} put right` +
        (counts.resent === 0
          ? ""
          : `; ${counted(counts.resent, "ACL")} sent again to servers that stay in the rooms`),
    );
  }
  const obstacles = [...settled.values()]
    .filter(({ room }) => !ended.rooms.has(room))
    .flatMap(({ room, obstacles: some }) => some.map((one) => ({ room, ...one })));
  const gaps = [...homeGaps.values(), ...retainedGaps].filter(({ room }) => !ended.rooms.has(room));
  return {
    changed,
    outOfReach: outOfReach(session, [...obstacles, ...ended.obstacles], gaps, settled),
  };
}

function counted(count: number, what: string): string {
  return `${count} ${what}${count === 1 ? "" : "s"}`;
}

/** Whether anything about a partner, or of the ACL, is to be seen to be in force. */
function isTouched({ aclChanged, plan }: SettledRoom): boolean {
  return aclChanged || plan.concerned.length > 0;
}

/** Users of the partners whom this plane banned: they may be in rooms that nothing else names. */
function bannedUsers({ journals }: RoomsSession, partners: readonly ServerName[]) {
  return partners.flatMap((partner) =>
    (journals.get(partner)?.rooms ?? []).flatMap(({ bans }) => [...bans.keys()]),
  );
}

async function settleRoom(session: RoomsSession, room: RoomId): Promise<SettledRoom | undefined> {
  const records = session.intent.closing.map(({ serverName }) => recordOf(session, serverName, room));
  if (records.some((record) => record?.gone !== undefined)) {
    const state = await readRoom(session, room);
    // Unless somebody of ours came back to a room that was left for good.
    if (state === undefined || !joinedByServer(state).has(session.intent.own)) return undefined;
  }
  return closeRoom(session, room);
}

interface Ended {
  readonly rooms: ReadonlySet<RoomId>;
  readonly obstacles: readonly (Obstacle & { readonly room: RoomId })[];
  readonly changed: boolean;
}

/** Replaces and retires what the intent says. */
async function endRooms(
  session: RoomsSession,
  settled: ReadonlyMap<RoomId, SettledRoom>,
  states: readonly RoomState[],
  settle: (room: RoomId) => Promise<void>,
): Promise<Ended> {
  const rooms = new Set<RoomId>();
  const obstacles: (Obstacle & { room: RoomId })[] = [];
  const made: RoomId[] = [];
  await mapConcurrent([...settled.values()], ENDED_AT_ONCE, async (one) => {
    const { room, state, plan } = one;
    const end = endOf(one);
    if (end === undefined) return;
    const done =
      end === "replace"
        ? await replaceRoom(session, state, plan.concerned, states)
        : await retireRoom(session, state, plan.concerned);
    rooms.add(room);
    obstacles.push(...done.obstacles.map((obstacle) => ({ room, ...obstacle })));
    if (done.replacement !== undefined) made.push(done.replacement);
    if (done.obstacles.length === 0) {
      session.note(
        done.replacement === undefined ? `${room} is left` : `${room} is replaced by ${done.replacement}`,
      );
    }
  });
  await finishGone(session);
  await mapConcurrent(made, ROOMS_AT_ONCE, settle);
  return { rooms, obstacles, changed: rooms.size > 0 };
}

function endOf({ plan, obstacles }: SettledRoom): "replace" | "retire" | undefined {
  const { concerned } = plan;
  const blocked = concerned.filter(({ serverName }) =>
    obstacles.some(({ partner, reason }) => partner === serverName && UNCLOSABLE.has(reason)),
  );
  if (blocked.some(({ unclosable }) => unclosable === "replace")) return "replace";
  if (blocked.length > 0) return undefined;
  const wants = (after: ClosingPartner["after"]) => concerned.some((partner) => partner.after === after);
  if (wants("replace")) return "replace";
  return wants("retire") && obstacles.length === 0 ? "retire" : undefined;
}

/** A run that was killed when the old room was gone already: only its entry is missing. */
async function finishGone(session: RoomsSession): Promise<void> {
  for (const [partner, { rooms }] of session.journals) {
    for (const { room, replace, replacement, gone } of rooms) {
      if (replace === undefined || gone !== undefined || !session.writable.has(partner)) continue;
      if ((await readRoom(session, room)) !== undefined || !(await session.operator.isBlocked(room)))
        continue;
      await journalOf(session, partner as ServerName).append({
        act: "gone",
        room,
        how: replacement === undefined ? "left" : "replaced",
        purged: true,
        moved: replacement?.members.length ?? 0,
        invited: replacement?.invited.length ?? 0,
      });
    }
  }
}

function outOfReach(
  session: RoomsSession,
  obstacles: readonly (Obstacle & { readonly room: RoomId })[],
  gaps: readonly EnforcementGap[],
  settled: ReadonlyMap<RoomId, SettledRoom>,
): readonly OutOfReach[] {
  const { closing, own } = session.intent;
  const found = new Map<string, OutOfReach>();
  const add = (partner: string, subject: string, reason: RoomReason) => {
    found.set(`${partner} ${subject} ${reason}`, { partner, subject, reason, hint: ROOM_REASONS[reason] });
  };
  for (const { room, partner, reason } of obstacles) add(partner, room, reason);
  for (const { room, server, reason } of gaps) {
    const concerned = settled.get(room)?.plan.concerned ?? [];
    const partners = concerned.length > 0 ? concerned : closing;
    const subject =
      reason === "unproven_at_home" ? own : reason === "stale_at_home" ? room : `${room} at ${server}`;
    const named = partners.length > 0 ? partners.map(({ serverName }) => serverName) : [server];
    for (const partner of named) add(partner, subject, reason);
  }
  return [...found.values()];
}
