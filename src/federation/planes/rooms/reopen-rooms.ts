// Lets partners back into the rooms that they were taken out of, from the journals. Invariants: in each room the ACL
// is restored and observed to be enforced before a ban is lifted; people are invited when all bans are lifted; a
// record ends only when everything that can be taken back is; what cannot come back is named.
import { undefinedFor } from "../../../domain/errors.ts";
import { type RoomId, type ServerName, serverOf, visibleId } from "../../../domain/identifiers.ts";
import { membersOf, type UnknownObject } from "../../../domain/json.ts";
import { mapConcurrent } from "../../../runtime/concurrency.ts";
import type { ActingUser } from "../../homeserver/synapse-admin-api.ts";
import type { OutOfReach, PartOutcome } from "../plane.ts";
import { aclNames, deniedByEnforcement, isSameAcl, withDenied, withoutDenied } from "./acl.ts";
import { enforceAtHome, enforceAtRetained } from "./acl-enforcement.ts";
import { deniedRetained, planRoom } from "./plan-room-steps.ts";
import { inviteLevel, levelOf, mayBan, maySend } from "./power-levels.ts";
import { peopleAndGhosts } from "./render.ts";
import { ROOM_REASONS, type RoomReason } from "./room-reasons.ts";
import type { Member, RoomState } from "./room-state.ts";
import { ROOMS_AT_ONCE, type RoomsSession, readRoom, tryRoom, unlessDown } from "./session.ts";
import { type BanRecord, journalOf, otherRecords, type RoomRecord } from "./undo-journal.ts";

/** How long users are invited in one pass, of all partners, in milliseconds, because a containment may be waiting for it. */
const INVITING_MAX_MS = 120_000;

/** A journal of a server that is no partner any more stays: that its entry was deleted lifts no ban. */
export async function reopenRooms(session: RoomsSession): Promise<PartOutcome> {
  const partners = session.intent.retained.filter((server) => {
    const journal = session.journals.get(server);
    return journal !== undefined && journal.damage === undefined;
  }) as ServerName[];
  if (partners.length === 0) return { changed: false };
  const outOfReach: OutOfReach[] = [];
  let changed = false;
  /** As they are once all partners' ACLs are restored: other servers are waited for once, not once for each partner. */
  const states = new Map<RoomId, RoomState>();
  const reopenings = await mapConcurrent(partners, ROOMS_AT_ONCE, async (partner) => {
    const miss = (room: RoomId, reason: RoomReason, at = "") =>
      outOfReach.push({ partner, subject: `${visibleId(room)}${at}`, reason, hint: ROOM_REASONS[reason] });
    const lift = ({ room }: RoomRecord) => journalOf(session, partner).append({ act: "lifted", room });
    const attempt = async (record: RoomRecord, work: Work) => {
      const room = await withActor(session, partner, record, work);
      if (room.changed) changed = true;
      if (room.obstacle !== undefined) miss(record.room, room.obstacle);
      return room;
    };
    const records = journalOf(session, partner).rooms;
    const ended: RoomRecord[] = [];
    for (const record of records) if (await isEnded(session, record)) ended.push(record);
    const restorable = records.filter((record) => !ended.includes(record));
    return { partner, miss, lift, attempt, ended, restorable };
  });
  for (const { attempt, restorable } of reopenings) {
    await mapConcurrent(restorable, ROOMS_AT_ONCE, async (record) => {
      const { state } = await attempt(record, reopenAcl);
      if (state !== undefined) states.set(record.room, state);
    });
  }
  const atHome = (await enforceAtHome(session, [...states.keys()])).gaps;
  const found = [...atHome, ...(await enforceAtRetained(session, [...states.values()]))];
  const gaps = [...new Map(found.map((gap) => [JSON.stringify(gap), gap])).values()];
  for (const { partner, miss, lift, attempt, ended, restorable } of reopenings) {
    for (const { room, reason, server } of gaps) {
      if (!restorable.some((record) => record.room === room)) continue;
      miss(room, reason, reason === "unproven_at_retained" ? ` at ${server}` : "");
    }
    const back: (readonly [RoomRecord, RoomState])[] = [];
    // What another partner does not get back keeps nothing from this one.
    const missed = outOfReach.filter((one) => one.partner === partner);
    const blocked = new Set(missed.map(({ subject }) => subject));
    await mapConcurrent(restorable, ROOMS_AT_ONCE, async (record) => {
      if (blocked.has(visibleId(record.room))) return;
      const { obstacle, state } = await attempt(record, reopenMembers);
      if (obstacle === undefined && state !== undefined) back.push([record, state]);
    });
    for (const record of ended) {
      // The room that replaces the one that was left, if there is one to invite into.
      let state: RoomState | undefined;
      try {
        state = record.replacement && (await readRoom(session, record.replacement.to));
        if (isBlockedFor(session, partner, record)) await session.operator.unblock(record.room);
      } catch (error) {
        // One room's failure keeps no other from being reopened.
        miss(record.room, await unlessDown(session, "refused")(error));
        continue;
      }
      const now = state === undefined ? "nothing replaces it" : `its users are in ${visibleId(state.roomId)}`;
      session.note(`${visibleId(record.room)} does not come back for ${partner}: ${now}`);
      if (state === undefined) await lift(record);
      else back.push([record, state]);
    }
    const invitations = { invited: 0, refused: 0 };
    const until = session.clock.now() + INVITING_MAX_MS / partners.length;
    await mapConcurrent(back, ROOMS_AT_ONCE, async ([record, state]) => {
      const inviting = inviteAgain({ session, partner, record, state }, until, invitations);
      const reason = await inviting.catch(unlessDown(session, "refused"));
      if (reason === undefined) await lift(record);
      else miss(state.roomId, reason);
    });
    const { invited, refused } = invitations;
    if (invited > 0) changed = true;
    const reopened = `${restorable.length} rooms reopened`;
    session.note(`${partner}: ${reopened}, ${invited} users invited again, ${refused} refused`);
  }
  return { changed, outOfReach };
}

