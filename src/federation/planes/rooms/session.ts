// All that one pass over the rooms works with: the homeserver, whoever acts there, the journals, the intent.
import type { Clock } from "../../../domain/clock.ts";
import { DrawbridgeError } from "../../../domain/errors.ts";
import type { RoomId, ServerName, UserId } from "../../../domain/identifiers.ts";
import type { LentTokens } from "../../homeserver/lent-tokens.ts";
import type { HomeserverOperator } from "../../homeserver/operator.ts";
import type { SignedRequests } from "../../homeserver/signed-request.ts";
import type { BorderStatusClient } from "../border/status.ts";
import type { RoomsIntent } from "./intent.ts";
import type { Journal, RoomRecord, RoomRecords } from "./journal.ts";
import { type PlanContext, planRoom, type RoomPlan } from "./plan.ts";
import { type RoomState, readRoomState } from "./room-state.ts";

/** What the homeserver enforces at home, as the border module says it. */
export type HomeEnforcement = Pick<BorderStatusClient, "enforcement" | "refresh">;

export interface RoomsSession {
  readonly intent: RoomsIntent;
  readonly operator: HomeserverOperator;
  readonly operatorId: UserId;
  readonly tokens: LentTokens;
  /** What was done about each partner that is closing, or was. */
  readonly journals: ReadonlyMap<string, RoomRecords>;
  /** The same, open for more; empty for whoever only looks. */
  readonly writable: ReadonlyMap<string, Journal>;
  readonly home: HomeEnforcement;
  readonly signed: SignedRequests;
  readonly clock: Clock;
  /** How long home and retained servers may take to enforce, milliseconds. */
  readonly enforcementTimeoutMs: number;
  readonly note: (text: string) => void;
}

/** Rooms worked on at once. */
export const ROOMS_AT_ONCE = 8;

/** The state of a room now; undefined when the homeserver does not know it. */
export async function readRoom(session: RoomsSession, room: RoomId): Promise<RoomState | undefined> {
  const events = await session.operator.roomState(room);
  return events === undefined ? undefined : readRoomState(room, events);
}

export function recordOf(session: RoomsSession, partner: string, room: RoomId): RoomRecord | undefined {
  return session.journals.get(partner)?.room(room);
}

/** What is to be done in a room in this state. */
export function planFor(session: RoomsSession, room: RoomState): RoomPlan {
  const context: PlanContext = {
    intent: session.intent,
    operator: session.operatorId,
    unusable: session.tokens.unusable,
    now: session.clock.now(),
    journaled: new Set(
      session.intent.closing
        .map(({ serverName }) => serverName)
        .filter((partner) => {
          const record = recordOf(session, partner, room.roomId);
          return record !== undefined && (record.bans.size > 0 || record.replace !== undefined);
        }),
    ),
  };
  return planRoom(room, context);
}

/**
 * Who acts as a local user.
 * @returns undefined when the homeserver lends no token; the user is then passed over
 */
export function actingAs(session: RoomsSession, user: UserId) {
  return session.tokens.as(user);
}

/** The journal of a partner, to write. @throws DrawbridgeError `internal` when the pass did not open it */
export function journalOf(session: RoomsSession, partner: ServerName): Journal {
  const journal = session.writable.get(partner);
  if (journal === undefined) throw new DrawbridgeError("internal", `no journal of ${partner} is open`);
  return journal;
}

/** Whether an error is the homeserver's no to one step: the room is then reported, others go on. */
export function isRefusal(error: unknown): boolean {
  return error instanceof DrawbridgeError && error.code === "homeserver_refused";
}
