// Purges what a dry run has shown, and proves it by counts before and after.
// Invariants: nothing goes that was not shown; each step is remembered once it is verified, so that a purge
// that was cut off goes on where it was; evidence is made once, when everything is verified.
import { DrawbridgeError } from "../../../domain/errors.ts";
import { recordOfRun } from "../private-record/file.ts";
import type { PrivateRecord } from "../private-record/schema.ts";
import { addDutiesEvidence, type Run, readStage, runFile } from "../run/run-file.ts";
import { purgeEvidence } from "./purge-evidence.ts";
import {
  type BegunPurge,
  beyondWhatWasShown,
  noLongerAsked,
  type PlannedRoom,
  type PurgePlan,
  PurgeState,
  planPurge,
  roomOf,
} from "./purge-plan.ts";
import { countEvents, type DutiesContext, type DutiesSession, withDuties } from "./session.ts";

const FILE = "purge.json";
const POLL_MS = 200;
const IDLE_POLLS = 10;
const DELETIONS_MAX = 3;
const STEP_MAX_MS = 3_600_000;
const READ_LOG = "Read the homeserver's log at this time";

export function readPurge(run: Run): PurgeState | undefined {
  return run.state.read(PurgeState, runFile(run.run, FILE));
}

function write(run: Run, state: PurgeState): void {
  run.state.write(runFile(run.run, FILE), state);
}

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
    write(run, { version: 1, plan, begun: null, done: null });
    return plan;
  });
}

function refuseWhileUnderWay(run: Run): PurgeState | undefined {
  const known = readPurge(run);
  if (known?.begun == null || known.done !== null) return known;
  throw new DrawbridgeError("usage", "a purge of this run is under way", {
    hint: `End it first: drawbridge offboarding purge … --confirm ${known.plan.digest}`,
  });
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
      const begun = known.begun ?? (await begin(session, run, record, known));
      return finish(session, run, record, known.plan, await goOn(session, run, known.plan, begun));
    });
  });
}

function requireNone(what: string, found: readonly string[]): void {
  if (found.length === 0) return;
  throw new DrawbridgeError("usage", `${what}: ${found.join(", ")}`, {
    hint: "Run drawbridge offboarding purge without --confirm again, and read it. Nothing was purged.",
  });
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
  write(run, { version: 1, plan, begun, done: null });
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
    if (status === "failed") throw notGone(`the history of ${room}`, READ_LOG);
  }
  const { partner, others } = await countEvents(session, room, untilMs);
  return partner + others;
}

async function poll(clock: DutiesSession["clock"], what: string, isDone: () => Promise<boolean>) {
  const deadline = clock.now() + STEP_MAX_MS;
  while (!(await isDone())) {
    if (clock.now() > deadline) throw notGone(what, "The homeserver is still at work on it");
    await clock.sleep(POLL_MS);
  }
}

function notGone(what: string, why: string): DrawbridgeError {
  return new DrawbridgeError("program_failed", `not purged yet: ${what}`, {
    hint: `${why}; then run the same command again: it goes on where it was.`,
  });
}

async function finish(
  session: DutiesSession,
  run: Run,
  record: PrivateRecord,
  plan: PurgePlan,
  begun: BegunPurge,
): Promise<PurgeState> {
  const after = (await session.tables?.counts()) ?? null;
  const isDestination = await session.homeserver.isDestination();
  const at = new Date(session.clock.now()).toISOString();
  const { backups } = record.duties;
  const items =
    plan.media.purge || plan.rooms.length > 0
      ? purgeEvidence({ plan, begun, after, isDestination, at, backups })
      : [];
  const state: PurgeState = { version: 1, plan, begun, done: { at, after, items: [...items] } };
  write(run, state);
  addDutiesEvidence(run, items);
  return state;
}
