// What the data duties of a run are worked on with: what the homeserver's admin interface reports of a partner's data, and
// what of it that can delete; and the homeserver's database, where the deployment lets it be counted.
// Invariants: what passes through here is counted and never kept; nothing is fetched from other servers by reading (a room
// is read forwards, because backwards Synapse backfills).
import { resolve } from "node:path";
import * as z from "zod";
import { type RoomId, type ServerName, serverOf, type UserId } from "../../../domain/identifiers.ts";
import { mapConcurrent } from "../../../runtime/concurrency.ts";
import { readSecret } from "../../../runtime/secrets.ts";
import { expectSuccess, type HomeserverAccess, refused } from "../../homeserver/api.ts";
import { SynapseAdminApi } from "../../homeserver/synapse-admin-api.ts";
import { borderStatus } from "../../planes/border/runtime.ts";
import type { RoomState } from "../../planes/rooms/room-state.ts";
import { listRooms, ROOMS_AT_ONCE, tryRoom } from "../../planes/rooms/session.ts";
import type { OffboardingContext } from "../run/context.ts";
import { counterpartyIn, type Run } from "../run/run-file.ts";
import { type RowCounts, withTables } from "./homeserver-row-counts.ts";

export type DutiesContext = Pick<OffboardingContext, "config" | "clock" | "say">;

export interface DutiesSession extends ReturnType<typeof sessionOf> {
  /** Undefined where the deployment does not let the database be read. */
  readonly tables: RowCounts | undefined;
}

function sessionOf({ config, clock, say }: DutiesContext, run: Run) {
  const { homeserver, directory } = config;
  const [own, partner] = [run.self as ServerName, counterpartyIn(run) as ServerName];
  const token = readSecret(homeserver.operatorToken, resolve(directory));
  const operator = new SynapseAdminApi(homeserver.url, token, clock);
  const home = borderStatus(config);
  return { own, partner, clock, say, operator, home, homeserver: partnerData(operator, partner) };
}

/** Runs `work` with a session, and closes it. @throws DrawbridgeError as the homeserver and database do */
export async function withDuties<T>(
  context: DutiesContext,
  run: Run,
  work: (session: DutiesSession) => Promise<T>,
): Promise<T> {
  const session = sessionOf(context, run);
  const { operator, own } = session;
  const { homeserver, directory } = context.config;
  try {
    await operator.operatorOf(own);
    if (homeserver.databaseUrl === undefined) return await work({ ...session, tables: undefined });
    const url = readSecret(homeserver.databaseUrl, resolve(directory));
    return await withTables(url, session, (tables) => work({ ...session, tables }));
  } finally {
    await operator.close();
  }
}

/**
 * Every room that the partner takes part in or took part in, as far as the homeserver knows; sorted. One that cannot be
 * read is the partner's where the partner was sent an event of it, or events of the partner are counted in it.
 */
export async function partnerRooms(session: DutiesSession) {
  const { operator, own, partner, tables } = session;
  const sentTo = new Set(await operator.destinationRooms(partner));
  const counted = [...((await tables?.eventsByRoom())?.keys() ?? [])].map((room) => room as RoomId);
  const listed = await listRooms(session, []);
  const found: { readonly room: RoomId; readonly state: RoomState | "unread" }[] = [];
  await mapConcurrent([...new Set([...listed, ...sentTo, ...counted])], ROOMS_AT_ONCE, async (room) => {
    const state = await tryRoom({ operator, intent: { own } }, room);
    if (state === undefined) return;
    const isPartners =
      sentTo.has(room) ||
      counted.includes(room) ||
      (state !== "unread" && [...state.members.keys()].some((user) => serverOf(user) === partner));
    if (isPartners) found.push({ room, state });
  });
  return found.sort((left, right) => (left.room < right.room ? -1 : 1));
}

const ADMIN = ["_synapse", "admin", "v1"] as const;
/** Of events as long as one may be, whose characters are escaped, no more fit into an answer that is read. */
const PAGE = 200;
const Event = z.object({ sender: z.string(), origin_server_ts: z.number() });
const Page = z.object({ chunk: z.array(Event), end: z.string().optional() });

