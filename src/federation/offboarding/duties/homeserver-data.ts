// The homeserver as its administrator sees it, while the data duties of a run are worked on: what it reports of a
// partner's data, and what of it can be deleted. Invariants: what passes through here is counted and never kept; nothing is
// fetched from other servers by reading (a room is read forwards, because backwards Synapse backfills).
import { resolve } from "node:path";
import { z } from "zod";
import type { Clock } from "../../../domain/clock.ts";
import { DrawbridgeError } from "../../../domain/errors.ts";
import {
  parseServerName,
  type RoomId,
  type ServerName,
  serverOf,
  type UserId,
} from "../../../domain/identifiers.ts";
import { mapConcurrent } from "../../../runtime/concurrency.ts";
import { readSecret } from "../../../runtime/secrets.ts";
import { expectSuccess, HomeserverAccess } from "../../homeserver/api.ts";
import { SynapseAdminApi } from "../../homeserver/synapse-admin-api.ts";
import { type RoomState, readRoomState } from "../../planes/rooms/room-state.ts";
import { ROOMS_AT_ONCE } from "../../planes/rooms/session.ts";
import type { OffboardingContext } from "../run/context.ts";
import { counterpartyIn, type Run } from "../run/run-file.ts";

const ADMIN = ["_synapse", "admin", "v1"] as const;
const PAGE = 1_000;
const Page = z.object({
  chunk: z.array(z.object({ sender: z.string() })),
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

export class DutiesHomeserver {
  readonly #access: HomeserverAccess;

  constructor(access: HomeserverAccess) {
    this.#access = access;
  }

  /** Events in a room's timeline, by whose they are; none when the room is not known. */
  async countEvents(room: RoomId, own: string, partner: string) {
    const counts = { own: 0, partner: 0, others: 0 };
    const path = [...ADMIN, "rooms", room, "messages"];
    for (let from: string | undefined; ; ) {
      const query = { dir: "f", limit: String(PAGE), ...(from !== undefined && { from }) };
      const page = await this.#access.find(Page, "read a room's events", path, query);
      if (page === undefined) return { own: 0, partner: 0, others: 0 };
      for (const { sender } of page.chunk) {
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

  /** A cached file, and when it was last used or cached; undefined when it is not cached. */
  async media(server: string, mediaId: string) {
    const path = [...ADMIN, "media", server, mediaId];
    const info = (await this.#access.find(Media, "look at a file", path))?.media_info;
    if (info === undefined) return undefined;
    const lastAccessMs = info.last_access_ts ?? info.created_ts ?? 0;
    return { mediaId, isQuarantined: typeof info.quarantined_by === "string", lastAccessMs };
  }

  /** Deletes every cached file of any server that was last used before; those in quarantine stay. */
  async purgeMediaCache(beforeMs: number): Promise<void> {
    const operation = "purge cached files";
    const request = { query: { before_ts: String(beforeMs) }, body: {} };
    const path = [...ADMIN, "purge_media_cache"];
    expectSuccess(await this.#access.call("POST", operation, path, request), operation);
  }

  /** Whether the homeserver remembers the server as a destination, which nothing can delete. */
  async isDestination(server: string): Promise<boolean> {
    const path = [...ADMIN, "federation", "destinations", server];
    return (await this.#access.find(z.unknown(), "look at a destination", path)) !== undefined;
  }
}

export function mediaIdIn(uri: unknown, server: string): string | undefined {
  const prefix = `mxc://${server}/`;
  if (typeof uri !== "string" || !uri.startsWith(prefix)) return undefined;
  const id = uri.slice(prefix.length);
  return /^[A-Za-z0-9._~-]{1,255}$/.test(id) ? id : undefined;
}

export type DutiesContext = Pick<OffboardingContext, "config" | "clock" | "say">;

export interface DutiesSession {
  readonly own: ServerName;
  readonly partner: ServerName;
  readonly operator: SynapseAdminApi;
  readonly homeserver: DutiesHomeserver;
  readonly clock: Clock;
  readonly say: (text: string) => void;
}

/** Runs `work` with a session, and closes it. @throws DrawbridgeError as the homeserver does */
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
  const access = new HomeserverAccess(homeserver.url, token, clock);
  const session = {
    ...{ own, partner, clock, say },
    operator: new SynapseAdminApi(access),
    homeserver: new DutiesHomeserver(access),
  };
  try {
    const operatorId = await session.operator.whoami();
    if (!operatorId.endsWith(`:${own}`)) {
      throw new DrawbridgeError("config_invalid", `the operator's token is not one of ${own}`, {
        hint: "Correct homeserver.url and homeserver.operatorToken.",
      });
    }
    return await work(session);
  } finally {
    await access.close();
  }
}

export type PartnerRooms = Awaited<ReturnType<typeof partnerRooms>>;

/** Every room that the partner takes part in or took part in, as far as the homeserver knows; sorted. */
export async function partnerRooms({ operator, partner }: DutiesSession) {
  const sentTo = new Set(await operator.destinationRooms(partner));
  const listed = await operator.rooms();
  const found: { readonly room: RoomId; readonly state: RoomState }[] = [];
  await mapConcurrent([...new Set([...listed, ...sentTo])], ROOMS_AT_ONCE, async (room) => {
    const events = await operator.roomState(room);
    if (events === undefined) return;
    const state = readRoomState(room, events);
    const isMember = [...state.members.keys()].some((user) => serverOf(user) === partner);
    if (isMember || sentTo.has(room)) found.push({ room, state });
  });
  return found.sort((left, right) => (left.room < right.room ? -1 : 1));
}
