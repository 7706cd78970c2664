// The rooms that a partner was closed out of, and new ones in place of those that are not to come back.
// Invariants: whether memberships can be repaired is asked of the partner's server, never concluded; what it does
// not answer is unknown; history is never purged here; a new room that was begun is gone on with, not made twice.
import { join } from "node:path";
import { sha256 } from "../../domain/digest.ts";
import { type RoomId, type ServerName, serverOf, visibleId } from "../../domain/identifiers.ts";
import { mapConcurrent } from "../../runtime/concurrency.ts";
import { type SignedRequests, statusOfEvent } from "../homeserver/signed-request.ts";
import { replaceRoom } from "../planes/rooms/replace-room.ts";
import { ROOM_REASONS } from "../planes/rooms/room-reasons.ts";
import {
  listRooms,
  ROOMS_AT_ONCE,
  type RoomsSession,
  tryRoom,
  withSession,
} from "../planes/rooms/session.ts";
import { journalIn, type RoomRecord, recordOf } from "../planes/rooms/undo-journal.ts";
import { acceptedState } from "../reconcile/accept-head.ts";
import type { Federation } from "../reconcile/context.ts";
import { type DesiredState, desiredPlane } from "../reconcile/desired-state.ts";
import type { RoomsChoice } from "../registry/committed-records.ts";
import type { ObserveFromOutside } from "../workflow/observe-plane.ts";
import { type JudgedCondition, notMet } from "../workflow/run-step.ts";
import { type Readmission, saveReadmission, type TouchedRoom } from "./readmission.ts";

export type ReadmissionRooms = ReturnType<typeof readmissionRooms>;

export interface WorkflowContext extends Federation {
  readonly rooms: ReadmissionRooms;
  readonly outside?: ObserveFromOutside | undefined;
  readonly say: (text: string) => void;
}

export function readmissionRooms(federation: Pick<Federation, "config" | "clock" | "state" | "reporter">) {
  const { config, clock, state, reporter } = federation;
  const note = (text: string) => reporter.note("rooms", text);
  const work = <T>(desired: DesiredState, writes: boolean, act: (session: RoomsSession) => Promise<T>) =>
    withSession(config, desiredPlane(desired, "rooms"), { clock, note, writes }, act);
  return {
    /** Rooms that the partner was closed out of. @throws DrawbridgeError */
    async observe(desired: DesiredState, partner: string): Promise<readonly TouchedRoom[]> {
      const server = partner as ServerName;
      const { rooms, damage } = journalIn(join(state.path, "rooms"), server);
      if (damage !== undefined) throw damage;
      if (rooms.length === 0) return [];
      return work(desired, false, (session) =>
        mapConcurrent(rooms, ROOMS_AT_ONCE, (record) => roomNow(session, server, record)),
      );
    },
    /** Puts new rooms in the place of these, while the partner is still closed out; returns them as they are now. */
    async replace(desired: DesiredState, partner: string, rooms: readonly string[]) {
      const server = partner as ServerName;
      // The reconciler works on the same rooms.
      return state.locked("plane rooms", clock, () =>
        work(desired, true, (session) => {
          const known = (session.journals.get(server)?.rooms ?? []).map(({ room }) => room);
          const named = known.filter((room) => rooms.includes(visibleId(room)));
          return replaceAll(session, server, named);
        }),
      );
    },
  };
}

async function roomNow(session: RoomsSession, partner: ServerName, record: RoomRecord): Promise<TouchedRoom> {
  const { gone, replace, replacement, bans } = record;
  const room = visibleId(record.room);
  const to = replacement === undefined ? null : visibleId(replacement.to);
  // Data duties may have purged it since: nothing of it is left to be replaced or opened again.
  if (gone !== undefined || (await tryRoom(session, record.room)) === undefined) {
    return { room, state: to === null ? "gone" : "replaced", replacement: to, repairable: "yes" };
  }
  if (replace !== undefined && to !== null) return { room, state: "kept", replacement: to, repairable: "no" };
  const events = [...bans].filter(([user]) => serverOf(user) === partner).map(([, { event }]) => event);
  const repairable = await holdsBans(session.signed, partner, events);
  return { room, state: "kept", replacement: null, repairable };
}

async function replaceAll(session: RoomsSession, partner: ServerName, rooms: readonly RoomId[]) {
  const concerned = session.intent.closing
    .filter(({ serverName }) => serverName === partner)
    // `removed` would purge the old room: its history is ours, and stays.
    .map((one) => ({ ...one, mode: "contained" as const }));
  const all = [...new Set([...(await listRooms(session, [])), ...rooms])];
  const read = await mapConcurrent(all, ROOMS_AT_ONCE, (room) => tryRoom(session, room));
  const states = read.filter((state) => state !== undefined && state !== "unread");
  return mapConcurrent(rooms, 2, async (room): Promise<TouchedRoom> => {
    const state = states.find(({ roomId }) => roomId === room);
    if (state !== undefined && recordOf(session, partner, room)?.gone === undefined) {
      const { obstacle } = await replaceRoom({ session, state, concerned, rooms: states });
      if (obstacle !== undefined) session.note(`${visibleId(room)}: ${obstacle}: ${ROOM_REASONS[obstacle]}`);
    }
    const record = recordOf(session, partner, room);
    if (record !== undefined) return roomNow(session, partner, record);
    return { room: visibleId(room), state: "gone", replacement: null, repairable: "yes" };
  });
}