/** A room's events up to a time, by whose they are; none when it is not known. From the database where it may be read. */
export async function countEvents(session: DutiesSession, room: RoomId, untilMs: number) {
  const { operator, tables, own, partner } = session;
  if (tables !== undefined) return tables.countEvents(room, untilMs);
  const counts = { own: 0, partner: 0, others: 0 };
  const path = [...ADMIN, "rooms", room, "messages"];
  for (let from: string | undefined; ; ) {
    const query = { dir: "f", limit: String(PAGE), ...(from !== undefined && { from }) };
    const page = await operator.find(Page, "read a room's events", path, { query });
    if (page === undefined) return { own: 0, partner: 0, others: 0 };
    for (const { sender, origin_server_ts } of page.chunk) {
      if (origin_server_ts > untilMs) continue;
      // Homeservers know users whose IDs the grammar excludes: the server is everything after the first colon.
      const server = serverOf(sender as UserId);
      counts[server === own ? "own" : server === partner ? "partner" : "others"] += 1;
    }
    if (page.end === undefined || page.end === from || page.chunk.length === 0) return counts;
    from = page.end;
  }
}

const RoomMedia = z.object({ remote: z.array(z.string()) });
const Time = z.number().nullish();
const MediaInfo = z.object({ last_access_ts: Time, created_ts: Time, quarantined_by: z.string().nullish() });
const Media = z.object({ media_info: MediaInfo });
const HistoryPurge = z.object({ status: z.enum(["active", "complete", "failed"]).catch("active") });

function partnerData(access: HomeserverAccess, partner: ServerName) {
  const post = async (operation: string, path: readonly string[], query: Record<string, string> = {}) => {
    const answer = await access.call("POST", operation, [...ADMIN, ...path], { body: {}, query });
    return expectSuccess(answer, operation);
  };
  return {
    /** IDs of the partner's files that are named by events of a room which are not encrypted. */
    async mediaInRoom(room: RoomId) {
      const found = await access.find(RoomMedia, "list a room's media", [...ADMIN, "room", room, "media"]);
      return (found?.remote ?? []).flatMap((uri) => mediaIdIn(uri, partner) ?? []);
    },

    /** A file, and when it was last used or cached; undefined when it is not cached. */
    async file(mediaId: string) {
      const path = [...ADMIN, "media", partner, mediaId];
      const info = (await access.find(Media, "look at a file", path))?.media_info;
      if (info === undefined) return undefined;
      const lastAccessMs = info.last_access_ts ?? info.created_ts ?? 0;
      return { mediaId, isQuarantined: typeof info.quarantined_by === "string", lastAccessMs };
    },

    releaseFromQuarantine: (mediaId: string) =>
      post("release a file from quarantine", ["media", "unquarantine", partner, mediaId]),

    /** Deletes every cached file of any server that was last used before; those in quarantine stay. */
    purgeMediaCache: (beforeMs: number) =>
      post("purge cached files", ["purge_media_cache"], { before_ts: String(beforeMs) }),

    /** Deletes other servers' events up to a time, but state and the last. @returns what to ask after; undefined: none */
    async purgeHistory(room: RoomId, untilMs: number) {
      const operation = "purge a room's history";
      const body = { purge_up_to_ts: untilMs, delete_local_events: false };
      const answer = await access.call("POST", operation, [...ADMIN, "purge_history", room], { body });
      if (answer.status === 404 && answer.errcode === "M_NOT_FOUND") return undefined;
      const { purge_id: id } = expectSuccess(answer, operation);
      if (typeof id !== "string") throw refused(operation, answer);
      return id;
    },

    /** How a purge of history goes; undefined when the homeserver remembers none. */
    async historyPurge(id: string) {
      const path = [...ADMIN, "purge_history_status", id];
      return (await access.find(HistoryPurge, "read a purge's status", path))?.status;
    },

    /** Whether the homeserver remembers the partner as a destination, which nothing can delete. */
    async isDestination() {
      const path = [...ADMIN, "federation", "destinations", partner];
      return (await access.find(z.unknown(), "look at a destination", path)) !== undefined;
    },
  };
}

/** The media ID of an `mxc://` URI of exactly this server. */
export function mediaIdIn(uri: unknown, server: string): string | undefined {
  const prefix = `mxc://${server}/`;
  if (typeof uri !== "string" || !uri.startsWith(prefix)) return undefined;
  const id = uri.slice(prefix.length);
  return /^[A-Za-z0-9._~-]{1,255}$/.test(id) ? id : undefined;
}
