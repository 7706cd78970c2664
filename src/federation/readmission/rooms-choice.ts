// What becomes of the rooms that the partner was closed out of: chosen, shown and done before plane 2 opens.
// Invariants: new rooms unless it is said otherwise; a room whose memberships cannot be repaired is replaced
// whatever was chosen; where that cannot be told, nothing is opened again.
import { currentState } from "../current.ts";
import type { OpenCondition } from "./conditions.ts";
import { type Readmission, saveReadmission, type TouchedRoom } from "./readmission.ts";
import type { RoomsChoice } from "./record.ts";
import type { WalkContext } from "./walk.ts";

/** What becomes of the rooms is settled, and done as far as it must be, before the plane opens. */
export async function prepareRooms(
  context: WalkContext,
  found: Readmission,
  choice: RoomsChoice | undefined,
): Promise<Readmission> {
  const { state, say } = context;
  const rooms = choice ?? found.rooms ?? "new";
  const { desired } = await currentState(context);
  const touched = withRepairable(found.touched ?? [], await context.rooms.look(desired, found.partner));
  const kept = touched.filter((one) => one.state === "kept");
  const replaced = rooms === "new" ? kept : kept.filter(({ repairable }) => repairable === "no");
  for (const line of tellRooms(rooms, touched)) say(line);
  let readmission = saveReadmission(state, { ...found, rooms, touched });
  const isBlocked = rooms === "reopen" && kept.some(({ repairable }) => repairable === "unknown");
  if (replaced.length === 0 || isBlocked) return readmission;
  const names = replaced.map(({ room }) => room);
  const now = new Map(
    (await context.rooms.replace(desired, found.partner, names)).map((one) => [one.room, one]),
  );
  const after = touched.map((one) => now.get(one.room) ?? one);
  readmission = saveReadmission(state, { ...readmission, touched: withRepairable(touched, after) });
  for (const { room, replacement } of now.values()) {
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

/** The choice, and the rooms that it touches. */
export function tellRooms(choice: RoomsChoice, touched: readonly TouchedRoom[]): readonly string[] {
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
  return [
    `Rooms (${choice}): ${kept.length} kept, ${touched.length - kept.length} gone before.`,
    ...touched.map((one) => `  ${one.room} ${fate(one)}`),
  ];
}

/** Why plane 2 cannot be opened yet; undefined when it can. */
export function blockedRooms({ rooms, touched }: Readmission): OpenCondition | undefined {
  const left = (touched ?? []).filter(({ state }) => state === "kept");
  const unknown = left.find(({ repairable }) => repairable === "unknown");
  if (rooms === "reopen" && unknown !== undefined) {
    return {
      condition: "memberships_can_be_repaired",
      verdict: "unknown",
      found: `${unknown.room}: the partner's server does not say whether it holds its bans`,
      hint: "Have the partner open its transport to us first, and run this again; or choose --rooms new.",
    };
  }
  const unfinished = left.find(({ repairable }) => rooms === "new" || repairable === "no");
  if (unfinished === undefined) return undefined;
  return {
    condition: "rooms_are_replaced",
    verdict: "not_met",
    found: `${unfinished.room} is not replaced yet`,
    hint: "Read the homeserver's log at this time, then run this again: it goes on where it stopped.",
  };
}
