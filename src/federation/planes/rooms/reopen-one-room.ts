// Takes back in one room what was done because of one partner, from the journal.
// Invariants: the ACL first, so that nobody is let back into a room whose ACL still denies them; exactly the
// bans that this plane made are lifted, never one that somebody else made since; what another closing partner
// still needs stays.
import type { ServerName } from "../../../domain/identifiers.ts";
import type { ActingUser } from "../../homeserver/acting-user.ts";
import { aclNames, deniedByEnforcement, isSameAcl, type ServerAcl, withoutDenied } from "./acl.ts";
import { mayBan, maySend, type PowerContent, record as recordOfValue } from "./power-levels.ts";
import { deniedRetained, isOurs, type Obstacle } from "./room-plan.ts";
import type { Member, RoomState } from "./room-state.ts";
import { actingAs, isRefusal, journalOf, planFor, type RoomsSession, readRoom } from "./session.ts";
import type { BanRecord, RoomRecord } from "./undo-journal.ts";

export interface ReopenedRoom {
  /** As it is now; undefined when the homeserver does not know it any more. */
  readonly state: RoomState | undefined;
  readonly obstacles: readonly Obstacle[];
  readonly changed: boolean;
}

/** The first half: the ACL. Its enforcement is checked before anything else is lifted. */
export async function reopenAcl(
  session: RoomsSession,
  partner: ServerName,
  record: RoomRecord,
): Promise<ReopenedRoom> {
  return withActor(session, partner, record, async (state, acting) => {
    const content = restoredAcl(session, state, partner, record);
    if (content === undefined) return { changed: false };
    if (!maySend(state.power, acting.userId, "m.room.server_acl"))
      return { changed: false, reason: "no_power" };
    if (deniedRetained(state, content, session.intent).length > 0) {
      return { changed: false, reason: "would_deny_retained" };
    }
    await acting.putState(state.roomId, "m.room.server_acl", "", { ...content });
    return { changed: true };
  });
}

/** The second half: bans, invite level, read-only. Users who were banned are outside the room afterwards. */
export async function reopenMembers(
  session: RoomsSession,
  partner: ServerName,
  record: RoomRecord,
): Promise<ReopenedRoom> {
  return withActor(session, partner, record, async (state, acting) => {
    let changed = false;
    for (const [user, ban] of record.bans) {
      const member = state.members.get(user);
      if (member === undefined || !isOurBan(member, ban)) continue;
      if (!mayBan(state.power, acting.userId, user)) return { changed, reason: "no_power" };
      await acting.setMembership(state.roomId, user, "leave");
      changed = true;
    }
    const levels = restoredLevels(session, state, partner, record);
    if (levels !== undefined) {
      if (!maySend(state.power, acting.userId, "m.room.power_levels")) return { changed, reason: "no_power" };
      await acting.putState(state.roomId, "m.room.power_levels", "", levels);
      changed = true;
    }
    return { changed };
  });
}

type Work = (
  state: RoomState,
  acting: ActingUser,
) => Promise<{ readonly changed: boolean; readonly reason?: Obstacle["reason"] }>;

async function withActor(
  session: RoomsSession,
  partner: ServerName,
  record: RoomRecord,
  work: Work,
): Promise<ReopenedRoom> {
  const state = await readRoom(session, record.room);
  const blocked = (reason: Obstacle["reason"]): ReopenedRoom => ({
    state,
    changed: false,
    obstacles: [{ partner, reason }],
  });
  if (state === undefined) {
    await journalOf(session, partner).append({ act: "lifted", room: record.room });
    return { state, changed: false, obstacles: [] };
  }
  for (;;) {
    const { actor } = planFor(session, state);
    if (actor === undefined) return blocked(session.tokens.unusable.size > 0 ? "no_actor" : "left");
    const acting = await actingAs(session, actor);
    if (acting === undefined) continue;
    try {
      const { changed, reason } = await work(state, acting);
      const after = changed ? await readRoom(session, record.room) : state;
      return { state: after, changed, obstacles: reason === undefined ? [] : [{ partner, reason }] };
    } catch (error) {
      if (!isRefusal(error)) throw error;
      return blocked("refused");
    }
  }
}

/** A ban counts as ours by its event; after a crash, by who made it. */
function isOurBan(member: Member, ban: BanRecord): boolean {
  if (member.membership !== "ban") return false;
  return ban.event === undefined ? member.sender === ban.actor : member.eventId === ban.event;
}

/**
 * The ACL without our denial of the partner; undefined where nothing of ours is left in it. In a room of ours the
 * registry decides whom the ACL admits, and closing has set that already.
 */
function restoredAcl(
  { intent }: RoomsSession,
  state: RoomState,
  partner: ServerName,
  { acl }: RoomRecord,
): ServerAcl | undefined {
  if (acl === undefined || state.acl === undefined) return undefined;
  const found = state.acl.content;
  if (!deniedByEnforcement(found, partner)) return undefined;
  const before = acl.before ?? aclNames(undefined);
  const isLastOurs = acl.events.includes(state.acl.eventId) && !isOurs(state, intent.own);
  const isOthersClosed = intent.closing.some(
    ({ serverName }) => deniedByEnforcement(found, serverName) && !deniedByEnforcement(before, serverName),
  );
  const content = isLastOurs && !isOthersClosed ? before : withoutDenied(found, partner, before.deny);
  return isSameAcl(found, content) ? undefined : content;
}

/** The former levels, where the present ones are ours and no other closing partner needs them. */
function restoredLevels(
  session: RoomsSession,
  state: RoomState,
  partner: ServerName,
  { room, invite, readOnly }: RoomRecord,
): PowerContent | undefined {
  const { content } = state.power;
  if (content === undefined) return undefined;
  const others = [...session.journals]
    .filter(([server]) => server !== partner)
    .map(([, journal]) => journal.room(room));
  let levels: Record<string, unknown> | undefined;
  if (invite !== undefined && content["invite"] === invite.level && !others.some((other) => other?.invite)) {
    const { invite: _, ...kept } = content;
    levels = invite.before === null ? kept : { ...kept, invite: invite.before };
  }
  if (readOnly !== undefined && !others.some((other) => other?.readOnly)) {
    levels = writable(levels ?? content, readOnly);
  }
  return levels === undefined || JSON.stringify(levels) === JSON.stringify(content) ? undefined : levels;
}

function writable(
  content: PowerContent,
  { before, level }: NonNullable<RoomRecord["readOnly"]>,
): Record<string, unknown> {
  const events = Object.entries(recordOfValue(content["events"])).map(([type, value]) => {
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