/** One that was to be replaced or retired, and is not taken away yet, is opened again; nobody of ours was in the one that was to be left. */
async function isEnded({ operator }: RoomsSession, { room, gone, replace, replacement }: RoomRecord) {
  if ((gone !== undefined && gone.how !== "retired") || replace?.creator === null) return true;
  // A homeserver blocks a room before it takes anybody out of it; until then everybody of ours is there.
  return (gone ?? replacement) !== undefined && (await operator.isBlocked(room));
}

/** Whether a containment has blocked the room, of this partner alone: a removal leaves its rooms blocked for good. */
function isBlockedFor(session: RoomsSession, partner: string, { room, gone, removed }: RoomRecord): boolean {
  if (gone === undefined || gone.purged || removed === true) return false;
  return otherRecords(session, partner, room).every((other) => other.gone === undefined);
}

/** Marks every room of a partner that is removed for good: whoever re-admits it chooses whom to invite. */
export async function markRemoved(session: RoomsSession): Promise<void> {
  for (const { serverName, mode } of session.intent.closing) {
    if (mode !== "removed") continue;
    const journal = journalOf(session, serverName);
    const unmarked = journal.rooms.filter(({ removed }) => removed === undefined);
    await journal.append(...unmarked.map(({ room }) => ({ act: "removed", room }) as const));
  }
}

// Takes back in one room what was done because of one partner. Invariants: exactly the bans that this plane made are
// lifted, never one that somebody else made since; what another closing partner still needs stays.

interface RecordedRoom {
  readonly session: RoomsSession;
  readonly partner: ServerName;
  readonly record: RoomRecord;
  readonly state: RoomState;
}

/** `done`: what has changed so far, which stays so where the homeserver refuses a later step. */
type Reopening = RecordedRoom & { readonly acting: ActingUser; readonly done: { changed: boolean } };

