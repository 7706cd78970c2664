// Plane 2 on a homeserver: finds the rooms, brings each to the intent, and verifies it. What is closed and how it is
// taken back: docs/reference/rooms-plane.md.
import { matrixCanonicalJson } from "../../../domain/canonical-json.ts";
import type { Clock } from "../../../domain/clock.ts";
import { sha256Tagged } from "../../../domain/digest.ts";
import { type RoomId, type ServerName, visibleId } from "../../../domain/identifiers.ts";
import { mapConcurrent } from "../../../runtime/concurrency.ts";
import type { FederationConfig } from "../../config.ts";
import { type Drift, outcomeOf, type PlaneRuntime } from "../plane.ts";
import { staleAtHome } from "./acl-enforcement.ts";
import { closeRooms } from "./close-all-rooms.ts";
import { roomsEvidence } from "./operator-evidence.ts";
import { markRemoved, reopenRooms } from "./reopen-rooms.ts";
import type { RoomStep } from "./room-plan.ts";
import { joinedByServer, type RoomState } from "./room-state.ts";
import { listRooms, planFor, ROOMS_AT_ONCE, type RoomsSession, readRoom, withSession } from "./session.ts";

export function roomsRuntime(config: FederationConfig, clock: Clock): PlaneRuntime {
  const quiet = { clock, note: () => undefined, writes: false } as const;
  const cursor: DriftCursor = {};
  return {
    name: "rooms",
    apply: (desired, progress) =>
      withSession(
        config,
        desired,
        { clock, note: (text) => progress.note(text), writes: true },
        async (session) => {
          const closed = await closeRooms(session);
          await markRemoved(session);
          const closing = new Set<string>(session.intent.closing.map(({ serverName }) => serverName));
          const reopening = [...session.journals.keys()].filter((server) => !closing.has(server));
          const reopened = await reopenRooms(session, reopening as ServerName[]);
          return outcomeOf([closed, reopened]);
        },
      ),
    drift: (desired) => withSession(config, desired, quiet, (session) => roomsDrift(session, cursor)),
    probe: (desired, { partner }, covering) =>
      withSession(config, desired, quiet, (session) =>
        roomsEvidence(session, partner.serverName as ServerName, covering),
      ),
  };
}

const KINDS: Readonly<Record<RoomStep["kind"], string>> = {
  raise_invite: "invite_level",
  ban: "partner_present",
  set_acl: "acl",
  read_only: "writable",
};

/** One drift check takes about this long at most, milliseconds, because a containment may be waiting for it. */
const CHECK_MAX_MS = 5_000;

export interface DriftCursor {
  after?: RoomId | undefined;
  /** The intent that the rooms were compared with; another one is compared from the beginning. */
  intent?: string;
}

/**
 * Rooms in which steps are left to do, or in which the homeserver enforces another ACL than their state says. The
 * enforcement is checked in every room; those whose plans were not reached in time are the first of the next check.
 * @param cursor is moved on
 */
export async function roomsDrift(session: RoomsSession, cursor: DriftCursor): Promise<readonly Drift[]> {
  const { clock } = session;
  const partners = session.intent.closing.map(({ serverName }) => serverName as ServerName);
  const sorted = [...(await listRooms(session, partners))].sort();
  const stale = (await staleAtHome(session, sorted)).map(
    (room): Drift => ({ plane: "rooms", subject: visibleId(room), kind: "enforcement", found: null }),
  );
  const intent = JSON.stringify(session.intent);
  const after = cursor.intent === intent ? cursor.after : undefined;
  cursor.intent = intent;
  const isReached = (room: RoomId) => after !== undefined && room <= after;
  const inTurn = [...sorted.filter((room) => !isReached(room)), ...sorted.filter(isReached)];
  const deadline = clock.now() + CHECK_MAX_MS;
  const found = await mapConcurrent(inTurn, ROOMS_AT_ONCE, async (room) => {
    if (clock.now() >= deadline) return [];
    cursor.after = room; // They begin in order, so this is the last.
    const state = await readRoom(session, room);
    if (state === undefined || !joinedByServer(state).has(session.intent.own)) return [];
    const steps = new Map(planFor(session, state).steps.map((step) => [step.kind, step]));
    const subject = visibleId(room);
    return [...steps.values()].map(
      ({ kind }): Drift => ({ plane: "rooms", subject, kind: KINDS[kind], found: digestOf(state, kind) }),
    );
  });
  return [...stale, ...found.flat()];
}

function digestOf(state: RoomState, kind: RoomStep["kind"]): string | null {
  const content = kind === "set_acl" ? state.acl?.content : kind === "ban" ? undefined : state.power.content;
  return content === undefined ? null : sha256Tagged(matrixCanonicalJson(content));
}
