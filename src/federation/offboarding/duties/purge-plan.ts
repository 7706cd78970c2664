// What a purge would delete, found without deleting anything; and the form in which it is remembered how far the purge is.
// Invariants: the digest covers every file and room that would go, with its counts; a room that the partner
// was never in is never purged, whatever the record says; what stays is named with its reason.
import * as z from "zod";
import { canonicalize } from "../../../domain/canonical-json.ts";
import { sha256Tagged } from "../../../domain/digest.ts";
import { Sha256Digest } from "../../../domain/identifier-fields.ts";
import { roomOfVisibleId, visibleId } from "../../../domain/identifiers.ts";
import { EvidenceItem } from "../../../records/format/evidence-item.ts";
import { Identifier, OrganisationName, RunId, Word } from "../../../records/format/fields.ts";
import { mapConcurrent } from "../../../runtime/concurrency.ts";
import { joinedByServer } from "../../planes/rooms/room-state.ts";
import { ROOMS_AT_ONCE } from "../../planes/rooms/session.ts";
import { type PrivateRecord, RoomPurge } from "../private-record/schema.ts";
import { countEvents, type DutiesSession, mediaIdIn, partnerRooms } from "./session.ts";

const Count = z.int().min(0);
const PlannedRoom = z.strictObject({
  room: Identifier,
  how: RoomPurge.exclude(["keep"]),
  /** Of a history: up to the time of the plan. A room that goes as a whole is counted as a whole. */
  events: z.strictObject({ own: Count, partner: Count, others: Count }),
  /** Users of ours who are still in it; a purge of the whole room takes them out. */
  local_members: Count,
  /** Other servers than the partner's and ours whose users are in it. */
  other_servers: z.array(OrganisationName),
});
export type PlannedRoom = z.output<typeof PlannedRoom>;

export const PurgePlan = z.strictObject({
  ...{ schema: z.literal("svc.federation.purge_plan.v1"), run: RunId, partner: OrganisationName },
  /** Of a history, what is younger is not purged. */
  at: z.iso.datetime(),
  media: z.strictObject({
    purge: z.boolean(),
    files: z.array(z.strictObject({ media_id: Identifier, quarantined: z.boolean() })),
    /** The files that stay, because the record keeps what is in quarantine. */
    kept_in_quarantine: Count,
    /** Everything cached from anybody and last used before goes: the homeserver cannot purge one server's. */
    before_ms: z.int().nullable(),
    /** Files of other servers that go with them, and are fetched again when used; null where unknown. */
    other_files: Count.nullable(),
    /** Whether files in encrypted rooms are known too, which only the database lists. */
    is_whole: z.boolean(),
  }),
  rooms: z.array(PlannedRoom),
  staying: z.array(z.strictObject({ subject: Identifier, reason: Word, events: Count.nullable() })),
  digest: Sha256Digest,
});
export type PurgePlan = z.output<typeof PurgePlan>;

const Counts = z.record(z.string(), Count);
const RoomResult = z.strictObject({
  room: z.string(),
  how: PlannedRoom.shape.how,
  before: Count,
  /** Events of others that stay: state, and the last one; 0 when the room is gone. */
  after: Count,
});
const BegunPurge = z.strictObject({
  at: z.iso.datetime(),
  /** The partner's rows by table; null where the database is not read. */
  before: Counts.nullable(),
  media_done: z.boolean(),
  rooms: z.array(RoomResult),
  /** Purges of history under way, by room. */
  under_way: z.record(z.string(), z.string()),
});
export type BegunPurge = z.output<typeof BegunPurge>;

const Done = z.strictObject({ at: z.iso.datetime(), after: Counts.nullable(), items: z.array(EvidenceItem) });

export const PurgeState = z.strictObject({
  version: z.literal(1),
  plan: PurgePlan,
  /** Null until the purge of this plan begins. */
  begun: BegunPurge.nullable(),
  done: Done.nullable(),
});
export type PurgeState = z.output<typeof PurgeState>;

/** Why a room stays that the record has purged: who is in it is not known, so that nobody could be shown. */
export const NOT_READ = "room_not_read";

/** @param options `atMs`: of a history, what is younger is not purged; `beforeMs`: as shown before, computed when absent */
export async function planPurge(
  session: DutiesSession,
  run: string,
  record: PrivateRecord,
  { atMs, beforeMs }: { readonly atMs: number; readonly beforeMs?: number | null },
): Promise<PurgePlan> {
  const { own, partner } = session;
  const { purge } = record.duties;
  session.say("looking for the partner's rooms");
  const found = await partnerRooms(session);
  const media = await planMedia(session, found, purge, beforeMs);
  const rooms: PlannedRoom[] = [];
  const staying: PurgePlan["staying"] = [];
  const named = new Map(purge.rooms.map(({ room, how }) => [room, how]));
  const known = new Set(found.map(({ room }) => visibleId(room)));
  for (const { room: subject, how } of purge.rooms) {
    // The room was purged before, was never the partner's, or is mistyped.
    const reason = "not_a_room_of_the_partner_here";
    if (how !== "keep" && !known.has(subject)) staying.push({ subject, reason, events: null });
  }
  await mapConcurrent(found, ROOMS_AT_ONCE, async (one) => {
    const room = visibleId(one.room);
    const how = named.get(room);
    const { state } = one;
    // Deleting a room deletes what was said in it since the plan too, so those events are counted as well.
    const untilMs = how === "room" ? Number.MAX_SAFE_INTEGER : atMs;
    const isUncounted = state === "unread" && session.tables === undefined;
    const events = isUncounted ? undefined : await countEvents(session, one.room, untilMs);
    if (events === undefined || state === "unread" || how === undefined || how === "keep") {
      const named = how === "keep" ? "kept_by_contract" : NOT_READ;
      const reason = how === undefined ? "not_named_in_the_record" : named;
      staying.push({ subject: room, reason, events: events?.partner ?? null });
      return;
    }
    const joined = joinedByServer(state);
    const other_servers = [...joined.keys()].filter((server) => server !== own && server !== partner);
    rooms.push({ room, how, events, local_members: joined.get(own)?.length ?? 0, other_servers });
  });
  rooms.sort((left, right) => (left.room < right.room ? -1 : 1));
  staying.sort((left, right) => (left.subject < right.subject ? -1 : 1));
  const what = { run, partner, at: new Date(atMs).toISOString(), media, rooms };
  const digest = sha256Tagged(canonicalize(what));
  return { schema: "svc.federation.purge_plan.v1", ...what, staying, digest };
}

