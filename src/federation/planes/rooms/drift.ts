// What stands in rooms that this plane did not put there: found by planning, and doing nothing.
// Invariant: a look ends in time however many rooms there are, because a containment may be waiting behind it;
// rooms that it did not come to are the first of the next look.

import { matrixCanonicalJson } from "../../../domain/canonical-json.ts";
import { sha256Tagged } from "../../../domain/digest.ts";
import type { RoomId, ServerName } from "../../../domain/identifiers.ts";
import { mapConcurrent } from "../../../runtime/concurrency.ts";
import type { Drift } from "../plane.ts";
import { listRooms } from "./inventory.ts";
import type { RoomAct } from "./plan.ts";
import { joinedByServer, type RoomState } from "./room-state.ts";
import { planFor, ROOMS_AT_ONCE, type RoomsSession, readRoom } from "./session.ts";

const KINDS: Readonly<Record<RoomAct["kind"], string>> = {
  raise_invite: "invite_level",
  ban: "partner_present",
  set_acl: "acl",
  read_only: "writable",
};

/** One look takes about this long at most, milliseconds. */
const LOOK_MAX_MS = 5_000;

/** How far the last look came; kept by whoever looks again and again. */
export interface DriftCursor {
  after?: RoomId | undefined;
  /** The intent that the rooms were held against: another one is looked for from the beginning. */
  intent?: string;
}

/** Rooms in which something is to be done although a pass ended before. @param cursor is moved on */
export async function roomsDrift(session: RoomsSession, cursor: DriftCursor): Promise<readonly Drift[]> {
  const { clock } = session;
  const partners = session.intent.closing.map(({ serverName }) => serverName as ServerName);
  const sorted = [...(await listRooms(session, partners))].sort();
  const intent = JSON.stringify(session.intent);
  const after = cursor.intent === intent ? cursor.after : undefined;
  cursor.intent = intent;
  const next =
    after === undefined
      ? 0
      : Math.max(
          0,
          sorted.findIndex((room) => room > after),
        );
  const deadline = clock.now() + LOOK_MAX_MS;
  const found = await mapConcurrent(
    [...sorted.slice(next), ...sorted.slice(0, next)],
    ROOMS_AT_ONCE,
    async (room) => {
      if (clock.now() >= deadline) return [];
      cursor.after = room; // They begin in order, so this is the last.
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
    },
  );
  return found.flat();
}

function kindOf(act: RoomAct): string {
  return act.kind === "set_acl" && act.newcomers !== undefined ? "acl_newcomers" : KINDS[act.kind];
}

function digestOf(state: RoomState, kind: RoomAct["kind"]): string | null {
  const content = kind === "set_acl" ? state.acl?.content : kind === "ban" ? undefined : state.power.content;
  return content === undefined ? null : sha256Tagged(matrixCanonicalJson(content));
}
