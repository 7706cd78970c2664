// Purges what a dry run has shown, and proves it by counts before and after. Invariants: nothing goes that was not shown; each
// step is remembered once it is verified, so that a purge that was cut off goes on where it was; evidence is made once, when
// everything is verified; what the homeserver cannot delete is named by one item that somebody has to answer for.
import { DrawbridgeError } from "../../../domain/errors.ts";
import { KEPT_BY_CONTRACT, operatorItem } from "../../../records/format/evidence-item.ts";
import { pollUntil } from "../../../runtime/concurrency.ts";
import type { PrivateRecord } from "../private-record/schema.ts";
import { recordOfRun } from "../run/context.ts";
import { addDutiesEvidence, type Run, readStage, runFile } from "../run/run-file.ts";
import {
  type BegunPurge,
  beyondWhatWasShown,
  NOT_READ,
  noLongerAsked,
  type PlannedRoom,
  type PurgePlan,
  PurgeState,
  planPurge,
  roomOf,
} from "./purge-plan.ts";
import { countEvents, type DutiesContext, type DutiesSession, withDuties } from "./session.ts";

const FILE = "purge.json";
const STEP = { withinMs: 3_600_000, everyMs: 200 };
const IDLE_POLLS = 10;
const DELETIONS_MAX = 3;
const READ_LOG = "Read the homeserver's log at this time";

export const readPurge = (run: Run) => run.state.read(PurgeState, runFile(run.run, FILE));

/** Shows and remembers what a purge would delete. @throws DrawbridgeError `usage` during one; RecordError */
export async function dryRun(context: DutiesContext, run: Run): Promise<PurgePlan> {
  const { clock } = context;
  refuseWhileUnderWay(run);
  // A purge that begins meanwhile would be forgotten by what is written here.
  return run.state.locked(`purge ${run.run}`, clock, async () => {
    const known = refuseWhileUnderWay(run);
    // Of a purge that was cut off between its end and its evidence.
    if (known?.done != null) addDutiesEvidence(run, known.done.items);
    const record = recordOfRun(run);
    const atMs = clock.now();
    const plan = await withDuties(context, run, (session) => planPurge(session, run.run, record, { atMs }));
    run.state.write(runFile(run.run, FILE), { version: 1, plan, begun: null, done: null });
    return plan;
  });
}

function refuseWhileUnderWay(run: Run): PurgeState | undefined {
  const known = readPurge(run);
  if (known?.begun == null || known.done !== null) return known;
  const hint = `End it first: drawbridge offboarding purge … --confirm ${known.plan.digest}`;
  throw new DrawbridgeError("usage", "a purge of this run is under way", { hint });
}

/** Purges what the dry run of this digest has shown, or goes on with that. @throws DrawbridgeError `usage` if more would go */
export async function runPurge(context: DutiesContext, run: Run, digest: string): Promise<PurgeState> {
  return run.state.locked(`purge ${run.run}`, context.clock, async () => {
    const known = readPurge(run);
    if (known?.plan.digest !== digest) {
      throw new DrawbridgeError("usage", "this is not the digest of the last dry run", {
        hint: "Run drawbridge offboarding purge without --confirm, read it, and give the digest that it ends with.",
      });
    }
    if (known.done !== null) {
      addDutiesEvidence(run, known.done.items);
      return known;
    }
    // What is purged too early could still come in again.
    if (readStage(run, "data_duties") === undefined) {
      const what = "the planes are not all closed and signed yet: nothing was purged";
      const hint = "Go on with drawbridge offboarding next, until the stage data_duties is open.";
      throw new DrawbridgeError("usage", what, { hint });
    }
    const record = recordOfRun(run);
    return withDuties(context, run, async (session) => {
      const { plan } = known;
      const begun = await goOn(session, run, plan, known.begun ?? (await begin(session, run, record, known)));
      return finish(session, run, { plan, begun, backups: record.duties.backups });
    });
  });
}

function requireNone(what: string, found: readonly string[]): void {
  if (found.length === 0) return;
  const hint = "Run drawbridge offboarding purge without --confirm again, and read it. Nothing was purged.";
  throw new DrawbridgeError("usage", `${what}: ${found.join(", ")}`, { hint });
}

async function begin(session: DutiesSession, run: Run, record: PrivateRecord, { plan }: PurgeState) {
  requireNone("the record no longer has this purged", noLongerAsked(plan, record));
  const atMs = Date.parse(plan.at);
  const now = await planPurge(session, run.run, record, { atMs, beforeMs: plan.media.before_ms });
  requireNone("more would go than was shown", beyondWhatWasShown(plan, now));
  const before = (await session.tables?.counts()) ?? null;
  const at = new Date(session.clock.now()).toISOString();
  return remember(run, plan, { at, before, media_done: false, rooms: [], under_way: {} });
}

function remember(run: Run, plan: PurgePlan, begun: BegunPurge): BegunPurge {
  run.state.write(runFile(run.run, FILE), { version: 1, plan, begun, done: null });
  return begun;
}

