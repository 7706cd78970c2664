// The rooms that a partner was closed out of, and new ones in place of those that are not to come back.
// Invariants: whether memberships can be repaired is asked of the partner's server, never concluded; what it does
// not answer is unknown; history is never purged here; a new room that was begun is gone on with, not made twice.
import { join, resolve } from "node:path";
import type { Clock } from "../../domain/clock.ts";
import { type RoomId, type ServerName, serverOf } from "../../domain/identifiers.ts";
import { mapConcurrent } from "../../runtime/map-concurrent.ts";
import type { FederationConfig } from "../config.ts";
import { listRooms } from "../planes/rooms/inventory.ts";
import { type RoomRecord, readJournal } from "../planes/rooms/journal.ts";
import { withSession } from "../planes/rooms/open-session.ts";
import { replaceRoom } from "../planes/rooms/replace-room.ts";
import type { RoomState } from "../planes/rooms/room-state.ts";
import { ROOMS_AT_ONCE, type RoomsSession, readRoom, recordOf } from "../planes/rooms/session.ts";
import { type DesiredState, desiredPlane } from "../reconcile/desired.ts";
import type { StateFolder } from "../state/folder.ts";
import { holdsBans } from "./held-bans.ts";
import type { TouchedRoom } from "./readmission.ts";

export interface ReadmissionRooms {
  /** Rooms that the partner was closed out of. @throws DrawbridgeError */
  look(desired: DesiredState, partner: string): Promise<readonly TouchedRoom[]>;
  /**
   * Puts new rooms in the place of these, while the partner is still closed out.
   * @returns them as they are now
   */
  replace(desired: DesiredState, partner: string, rooms: readonly string[]): Promise<readonly TouchedRoom[]>;
}

interface Sources {
  readonly clock: Clock;
  readonly state: StateFolder;
  readonly note: (text: string) => void;
}

export function readmissionRooms(
  config: FederationConfig,
  { clock, state, note }: Sources,
): ReadmissionRooms {
  const folder = join(resolve(config.directory, config.state), "rooms");
  const work = <T>(desired: DesiredState, writes: boolean, act: (session: RoomsSession) => Promise<T>) =>
    withSession(config, desiredPlane(desired, "rooms"), { clock, note, writes }, act);
  return {
    async look(desired, partner) {
      const server = partner as ServerName;
      const { rooms } = readJournal(folder, server);
      if (rooms.length === 0) return [];
      return work(desired, false, (session) =>
        mapConcurrent(rooms, ROOMS_AT_ONCE, (record) => touchedRoom(session, server, record)),
      );
    },
    async replace(desired, partner, rooms) {
      const server = partner as ServerName;
      // The reconciler works on the same rooms.
      const lock = await state.lock("plane rooms", clock);
      try {
        return await work(desired, true, (session) =>
          replaceAll(session, server, rooms as readonly RoomId[]),
        );
      } finally {
        await lock.release();
      }
    },
  };
}

async function touchedRoom(
  session: RoomsSession,
  partner: ServerName,
  record: RoomRecord,
): Promise<TouchedRoom> {
  const { room, gone, replace, replacement } = record;
  const to = replacement?.to ?? null;
  if (gone !== undefined) {
    const state = to === null ? "gone" : "replaced";
    return { room, state, replacement: to, repairable: "yes" };
  }
  if (replace !== undefined && to !== null) return { room, state: "kept", replacement: to, repairable: "no" };
  return { room, state: "kept", replacement: null, repairable: await repairable(session, partner, record) };
}

function repairable(session: RoomsSession, partner: ServerName, { bans }: RoomRecord) {
  const events = [...bans].filter(([user]) => serverOf(user) === partner).map(([, { event }]) => event);
  return holdsBans(session.signed, partner, events);
}

async function replaceAll(
  session: RoomsSession,
  partner: ServerName,
  rooms: readonly RoomId[],
): Promise<readonly TouchedRoom[]> {
  const concerned = session.intent.closing
    .filter(({ serverName }) => serverName === partner)
    // `removed` would purge the old room: its history is ours, and stays.
    .map((one) => ({ ...one, mode: "contained" as const }));
  const listed = await listRooms(session, []);
  const read = await mapConcurrent([...new Set([...listed, ...rooms])], ROOMS_AT_ONCE, (room) =>
    readRoom(session, room),
  );
  const states = read.filter((state): state is RoomState => state !== undefined);
  return mapConcurrent(rooms, 2, async (room) => {
    const state = states.find(({ roomId }) => roomId === room);
    if (state !== undefined && recordOf(session, partner, room)?.gone === undefined) {
      await replaceRoom(session, state, concerned, states);
    }
    const record = recordOf(session, partner, room);
    if (record === undefined) return { room, state: "gone", replacement: null, repairable: "yes" };
    return touchedRoom(session, partner, record);
  });
}
