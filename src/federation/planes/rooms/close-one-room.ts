// Closes one room: plans, takes the steps, plans again, until nothing is left to do or nothing more can be done.
// Invariant: a step is in the journal before it is taken.
import type { RoomId } from "../../../domain/identifiers.ts";
import { membersOf } from "../../../domain/json.ts";
import { isRefusal } from "../../homeserver/api.ts";
import type { ActingUser } from "../../homeserver/synapse-admin-api.ts";
import { aclAllow, aclNames } from "./acl.ts";
import { blockAll, nameOf, planRoom, type RoomStep } from "./plan-room-steps.ts";
import { inviteLevel } from "./power-levels.ts";
import { presenceOf, type RoomState } from "./room-state.ts";
import { type RoomsSession, readRoom } from "./session.ts";
import { announce, journalOf, otherRecords } from "./undo-journal.ts";

/** Rooms whose members come back as fast as they are banned are given up, and reported. */
const ROUNDS_MAX = 8;
/** How long users are banned in one room in one pass, in milliseconds: others may have invited thousands. */
const BANNING_MAX_MS = 120_000;

export type SettledRoom = NonNullable<Awaited<ReturnType<typeof closeRoom>>>;

/**
 * Brings one room as far as it goes, and reads it after each round of steps; undefined when it is unknown here.
 * @param banUntil milliseconds since the Unix epoch; when the time for bans is over the ACL is set all the same
 */
export async function closeRoom(session: RoomsSession, room: RoomId, banUntil: number) {
  const { clock } = session;
  const until = Math.min(banUntil, clock.now() + BANNING_MAX_MS);
  let changed = false;
  let aclChanged = false;
  const refused = new Set<string>();
  for (let round = 0; ; ) {
    const state = await readRoom(session, room);
    if (state === undefined) return undefined;
    const isLate = clock.now() >= until;
    const plan = planRoom(session, state, { refused, isOverrun: isLate || round > 1 });
    const steps = plan.steps.filter(({ kind }) => kind !== "ban" || !isLate);
    const { actor, obstacles } = plan;
    const settled = { room, state, plan, obstacles, changed, aclChanged };
    if (actor === undefined || plan.steps.length === 0) return settled;
    if (round === ROUNDS_MAX || steps.length === 0) {
      const more = blockAll(plan.concerned, session, isLate ? "being_banned" : "unsettled");
      return { ...settled, obstacles: [...obstacles, ...more] };
    }
    const acting = await session.tokens.as(actor);
    if (acting === undefined) continue; // The next plan chooses another user, or finds none.
    round += 1;
    for (const step of steps) {
      if (step.kind === "ban" && clock.now() >= until) break;
      if (step.kind === "set_acl") aclChanged = true;
      try {
        await perform(session, { state, plan }, acting, step);
        changed = true;
      } catch (error) {
        if (!isRefusal(error)) throw error;
        refused.add(nameOf(step));
      }
    }
  }
}

type Planned = { readonly state: RoomState; readonly plan: ReturnType<typeof planRoom> };

async function perform(session: RoomsSession, { state, plan }: Planned, acting: ActingUser, step: RoomStep) {
  const room = state.roomId;
  const { concerned } = plan;
  switch (step.kind) {
    case "raise_invite": {
      const current = inviteLevel(state.power);
      const written = state.power.content?.["invite"] === undefined ? null : current;
      await announce(session, concerned, (partner) => {
        // The level before any partner was closed in this room is the one that reopening restores.
        const others = otherRecords(session, partner, room);
        const first = others.find(({ invite }) => invite?.level === current)?.invite ?? { before: written };
        return { act: "invite_level", room, before: first.before, level: step.level };
      });
      break;
    }
    case "ban": {
      const journal = journalOf(session, step.partner);
      const known = journal.room(room)?.bans.get(step.user);
      // One entry holds all bans of a partner, written before the first of them; one of an earlier containment announces none.
      if (known?.actor !== acting.userId || known.event !== undefined) {
        const bans = plan.steps.filter((one) => one.kind === "ban");
        const same = bans.filter(({ partner }) => partner === step.partner);
        const users = same.map(({ user }) => ({ user, before: presenceOf(state, user) }));
        await journal.append({ act: "bans", room, actor: acting.userId, users });
      }
      const event = await acting.setMembership(room, step.user, "ban");
      await journal.append({ act: "banned", room, user: step.user, event });
      return;
    }
    case "set_acl": {
      const before = state.acl === undefined ? null : aclNames(state.acl.content);
      // Also those whom the ACL now denies by name: the journal says which denials are ours.
      const denied = step.content.deny.filter((name) => !before?.deny.includes(name));
      const newly = session.intent.closing.filter(({ serverName }) =>
        aclAllow([serverName]).some((name) => denied.includes(name)),
      );
      const partners = [...new Set([...concerned, ...newly])];
      await announce(session, partners, () => ({ act: "acl", room, before }));
      await acting.putState(room, "m.room.server_acl", "", { ...step.content });
      return;
    }
    case "read_only": {
      const readOnly = concerned.filter(({ after }) => after === "read_only" || after === "retire");
      await announce(session, readOnly, (partner) => {
        const first = otherRecords(session, partner, room).find((other) => other.readOnly)?.readOnly;
        return { act: "read_only", room, before: first?.before ?? levelsOf(state), level: step.level };
      });
    }
  }
  await acting.putState(room, "m.room.power_levels", "", step.content);
}

function levelsOf(state: RoomState) {
  const { events_default, events } = state.power.content ?? {};
  const levels = Object.entries(membersOf(events)).filter(
    (entry): entry is [string, number] => typeof entry[1] === "number",
  );
  const byDefault = typeof events_default === "number" ? events_default : null;
  return { events_default: byDefault, events: Object.fromEntries(levels) };
}