/** Gives why something was not taken back. */
type Work = (reopening: Reopening) => Promise<RoomReason | undefined>;

/** The first half: the ACL. Its enforcement is checked before anything else is lifted. */
async function reopenAcl(reopening: Reopening): ReturnType<Work> {
  const { session, state, acting, done } = reopening;
  const content = restoredAcl(reopening);
  if (content === undefined) return undefined;
  if (!maySend(state.power, acting.userId, "m.room.server_acl")) return "no_power";
  if (deniedRetained(state, content, session.intent).length > 0) return "would_deny_retained";
  await acting.putState(state.roomId, "m.room.server_acl", "", { ...content });
  done.changed = true;
  return undefined;
}

/** The second half: bans, invite level, read-only. Users who were banned are outside the room afterwards. */
async function reopenMembers(reopening: Reopening): ReturnType<Work> {
  const { session, partner, record, state, acting, done } = reopening;
  for (const [user, ban] of record.bans) {
    const member = state.members.get(user);
    if (member === undefined || !isOurBan(member, ban)) continue;
    if (!mayBan(state.power, acting.userId, user)) return "no_power";
    // Whoever made it may ban the user again once it is lifted: that is another ban.
    if (ban.event === undefined) {
      const entry = { act: "banned", room: state.roomId, user, event: member.eventId } as const;
      await journalOf(session, partner).append(entry);
    }
    await acting.setMembership(state.roomId, user, "leave");
    done.changed = true;
  }
  const levels = restoredLevels(reopening);
  if (levels === undefined) return undefined;
  if (!maySend(state.power, acting.userId, "m.room.power_levels")) return "no_power";
  await acting.putState(state.roomId, "m.room.power_levels", "", levels);
  done.changed = true;
  return undefined;
}

async function withActor(session: RoomsSession, partner: ServerName, record: RoomRecord, work: Work) {
  const state = await tryRoom(session, record.room);
  if (state === "unread") return { state: undefined, changed: false, obstacle: state };
  if (state === undefined) {
    await journalOf(session, partner).append({ act: "lifted", room: record.room });
    return { state, changed: false, obstacle: undefined };
  }
  for (;;) {
    const { actor } = planRoom(session, state);
    if (actor === undefined) return { state, changed: false, obstacle: whyNobodyActs(session) };
    const done = { changed: false };
    try {
      const acting = await session.tokens.as(actor);
      if (acting === undefined) continue;
      const obstacle = await work({ session, partner, record, state, acting, done });
      return { ...done, obstacle, state: done.changed ? await readRoom(session, record.room) : state };
    } catch (error) {
      return { state, ...done, obstacle: await unlessDown(session, "refused")(error) };
    }
  }
}

function whyNobodyActs({ tokens }: RoomsSession): RoomReason {
  return tokens.unusable.size > 0 ? "no_actor" : "left";
}

/** By its event; after a crash, by who made it. */
function isOurBan(member: Member, ban: BanRecord): boolean {
  if (member.membership !== "ban") return false;
  return ban.event === undefined ? member.sender === ban.actor : member.eventId === ban.event;
}

/** The ACL that was found before ours, or the present one without our denial of the partner; undefined where nothing of ours is left, such as where closing has set it. */
function restoredAcl({ session, partner, record: { acl }, state }: RecordedRoom) {
  if (acl === undefined || state.acl === undefined) return undefined;
  const found = state.acl.content;
  if (!deniedByEnforcement(found, partner)) return undefined;
  const before = acl.before ?? aclNames(undefined);
  // Others may have denied somebody else since, also in an ACL that we have completed.
  const isOurs = isSameAcl(found, withDenied(before, [partner], session.intent.own));
  const content = isOurs ? before : withoutDenied(found, partner, before.deny);
  return isSameAcl(found, content) ? undefined : content;
}