type PartnerRooms = Awaited<ReturnType<typeof partnerRooms>>;

async function planMedia(
  session: DutiesSession,
  rooms: PartnerRooms,
  { remoteMedia, quarantinedMedia }: PrivateRecord["duties"]["purge"],
  shownBeforeMs: number | null | undefined,
): Promise<PurgePlan["media"]> {
  const { tables } = session;
  const purge = remoteMedia === "purge";
  if (purge) session.say("looking for the partner's cached files");
  const all = purge ? await (tables?.files() ?? filesInRooms(session, rooms)) : [];
  const going = all.filter(({ isQuarantined }) => !isQuarantined || quarantinedMedia === "purge");
  // There may be more of them than a call has arguments.
  const lastMs = going.reduce((last, { lastAccessMs }) => Math.max(last, lastAccessMs), 0);
  const before_ms = going.length === 0 ? null : (shownBeforeMs ?? lastMs + 1);
  const other_files = before_ms === null ? null : ((await tables?.otherFiles(before_ms)) ?? null);
  const files = going.map((one) => ({ media_id: visibleId(one.mediaId), quarantined: one.isQuarantined }));
  const kept = { kept_in_quarantine: all.length - going.length, is_whole: tables !== undefined };
  return { purge, files, before_ms, other_files, ...kept };
}

/** Files named by messages and profiles in rooms that can be read, as far as they are cached. */
async function filesInRooms(session: DutiesSession, rooms: PartnerRooms) {
  const { homeserver, operator, partner } = session;
  const ids = new Set<string>();
  await mapConcurrent(rooms, ROOMS_AT_ONCE, async ({ room, state }) => {
    if (state === "unread") return;
    for (const id of await homeserver.mediaInRoom(room)) ids.add(id);
    for (const { content } of (await operator.roomState(room)) ?? []) {
      for (const uri of [content["avatar_url"], content["url"]]) {
        const id = mediaIdIn(uri, partner);
        if (id !== undefined) ids.add(id);
      }
    }
  });
  const found = await mapConcurrent([...ids].sort(), ROOMS_AT_ONCE, (id) => homeserver.file(id));
  return found.filter((file) => file !== undefined);
}

/** What would go now and was not shown, as words for a person; empty when nothing. */
export function beyondWhatWasShown(shown: PurgePlan, now: PurgePlan): readonly string[] {
  const files = new Map(shown.media.files.map((file) => [file.media_id, file.quarantined]));
  const newFiles = now.media.files.filter(
    ({ media_id, quarantined }) => !files.has(media_id) || (quarantined && files.get(media_id) === false),
  );
  const isMoreOfOthers = (now.media.other_files ?? 0) > (shown.media.other_files ?? 0);
  const rooms = new Map(shown.rooms.map((room) => [room.room, room]));
  return [
    ...(newFiles.length > 0 ? [`${newFiles.length} cached files more, or newly in quarantine`] : []),
    ...(isMoreOfOthers ? ["cached files of other servers"] : []),
    ...now.rooms.filter((room) => isMore(rooms.get(room.room), room)).map(({ room }) => `room ${room}`),
  ];
}

/** What was shown and the record no longer asks for, as words for a person; empty when nothing. */
export function noLongerAsked(shown: PurgePlan, { duties }: PrivateRecord): readonly string[] {
  const { remoteMedia, quarantinedMedia, rooms } = duties.purge;
  const asked = new Map(rooms.map(({ room, how }) => [room, how]));
  const isReleased = shown.media.files.some(({ quarantined }) => quarantined);
  return [
    ...(shown.media.purge && remoteMedia === "keep" ? ["cached files"] : []),
    ...(isReleased && quarantinedMedia === "keep" ? ["files in quarantine"] : []),
    ...shown.rooms.filter(({ room, how }) => asked.get(room) !== how).map(({ room }) => `room ${room}`),
  ];
}

const isMore = (shown: PlannedRoom | undefined, now: PlannedRoom): boolean =>
  now.how !== shown?.how ||
  (["own", "partner", "others"] as const).some((whose) => now.events[whose] > shown.events[whose]) ||
  now.local_members > shown.local_members ||
  now.other_servers.some((server) => !shown.other_servers.includes(server));

/** @throws RangeError for a room ID that a plan of ours cannot hold */
export function roomOf(planned: PlannedRoom) {
  const room = roomOfVisibleId(planned.room);
  if (room === undefined) throw new RangeError("a plan holds room IDs");
  return room;
}
