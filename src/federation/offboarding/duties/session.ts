// What the data duties of a run are worked on with: the homeserver as its administrator sees it, and its
// database where the deployment lets it be counted.
import { resolve } from "node:path";
import type { Clock } from "../../../domain/clock.ts";
import { DrawbridgeError } from "../../../domain/errors.ts";
import { parseServerName, type RoomId, type ServerName, serverOf } from "../../../domain/identifiers.ts";
import { mapConcurrent } from "../../../runtime/concurrency.ts";
import { readSecret } from "../../../runtime/secrets.ts";
import { SynapseAdminApi } from "../../homeserver/synapse-admin-api.ts";
import { type RoomState, readRoomState } from "../../planes/rooms/room-state.ts";
import { ROOMS_AT_ONCE } from "../../planes/rooms/session.ts";
import type { OffboardingContext } from "../run/context.ts";
import { counterpartyIn, type Run } from "../run/run-file.ts";
import { DutiesHomeserver, type EventCounts } from "./homeserver-data.ts";
import { HomeserverTables } from "./homeserver-row-counts.ts";

export type DutiesContext = Pick<OffboardingContext, "config" | "clock" | "say">;

export interface DutiesSession {
  readonly own: ServerName;
  readonly partner: ServerName;
  readonly operator: SynapseAdminApi;
  readonly homeserver: DutiesHomeserver;
  /** Undefined where the deployment does not let the database be read. */
  readonly tables: HomeserverTables | undefined;
  readonly clock: Clock;
  readonly say: (text: string) => void;
}

/** Runs `work` with a session, and closes it. @throws DrawbridgeError as the homeserver and database do */
export async function withDuties<T>(
  { config, clock, say }: DutiesContext,
  run: Run,
  work: (session: DutiesSession) => Promise<T>,
): Promise<T> {
  const { homeserver, directory } = config;
  const own = parseServerName(run.self);
  const partner = parseServerName(counterpartyIn(run));
  if (own === undefined || partner === undefined) throw new RangeError("a run is of servers");
  const token = readSecret(homeserver.operatorToken, resolve(directory));
  const operator = new SynapseAdminApi(homeserver.url, token, clock);
  const session = { own, partner, clock, say, operator, homeserver: new DutiesHomeserver(operator) };
  try {
    const operatorId = await operator.whoami();
    if (!operatorId.endsWith(`:${own}`)) {
      throw new DrawbridgeError("config_invalid", `the operator's token is not one of ${own}`, {
        hint: "Correct homeserver.url and homeserver.operatorToken.",
      });
    }
    if (homeserver.databaseUrl === undefined) return await work({ ...session, tables: undefined });
    const url = readSecret(homeserver.databaseUrl, resolve(directory));
    return await HomeserverTables.with(url, (tables) => work({ ...session, tables }));
  } finally {
    await operator.close();
  }
}

export interface PartnerRoom {
  readonly room: RoomId;
  readonly state: RoomState;
}

/** Every room that the partner takes part in or took part in, as far as the homeserver knows; sorted. */
export async function partnerRooms(session: DutiesSession): Promise<readonly PartnerRoom[]> {
  const { operator, partner, tables } = session;
  const sentTo = new Set(await operator.destinationRooms(partner));
  const counted = [...((await tables?.eventsByRoom(partner))?.keys() ?? [])].map((room) => room as RoomId);
  const listed = await operator.rooms();
  const found: PartnerRoom[] = [];
  await mapConcurrent([...new Set([...listed, ...sentTo, ...counted])], ROOMS_AT_ONCE, async (room) => {
    const events = await operator.roomState(room);
    if (events === undefined) return;
    const state = readRoomState(room, events);
    const isPartners =
      sentTo.has(room) ||
      counted.includes(room) ||
      [...state.members.keys()].some((user) => serverOf(user) === partner);
    if (isPartners) found.push({ room, state });
  });
  return found.sort((left, right) => (left.room < right.room ? -1 : 1));
}

/** A room's events up to a time: from the database where it may be read, else by reading the room. */
export async function countEvents(
  { homeserver, tables, own, partner }: DutiesSession,
  room: RoomId,
  untilMs: number,
): Promise<EventCounts> {
  if (tables !== undefined) return tables.countEvents(room, own, partner, untilMs);
  return (await homeserver.countEvents(room, own, partner, untilMs)) ?? { own: 0, partner: 0, others: 0 };
}