/** The former levels, where the present ones are ours and no other closing partner needs them. */
function restoredLevels({ session, partner, record, state }: RecordedRoom): UnknownObject | undefined {
  const { invite, readOnly } = record;
  const { content } = state.power;
  if (content === undefined) return undefined;
  const others = otherRecords(session, partner, record.room);
  let levels: Record<string, unknown> | undefined;
  if (invite !== undefined && content["invite"] === invite.level && !others.some((other) => other.invite)) {
    const { invite: _, ...kept } = content;
    levels = invite.before === null ? kept : { ...kept, invite: invite.before };
  }
  if (readOnly !== undefined && !others.some((other) => other.readOnly))
    levels = writable(levels ?? content, readOnly);
  return levels === undefined || JSON.stringify(levels) === JSON.stringify(content) ? undefined : levels;
}

function writable(content: UnknownObject, { before, level }: NonNullable<RoomRecord["readOnly"]>) {
  const events = Object.entries(membersOf(content["events"])).map(([type, value]) => {
    const earlier = before.events[type];
    return [type, value === level && earlier !== undefined ? earlier : value];
  });
  const restored: Record<string, unknown> = { ...content, events: Object.fromEntries(events) };
  if (content["events_default"] === level) {
    if (before.events_default === null) delete restored["events_default"];
    else restored["events_default"] = before.events_default;
  }
  return restored;
}

type Counts = Record<"invited" | "refused", number>;

/** Invites whom this plane took out of a room, into it or its replacement; returns why some were not invited. @param until milliseconds since the Unix epoch */
export async function inviteAgain(place: RecordedRoom, until: number, counts: Counts): ReturnType<Work> {
  const { session, partner, state } = place;
  const { actor } = planRoom(session, state);
  const users = whoToInvite(place, actor);
  if (users.length === 0) return undefined;
  if (actor === undefined) return whyNobodyActs(session);
  if (levelOf(state.power, actor) < inviteLevel(state.power)) return "no_power";
  // Where the ACL still denies them they could not accept.
  if (state.acl !== undefined && deniedByEnforcement(state.acl.content, partner)) return "not_invited";
  const acting = await session.tokens.as(actor);
  if (acting === undefined) return inviteAgain(place, until, counts);
  for (const user of users) {
    const leftMs = until - session.clock.now();
    if (leftMs <= 0) return "being_invited";
    const inviting = acting.invite(state.roomId, user, leftMs);
    const answer = await inviting.catch(undefinedFor("homeserver_unavailable"));
    // The partner's server could not be reached.
    if (answer === undefined) return "not_invited";
    if (answer === "limited") return "being_invited";
    counts[answer] += 1;
    await journalOf(session, partner).append({ act: "invited_again", room: place.record.room, user });
  }
  return undefined;
}

function whoToInvite({ session, partner, record, state }: RecordedRoom, actor: string | undefined) {
  const { room, bans, replace, removed, invitedAgain } = record;
  if (removed === true) return [];
  const before = new Map((replace?.users ?? []).map((one) => [one.user, one.before]));
  for (const [user, ban] of bans) before.set(user, ban.before);
  const isElsewhere = state.roomId !== room;
  const wereIn = [...before].flatMap(([user, how]) => (how === "join" || how === "invite" ? user : []));
  // Another server name on the partner's host was put out with it, and is nobody who is admitted.
  const ofPartner = wereIn.filter((user) => serverOf(user) === partner && invitedAgain?.has(user) !== true);
  const mayReturn = ofPartner.filter((user) => {
    const member = state.members.get(user);
    if (isElsewhere && member === undefined) return true;
    // A user who left, or was kicked by somebody else since, is not invited. A replacement may have been in use
    // before: then the users' own homeserver took them out of it, in their names, when it replaced it in turn.
    const leftBy: readonly (string | undefined)[] = isElsewhere ? [user] : [bans.get(user)?.actor, actor];
    return member?.membership === "leave" && leftBy.includes(member.sender);
  });
  return peopleAndGhosts(session.intent, mayReturn.sort()).flat();
}
