// What remains of a partnership although every plane is closed: counts and times, never content.
// Invariant: what cannot be known is null, and why is said beside it.
import { visibleId } from "../../../domain/identifiers.ts";
import { isSettled } from "../../../records/conditions/evaluate.ts";
import { TOKEN_LIFE_S } from "../../../rendered-files/issuer-clients.ts";
import { joinedByServer, presentOf } from "../../planes/rooms/room-state.ts";
import { readPlane } from "../../state/plane-records.ts";
import type { Residual } from "../run/context.ts";
import { type Run, readStage } from "../run/run-file.ts";
import { countEvents, type DutiesContext, partnerRooms, withDuties } from "./session.ts";

/** `statement`: what a completion states of what remains. @throws DrawbridgeError as the homeserver does */
export function residualReport(context: DutiesContext, run: Run) {
  const tokens = tokensLiveUntil(context, run);
  return withDuties(context, run, async (session) => {
    const { partner, own, tables, clock } = session;
    const found = await partnerRooms(session);
    const now = clock.now();
    const byRoom = await tables?.eventsByRoom();
    const rooms: Residual["rooms"] = [];
    const thirds = new Map<string, number>();
    for (const { room, state } of found) {
      if (state === "unread") {
        rooms.push({ room: visibleId(room), events: byRoom?.get(room) ?? null });
        continue;
      }
      const events = byRoom ? (byRoom.get(room) ?? 0) : (await countEvents(session, room, now)).partner;
      rooms.push({ room: visibleId(room), events });
      if (presentOf(state, partner).length === 0) continue;
      for (const server of joinedByServer(state).keys()) {
        if (server !== partner && server !== own) thirds.set(server, (thirds.get(server) ?? 0) + 1);
      }
    }
    const counts = await tables?.counts();
    const third_servers = [...thirds].map(([server, n]) => ({ server, rooms: n }));
    const statement: Residual = {
      rooms,
      device_keys: counts?.["device_lists_remote_cache"] ?? null,
      tokens_live_until: tokens.until ?? null,
      third_servers: third_servers.sort((left, right) => (left.server < right.server ? -1 : 1)),
    };
    const isUnread = found.some(({ state }) => state === "unread");
    const unknown: Readonly<Record<string, string>> = {
      // The gateway counts calls, and forgets whose a stream was once the client is gone.
      streams: "not_reported_by_gateway",
      ...(isUnread && { rooms: "room_not_read", third_servers: "room_not_read" }),
      ...(counts === undefined && { device_keys: "database_not_read" }),
      ...(tokens.reason !== undefined && { tokens_live_until: tokens.reason }),
    };
    return { statement, unknown };
  });
}

/** When the last token ends; never too early, by the last time at which the client was surely disabled. */
export function tokensLiveUntil({ config }: Pick<DutiesContext, "config">, run: Run) {
  if (config.gateway === undefined) return { reason: "no_gateway" };
  const proof = readStage(run, "a2a_stop")?.proof;
  // An open plane is in force too, and a stage that was observed may have been observed open.
  if (proof == null || !proof.conditions.every(isSettled)) return { reason: "gateway_not_closed" };
  const { inForce } = readPlane(run.state, "gateway");
  // Both: what was put right since may have been open until then, although it was proved closed before.
  const closedAt = [proof.at, inForce?.repairedAt ?? inForce?.at].flatMap((at) => at ?? []);
  return { until: new Date(Math.max(...closedAt.map(Date.parse)) + TOKEN_LIFE_S * 1_000).toISOString() };
}
