// What stands in rooms that this plane did not put there: found by planning, and doing nothing.
import { sha256Tagged } from "../../../domain/digest.ts";
import type { ServerName } from "../../../domain/identifiers.ts";
import { canonicalJson } from "../../homeserver/signed-request.ts";
import type { Drift } from "../plane.ts";
import { listRooms } from "./inventory.ts";
import type { RoomAct } from "./plan.ts";
import { joinedByServer, type RoomState } from "./room-state.ts";
import { planFor, ROOMS_AT_ONCE, type RoomsSession, readRoom } from "./session.ts";
import { sideBySide } from "./side-by-side.ts";

const KINDS: Readonly<Record<RoomAct["kind"], string>> = {
  raise_invite: "invite_level",
  ban: "partner_present",
  set_acl: "acl",
  read_only: "writable",
};

/** Rooms in which something is to be done although a pass ended before. */
export async function roomsDrift(session: RoomsSession): Promise<readonly Drift[]> {
  const partners = session.intent.closing.map(({ serverName }) => serverName as ServerName);
  const rooms = await listRooms(session, partners);
  const found = await sideBySide(rooms, ROOMS_AT_ONCE, async (room) => {
    const state = await readRoom(session, room);
    if (state === undefined || !joinedByServer(state).has(session.intent.own)) return [];
    const acts = new Map(planFor(session, state).acts.map((act) => [act.kind, act]));
    return [...acts].map(
      ([kind, act]): Drift => ({
        plane: "rooms",
        subject: room,
        kind: kindOf(act),
        found: digestOf(state, kind),
      }),
    );
  });
  return found.flat();
}

function kindOf(act: RoomAct): string {
  return act.kind === "set_acl" && act.newcomers !== undefined ? "acl_newcomers" : KINDS[act.kind];
}

function digestOf(state: RoomState, kind: RoomAct["kind"]): string | null {
  const content = kind === "set_acl" ? state.acl?.content : kind === "ban" ? undefined : state.power.content;
  return content === undefined ? null : sha256Tagged(canonicalJson(content));
}
