// What a purge would delete, found without deleting anything.
// Invariants: the digest covers every file and room that would go, with its counts; a room that the partner
// was never in is never purged, whatever the record says; what stays is named with its reason.

import { z } from "zod";
import { canonicalize } from "../../../domain/canonical-json.ts";
import { Sha256Digest, sha256Tagged } from "../../../domain/digest.ts";
import { roomOfVisibleId, visibleId } from "../../../domain/identifiers.ts";
import { Identifier, OrganisationName, RunId, Word } from "../../../records/format/fields.ts";
import { mapConcurrent } from "../../../runtime/concurrency.ts";
import { joinedByServer } from "../../planes/rooms/room-state.ts";
import { ROOMS_AT_ONCE } from "../../planes/rooms/session.ts";
import type { PrivateRecord } from "../private-record/schema.ts";
import { type DutiesSession, mediaIdIn, type PartnerRooms, partnerRooms } from "./homeserver-data.ts";

const Count = z.int().min(0);
const PlannedRoom = z.strictObject({
  room: Identifier,
  events: z.strictObject({ own: Count, partner: Count, others: Count }),
  /** Users of ours who are still in it; a purge takes them out. */
  local_members: Count,
  other_servers: z.array(OrganisationName),
});
export type PlannedRoom = z.output<typeof PlannedRoom>;

export const PurgePlan = z.strictObject({
  schema: z.literal("svc.federation.purge_plan.v1"),
  run: RunId,
  partner: OrganisationName,
  at: z.iso.datetime(),
  media: z.strictObject({
    purge: z.boolean(),
    /** Media IDs of the partner's cached files that would go; those in encrypted rooms are not known. */
    files: z.array(Identifier),
    /** Those that stay, because a purge leaves what is in quarantine. */
    kept_in_quarantine: Count,
    /** Everything cached from anybody and last used before goes: the homeserver cannot purge one server's. */
    before_ms: z.int().nullable(),
  }),
  rooms: z.array(PlannedRoom),
  staying: z.array(z.strictObject({ subject: Identifier, reason: Word, events: Count.nullable() })),
  digest: Sha256Digest,
});
export type PurgePlan = z.output<typeof PurgePlan>;

/** @param shown what was shown before: its time and its bound for files count again; absent for a dry run */
export async function planPurge(
  session: DutiesSession,
  run: string,
  record: PrivateRecord,
  shown?: PurgePlan,
): Promise<PurgePlan> {
  const { own, partner, homeserver, clock } = session;
  const { purge } = record.duties;
  session.say("looking for the partner's rooms");
  const found = await partnerRooms(session);
  const media = await planMedia(session, found, purge.remoteMedia === "purge", shown?.media.before_ms);
  const rooms: PlannedRoom[] = [];
  const staying: PurgePlan["staying"] = [];
  const known = new Set(found.map(({ room }) => visibleId(room)));
  const named = new Set(purge.rooms);
  for (const subject of named) {
    // It was purged before, was never the partner's, or is mistyped.
    const reason = "not_a_room_of_the_partner_here";
    if (!known.has(subject)) staying.push({ subject, reason, events: null });
  }
  await mapConcurrent(found, ROOMS_AT_ONCE, async (one) => {
    const room = visibleId(one.room);
    const events = await homeserver.countEvents(one.room, own, partner);
    if (!named.has(room)) {
      staying.push({ subject: room, reason: "not_named_in_the_record", events: events.partner });
      return;
    }
    const joined = joinedByServer(one.state);
    const others = [...joined.keys()].filter((server) => server !== own && server !== partner);
    const local_members = joined.get(own)?.length ?? 0;
    rooms.push({ room, events, local_members, other_servers: others.sort() });
  });
  rooms.sort((left, right) => (left.room < right.room ? -1 : 1));
  staying.sort((left, right) => (left.subject < right.subject ? -1 : 1));
  const what = { run, partner, at: shown?.at ?? new Date(clock.now()).toISOString(), media, rooms };
  const digest = sha256Tagged(canonicalize(what));
  return { schema: "svc.federation.purge_plan.v1", ...what, staying, digest };
}

async function planMedia(
  session: DutiesSession,
  rooms: PartnerRooms,
  purge: boolean,
  shownBeforeMs: number | null | undefined,
): Promise<PurgePlan["media"]> {
  if (!purge) return { purge, files: [], kept_in_quarantine: 0, before_ms: null };
  session.say("looking for the partner's cached files");
  const all = await filesInRooms(session, rooms);
  const going = all.filter(({ isQuarantined }) => !isQuarantined);
  const lastMs = Math.max(...going.map(({ lastAccessMs }) => lastAccessMs));
  return {
    ...{ purge, kept_in_quarantine: all.length - going.length },
    files: going.map(({ mediaId }) => visibleId(mediaId)),
    before_ms: going.length === 0 ? null : (shownBeforeMs ?? lastMs + 1),
  };
}

/** Files named by messages and profiles in rooms, as far as they are cached. */
async function filesInRooms(session: DutiesSession, rooms: PartnerRooms) {
  const { homeserver, operator, partner } = session;
  const ids = new Set<string>();
  await mapConcurrent(rooms, ROOMS_AT_ONCE, async ({ room }) => {
    for (const id of await homeserver.mediaInRoom(room, partner)) ids.add(id);
    for (const { content } of (await operator.roomState(room)) ?? []) {
      for (const uri of [content["avatar_url"], content["url"]]) {
        const id = mediaIdIn(uri, partner);
        if (id !== undefined) ids.add(id);
      }
    }
  });
  const found = await mapConcurrent([...ids].sort(), ROOMS_AT_ONCE, (id) => homeserver.media(partner, id));
  return found.filter((file) => file !== undefined);
}

export function purgesAnything({ media, rooms }: PurgePlan): boolean {
  return media.purge || rooms.length > 0;
}

/** @throws RangeError for a room ID that a plan of ours cannot hold */
export function roomOf(planned: PlannedRoom) {
  const room = roomOfVisibleId(planned.room);
  if (room === undefined) throw new RangeError("a plan holds room IDs");
  return room;
}