async function goOn(session: DutiesSession, run: Run, plan: PurgePlan, known: BegunPurge) {
  let begun = known;
  // Files go first, because a room's events name the files in it.
  if (!begun.media_done) {
    await purgeMedia(session, plan);
    begun = remember(run, plan, { ...begun, media_done: true });
  }
  for (const [index, planned] of plan.rooms.entries()) {
    const { room, how, events } = planned;
    if (begun.rooms.some((done) => done.room === room)) continue;
    session.say(`room ${index + 1} of ${plan.rooms.length}: ${room} (${how})`);
    const isBegun = (id: string) => {
      begun = remember(run, plan, { ...begun, under_way: { ...begun.under_way, [room]: id } });
    };
    const after =
      how === "room"
        ? await purgeRoom(session, planned)
        : await purgeHistory(session, planned, Date.parse(plan.at), begun.under_way[room], isBegun);
    const before = events.own + events.partner + events.others;
    begun = remember(run, plan, { ...begun, rooms: [...begun.rooms, { room, how, before, after }] });
  }
  return begun;
}

async function purgeMedia({ homeserver, say }: DutiesSession, { media }: PurgePlan): Promise<void> {
  const { files, before_ms: beforeMs } = media;
  if (!media.purge || beforeMs === null) return;
  say(`${files.length} cached files`);
  const find = (mediaId: string) => homeserver.file(decodeURIComponent(mediaId));
  for (const { media_id, quarantined } of files) {
    // The file may have been quarantined again in the meantime, or released before a crash.
    if (quarantined && (await find(media_id))?.isQuarantined === true) {
      await homeserver.releaseFromQuarantine(decodeURIComponent(media_id));
    }
  }
  await homeserver.purgeMediaCache(beforeMs);
  let left = 0;
  for (const { media_id } of files) if ((await find(media_id)) !== undefined) left += 1;
  const why = "They were used since the dry run, or are in quarantine";
  if (left > 0) throw notGone(`${left} of ${files.length} cached files`, why);
}

async function purgeRoom({ operator, clock }: DutiesSession, planned: PlannedRoom): Promise<number> {
  const room = roomOf(planned);
  const isGone = async () => (await operator.roomState(room)) === undefined;
  // A deletion fails while somebody of ours joins or speaks; the room is blocked by then, so the next goes on.
  for (let attempt = 0; attempt < DELETIONS_MAX && !(await isGone()); attempt++) {
    await operator.deleteRoom(room, true);
    let idle = 0;
    await poll(clock, `room ${room}`, async () => {
      // Between two of its steps a deletion is listed as none.
      idle = (await operator.deletion(room)) === "running" ? 0 : idle + 1;
      return idle >= IDLE_POLLS || (await isGone());
    });
  }
  if (await isGone()) return 0;
  throw notGone(`room ${room}`, READ_LOG);
}

/** @returns how many events of others stay: state, and the room's last event */
async function purgeHistory(
  session: DutiesSession,
  planned: PlannedRoom,
  untilMs: number,
  underWay: string | undefined,
  begun: (id: string) => void,
): Promise<number> {
  const { homeserver, clock } = session;
  const room = roomOf(planned);
  const known = underWay === undefined ? undefined : await homeserver.historyPurge(underWay);
  const isOver = known === undefined || known === "failed";
  const id = isOver ? await homeserver.purgeHistory(room, untilMs) : underWay;
  if (id !== undefined) {
    begun(id);
    let status: string | undefined;
    await poll(clock, `the history of ${room}`, async () => {
      status = await homeserver.historyPurge(id);
      return status !== "active";
    });
    // One that the homeserver no longer knows may not have ended: the next run begins it anew.
    if (status !== "complete") throw notGone(`the history of ${room}`, READ_LOG);
  }
  const { partner, others } = await countEvents(session, room, untilMs);
  return partner + others;
}

async function poll(clock: DutiesSession["clock"], what: string, isDone: () => Promise<boolean>) {
  if (await pollUntil(clock, STEP, isDone, (done) => done)) return;
  throw notGone(what, "The homeserver is still at work on it");
}

function notGone(what: string, why: string): DrawbridgeError {
  const hint = `${why}; then run the same command again: it goes on where it was.`;
  return new DrawbridgeError("program_failed", `not purged yet: ${what}`, { hint });
}

type Backups = PrivateRecord["duties"]["backups"];
type Purged = Readonly<{ plan: PurgePlan; begun: BegunPurge; backups: Backups }>;
type PurgeOutcome = Purged & Readonly<{ after: BegunPurge["before"]; isDestination: boolean; at: string }>;

async function finish(session: DutiesSession, run: Run, purged: Purged): Promise<PurgeState> {
  const { plan, begun } = purged;
  const after = (await session.tables?.counts()) ?? null;
  const isDestination = await session.homeserver.isDestination();
  const at = new Date(session.clock.now()).toISOString();
  const isAsked = plan.media.purge || plan.rooms.length > 0 || notRead(plan).length > 0;
  const items = isAsked ? purgeEvidence({ ...purged, after, isDestination, at }) : [];
  const state: PurgeState = { version: 1, plan, begun, done: { at, after, items: [...items] } };
  run.state.write(runFile(run.run, FILE), state);
  addDutiesEvidence(run, items);
  return state;
}

