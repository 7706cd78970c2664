// What the homeserver's admin interface reports of a partner's data, and what of it the interface can delete.
// Invariants: what passes through here is counted and never kept; nothing is fetched from other servers by
// reading (a room is read forwards, because backwards Synapse backfills).
import { z } from "zod";
import { type RoomId, serverOf, type UserId } from "../../../domain/identifiers.ts";
import { expectSuccess, type HomeserverAccess, refused } from "../../homeserver/api.ts";

export interface EventCounts {
  readonly own: number;
  readonly partner: number;
  readonly others: number;
}

export interface CachedFile {
  readonly mediaId: string;
  readonly isQuarantined: boolean;
  /** Milliseconds since the epoch: when it was last used, or cached. */
  readonly lastAccessMs: number;
}

const ADMIN = ["_synapse", "admin", "v1"] as const;
const PAGE = 1_000;
const Page = z.object({
  chunk: z.array(z.object({ sender: z.string(), origin_server_ts: z.number() })),
  end: z.string().optional(),
});
const Media = z.object({
  media_info: z.object({
    last_access_ts: z.number().nullish(),
    created_ts: z.number().nullish(),
    quarantined_by: z.string().nullish(),
  }),
});
const RoomMedia = z.object({ remote: z.array(z.string()) });
const Purge = z.object({ status: z.enum(["active", "complete", "failed"]).catch("active") });

export class DutiesHomeserver {
  readonly #access: HomeserverAccess;

  constructor(access: HomeserverAccess) {
    this.#access = access;
  }

  /** Events in a room's timeline up to a time, by whose they are; undefined when the room is not known. */
  async countEvents(
    room: RoomId,
    own: string,
    partner: string,
    untilMs: number,
  ): Promise<EventCounts | undefined> {
    const counts = { own: 0, partner: 0, others: 0 };
    const path = [...ADMIN, "rooms", room, "messages"];
    for (let from: string | undefined; ; ) {
      const query = { dir: "f", limit: String(PAGE), ...(from !== undefined && { from }) };
      const page = await this.#access.find(Page, "read a room's events", path, query);
      if (page === undefined) return undefined;
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

  /** Files of another server that are named by events of a room which are not encrypted. */
  async mediaInRoom(room: RoomId, server: string): Promise<readonly string[]> {
    const path = [...ADMIN, "room", room, "media"];
    const found = await this.#access.find(RoomMedia, "list a room's media", path);
    return (found?.remote ?? []).flatMap((uri) => mediaIdIn(uri, server) ?? []);
  }

  /** A cached file; undefined when it is not cached. */
  async media(server: string, mediaId: string): Promise<CachedFile | undefined> {
    const path = [...ADMIN, "media", server, mediaId];
    const info = (await this.#access.find(Media, "look at a file", path))?.media_info;
    if (info === undefined) return undefined;
    const lastAccessMs = info.last_access_ts ?? info.created_ts ?? 0;
    return { mediaId, isQuarantined: typeof info.quarantined_by === "string", lastAccessMs };
  }

  async releaseFromQuarantine(server: string, mediaId: string): Promise<void> {
    const operation = "release a file from quarantine";
    const path = [...ADMIN, "media", "unquarantine", server, mediaId];
    expectSuccess(await this.#access.call("POST", operation, path, { body: {} }), operation);
  }

  /** Deletes every cached file of any server that was last used before; those in quarantine stay. */
  async purgeMediaCache(beforeMs: number): Promise<void> {
    const operation = "purge cached files";
    const request = { query: { before_ts: String(beforeMs) }, body: {} };
    const path = [...ADMIN, "purge_media_cache"];
    expectSuccess(await this.#access.call("POST", operation, path, request), operation);
  }

  /** Deletes other servers' events up to a time, but state and the last. @returns what to ask after; undefined: none */
  async purgeHistory(room: RoomId, untilMs: number): Promise<string | undefined> {
    const operation = "purge a room's history";
    const body = { purge_up_to_ts: untilMs, delete_local_events: false };
    const path = [...ADMIN, "purge_history", room];
    const answer = await this.#access.call("POST", operation, path, { body });
    if (answer.status === 404) return undefined;
    const { purge_id: id } = expectSuccess(answer, operation);
    if (typeof id !== "string") throw refused(operation, answer);
    return id;
  }

  /** How a purge of history goes; undefined when the homeserver remembers none. */
  async historyPurge(id: string): Promise<"active" | "complete" | "failed" | undefined> {
    const path = [...ADMIN, "purge_history_status", id];
    return (await this.#access.find(Purge, "read a purge's status", path))?.status;
  }

  /** Whether the homeserver remembers the server as a destination, which nothing can delete. */
  async isDestination(server: string): Promise<boolean> {
    const path = [...ADMIN, "federation", "destinations", server];
    return (await this.#access.find(z.unknown(), "look at a destination", path)) !== undefined;
  }
}

/** The media ID of an `mxc://` URI of exactly this server. */
export function mediaIdIn(uri: unknown, server: string): string | undefined {
  const prefix = `mxc://${server}/`;
  if (typeof uri !== "string" || !uri.startsWith(prefix)) return undefined;
  const id = uri.slice(prefix.length);
  return /^[A-Za-z0-9._~-]{1,255}$/.test(id) ? id : undefined;
}