/** A room whose memberships cannot be repaired is always replaced; where that is unknown, none is opened again. */
export async function prepareRooms(context: WorkflowContext, found: Readmission, choice?: RoomsChoice) {
  const { state, say } = context;
  const rooms = choice ?? found.rooms ?? "new";
  const { desired } = await acceptedState(context, "refuse");
  const touched = withRepairable(found.touched ?? [], await context.rooms.observe(desired, found.partner));
  const kept = touched.filter((one) => one.state === "kept");
  const replaced = rooms === "new" ? kept : kept.filter(({ repairable }) => repairable === "no");
  for (const line of roomLines(rooms, touched)) say(line);
  let readmission = saveReadmission(state, { ...found, rooms, touched });
  const isBlocked = rooms === "reopen" && kept.some(({ repairable }) => repairable === "unknown");
  if (replaced.length === 0 || isBlocked) return readmission;
  const names = replaced.map(({ room }) => room);
  const now = await context.rooms.replace(desired, found.partner, names);
  const after = touched.map((one) => now.find(({ room }) => room === one.room) ?? one);
  readmission = saveReadmission(state, { ...readmission, touched: withRepairable(touched, after) });
  for (const { room, replacement } of now) {
    say(replacement === null ? `${room} is left` : `${room} is replaced by ${replacement}`);
  }
  return readmission;
}

/** Of a room that is gone nobody can be asked any more: that it could not be repaired stays known. */
function withRepairable(before: readonly TouchedRoom[], now: readonly TouchedRoom[]): TouchedRoom[] {
  const known = new Map(before.map((one) => [one.room, one.repairable]));
  return now.map((one) =>
    one.state === "kept" ? one : { ...one, repairable: known.get(one.room) ?? one.repairable },
  );
}

export function roomLines(choice: RoomsChoice, touched: readonly TouchedRoom[]): readonly string[] {
  const kept = touched.filter(({ state }) => state === "kept");
  if (touched.length === 0) return ["Rooms: the partner was closed out of none that is remembered."];
  const fate = ({ state, replacement, repairable }: TouchedRoom) => {
    if (state !== "kept")
      return replacement === null ? "does not come back" : `its people are in ${replacement}`;
    if (repairable === "no")
      return "is replaced: the partner's server does not hold its bans, and could never join again";
    if (choice === "new") return "is replaced by a new room; its history stays here and is not shared";
    return repairable === "yes"
      ? "is opened again: the partner can read back what we said; what those of its people said whom we had not banned comes in with its next event"
      : "cannot be told: the partner's server does not say whether it holds its bans";
  };
  const all = `Rooms (${choice}): ${kept.length} kept, ${touched.length - kept.length} gone before.`;
  return [all, ...touched.map((one) => `  ${one.room} ${fate(one)}`)];
}

export function blockedRooms({ rooms, touched }: Readmission): JudgedCondition | undefined {
  const left = (touched ?? []).filter(({ state }) => state === "kept");
  const unknown = left.find(({ repairable }) => repairable === "unknown");
  if (rooms === "reopen" && unknown !== undefined) {
    const found = `${unknown.room}: the partner's server does not say whether it holds its bans`;
    const hint =
      "Have the partner open its transport to us first, and run this again; or choose --rooms new.";
    const about = { condition: "memberships_can_be_repaired", probe: "held_bans", found, hint };
    return notMet(about, { verdict: "unknown" });
  }
  const unfinished = left.find(({ repairable }) => rooms === "new" || repairable === "no");
  if (unfinished === undefined) return undefined;
  const found = `${unfinished.room} is not replaced yet`;
  const hint = "Read the homeserver's log at this time, then run this again: it goes on where it stopped.";
  return notMet({ condition: "rooms_are_replaced", probe: "rooms", found, hint });
}

const ASK_TIMEOUT_MS = 10_000;
const AT_ONCE = 2;

/** Whether a partner's server has its users' bans, without which they can never join again. @param events undefined: not known */
export async function holdsBans(
  signed: Pick<SignedRequests, "request">,
  partner: ServerName,
  events: readonly (string | undefined)[],
): Promise<"yes" | "no" | "unknown"> {
  const statuses = await mapConcurrent([...events], AT_ONCE, async (event) =>
    event === undefined ? undefined : statusOfEvent(signed, partner, event, ASK_TIMEOUT_MS),
  );
  // A server whose last user was banned is not in the room any more, and refuses to show the events that it has; of an
  // event that it does not have it still says not found. Such a server joins with the room's state of that time:
  // users whose bans it lacks had left when the last was banned. If it refuses both, it answers nobody, or not us.
  const refused = events[statuses.indexOf(403)];
  if (refused !== undefined) {
    const nobodys = `$${sha256(`nobody's event beside ${refused}`).toString("base64url")}`;
    return (await statusOfEvent(signed, partner, nobodys, ASK_TIMEOUT_MS)) === 404 ? "yes" : "unknown";
  }
  if (statuses.includes(404)) return "no";
  return statuses.every((status) => status === 200) ? "yes" : "unknown";
}