type Finding = Parameters<typeof operatorItem>[1];

/** Rows that stay only because rooms stay, as the record says. */
const GONE_WITH_ROOMS = new Set(["events", "room_memberships", "receipts_linearized", "destination_rooms"]);
const MEDIA_TABLES = new Set(["remote_media_cache", "remote_media_cache_thumbnails"]);
/** The subject that a waiver names. */
export const NOT_PURGEABLE = "rows_not_purgeable";

function purgeEvidence(outcome: PurgeOutcome) {
  const { plan, begun, after, at, backups } = outcome;
  const { media, partner } = plan;
  // Rooms are where the data came from; no plane is closed by deleting it.
  const item = (probe: string, references: readonly string[], more: Partial<Finding> = {}) =>
    operatorItem(Date.parse(at), {
      ...{ plane: "rooms", partner, subject: partner, verdict: "closed", layer: "homeserver" },
      ...{ probe, references: [...references], ...more },
    });
  const mediaCounts = [
    `files=${media.files.length}`,
    `released_from_quarantine=${media.files.filter(({ quarantined }) => quarantined).length}`,
    `kept_in_quarantine=${media.kept_in_quarantine}`,
    `other_servers_files=${media.other_files ?? "unknown"}`,
  ];
  const kept = media.purge ? null : KEPT_BY_CONTRACT;
  const items = [item("purge_media", [plan.digest, ...mediaCounts], { reason: kept })];
  for (const { room: subject, how, before, after: events } of begun.rooms) {
    const ofPartner = plan.rooms.find(({ room }) => room === subject)?.events.partner ?? 0;
    // What is left is of others: purging history leaves state and the last event.
    const counts = [`events_before=${before}`, `partner_events_before=${ofPartner}`];
    const references = [plan.digest, ...counts, `events_after=${events}`];
    items.push(item(how === "room" ? "purge_room" : "purge_history", references, { subject }));
  }
  const stays = plan.staying.filter(({ events, reason }) => (events ?? 0) > 0 && reason !== NOT_READ);
  if (stays.length > 0) {
    const isAgreed = stays.every(({ reason }) => reason === KEPT_BY_CONTRACT);
    const events = stays.reduce((sum, one) => sum + (one.events ?? 0), 0);
    const reason = isAgreed ? KEPT_BY_CONTRACT : "not_named_in_the_record";
    items.push(item("history_kept", [`rooms=${stays.length}`, `partner_events=${events}`], { reason }));
  }
  if (begun.before !== null && after !== null) {
    items.push(item("rows_before", rows(begun.before), { layer: "database" }));
    items.push(item("rows_after", rows(after), { layer: "database" }));
  }
  const left = leftOver(outcome);
  if (left.length > 0) {
    const about = { subject: NOT_PURGEABLE, verdict: "unknown", reason: "no_admin_interface" } as const;
    items.push(item("rows_left", left, { ...about, layer: after === null ? "homeserver" : "database" }));
  }
  // The owner attests it; nobody has observed it.
  const attested = { vantage: "nobody", layer: "attestation", reason: "attested" } as const;
  return [...items, item("backup_expiry", [`owner=${backups.owner}`, `by=${backups.expireBy}`], attested)];
}

const rows = (counts: Readonly<Record<string, number>>): string[] =>
  Object.entries(counts).map(([table, n]) => `${table}=${n}`);

const notRead = ({ staying }: PurgePlan) => staying.filter(({ reason }) => reason === NOT_READ);

/** What stays against the record's will, however little, because no interface of the homeserver can delete it. */
export function leftOver({ plan, begun, after, isDestination }: PurgeOutcome): string[] {
  const history = begun.rooms.filter(({ how, after: n }) => how === "history" && n > 0);
  const unread = notRead(plan).map(({ subject, events }) => `${subject}=${events ?? "unknown"}`);
  const found = [...unread, ...history.map(({ room, after: n }) => `${room}=${n}`)].slice(0, 200);
  if (after === null) {
    if (plan.media.purge && !plan.media.is_whole) found.push("media_of_encrypted_rooms=unknown");
    return [...found, "device_lists_remote_cache=unknown", ...(isDestination ? ["destinations=1"] : [])];
  }
  const roomsStay = plan.staying.some(({ events }) => events !== null) || history.length > 0;
  for (const [table, n] of Object.entries(after)) {
    if (n === 0 || (GONE_WITH_ROOMS.has(table) && roomsStay)) continue;
    const isKept = MEDIA_TABLES.has(table) && (!plan.media.purge || plan.media.kept_in_quarantine > 0);
    if (!isKept) found.push(`${table}=${n}`);
  }
  return found;
}
