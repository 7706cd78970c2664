// Purges what a dry run has shown, and leaves counts before and after as evidence.
// Invariants: nothing goes that was not shown; each step is remembered once it is verified, so that a purge that was cut
// off goes on where it was; evidence is made once, when everything is verified; what the homeserver cannot delete is named
// by one item that somebody has to answer for.
import { z } from "zod";
import { DrawbridgeError } from "../../../domain/errors.ts";
import {
  EvidenceItem,
  type EvidenceItemBody,
  KEPT_BY_CONTRACT,
  operatorItem,
} from "../../../records/format/evidence-item.ts";
import { recordOfRun } from "../private-record/consistency.ts";
import type { PrivateRecord } from "../private-record/schema.ts";
import { addDutiesEvidence, readStage } from "../run/progress.ts";
import { type Run, runFile } from "../run/run-file.ts";
import { type DutiesContext, type DutiesSession, withDuties } from "./homeserver-data.ts";
import { type PlannedRoom, PurgePlan, planPurge, purgesAnything, roomOf } from "./purge-plan.ts";

const PurgeState = z.strictObject({
  version: z.literal(1),
  plan: PurgePlan,
  begun: z
    .strictObject({
      media_done: z.boolean(),
      /** Those that are gone. */
      rooms: z.array(z.string()),
    })
    .nullable(),
  done: z.strictObject({ items: z.array(EvidenceItem) }).nullable(),
});
export type PurgeState = z.output<typeof PurgeState>;
interface BegunPurge extends PurgeState {
  readonly begun: NonNullable<PurgeState["begun"]>;
}

const FILE = "purge.json";
const POLL_MS = 200;
const IDLE_POLLS = 10;
const DELETIONS_MAX = 3;
const STEP_MAX_MS = 3_600_000;

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
    const plan = await withDuties(context, run, (session) => planPurge(session, run.run, record));
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

/**
 * Purges what the dry run of this digest has shown. Doing it again goes on with it, or changes nothing.
 * @throws DrawbridgeError `usage` when it is not that, or no longer; as the homeserver does
 */
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
      return finish(session, run, record, await goOn(session, run, { ...known, begun }));
    });
  });
}

async function begin(
  session: DutiesSession,
  run: Run,
  record: PrivateRecord,
  known: PurgeState,
): Promise<BegunPurge["begun"]> {
  const now = await planPurge(session, run.run, record, known.plan);
  if (now.digest !== known.plan.digest) {
    throw new DrawbridgeError("usage", "what would go is not what was shown any more", {
      hint: "Run drawbridge offboarding purge without --confirm again, and read it. Nothing was purged.",
    });
  }
  const begun = { media_done: false, rooms: [] };
  write(run, { ...known, begun });
  return begun;
}

async function goOn(session: DutiesSession, run: Run, known: BegunPurge): Promise<BegunPurge> {
  const { plan } = known;
  let { begun } = known;
  const remember = (more: Partial<BegunPurge["begun"]>) => {
    begun = { ...begun, ...more };
    write(run, { ...known, begun });
  };
  // Files go first, because a room's events name the files in it.
  if (!begun.media_done) {
    await purgeMedia(session, plan);
    remember({ media_done: true });
  }
  for (const [index, planned] of plan.rooms.entries()) {
    const { room } = planned;
    if (begun.rooms.includes(room)) continue;
    session.say(`room ${index + 1} of ${plan.rooms.length}: ${room}`);
    await purgeRoom(session, planned);
    remember({ rooms: [...begun.rooms, room] });
  }
  return { ...known, begun };
}

async function purgeMedia({ homeserver, partner, say }: DutiesSession, { media }: PurgePlan): Promise<void> {
  const { files, before_ms: beforeMs } = media;
  if (!media.purge || beforeMs === null) return;
  say(`${files.length} cached files`);
  await homeserver.purgeMediaCache(beforeMs);
  let left = 0;
  for (const file of files)
    if ((await homeserver.media(partner, decodeURIComponent(file))) !== undefined) left += 1;
  const why = "They were used since the dry run, or are in quarantine";
  if (left > 0) throw notGone(`${left} of ${files.length} cached files`, why);
}

async function purgeRoom({ operator, clock }: DutiesSession, planned: PlannedRoom): Promise<void> {
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
  if (!(await isGone())) throw notGone(`room ${room}`, "Read the homeserver's log at this time");
}

async function poll(
  clock: DutiesSession["clock"],
  what: string,
  isDone: () => Promise<boolean>,
): Promise<void> {
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
  state: BegunPurge,
): Promise<PurgeState> {
  const isDestination = await session.homeserver.isDestination(session.partner);
  const end = { isDestination, atMs: session.clock.now(), backups: record.duties.backups };
  const items = purgesAnything(state.plan) ? purgeEvidence(state.plan, end) : [];
  const done = { ...state, done: { items: [...items] } };
  write(run, done);
  addDutiesEvidence(run, items);
  return done;
}

export const NOT_PURGEABLE = "rows_not_purgeable";

interface PurgeEnd {
  readonly isDestination: boolean;
  readonly atMs: number;
  readonly backups: PrivateRecord["duties"]["backups"];
}

function purgeEvidence(plan: PurgePlan, end: PurgeEnd): readonly EvidenceItem[] {
  const { atMs, backups } = end;
  const { media, partner } = plan;
  // Rooms are where the data came from; no plane is closed by deleting it.
  const item = (probe: string, references: readonly string[], more: Partial<EvidenceItemBody> = {}) =>
    operatorItem(atMs, {
      ...{ plane: "rooms", partner, subject: partner, verdict: "closed", layer: "homeserver" },
      ...{ probe, references: [...references], ...more },
    });
  const mediaCounts = [`files=${media.files.length}`, `kept_in_quarantine=${media.kept_in_quarantine}`];
  const kept = media.purge ? null : KEPT_BY_CONTRACT;
  const items = [item("purge_media", [plan.digest, ...mediaCounts], { reason: kept })];
  for (const { room: subject, events } of plan.rooms) {
    const before = events.own + events.partner + events.others;
    const counts = [`events_before=${before}`, `partner_events_before=${events.partner}`];
    items.push(item("purge_room", [plan.digest, ...counts], { subject }));
  }
  const stays = plan.staying.filter(({ events }) => (events ?? 0) > 0);
  if (stays.length > 0) {
    const events = stays.reduce((sum, one) => sum + (one.events ?? 0), 0);
    const counts = [`rooms=${stays.length}`, `partner_events=${events}`];
    items.push(item("history_kept", counts, { reason: "not_named_in_the_record" }));
  }
  const left = { subject: NOT_PURGEABLE, verdict: "unknown", reason: "no_admin_interface" } as const;
  // The owner attests the end of backups; nobody has observed it.
  const attested = { vantage: "nobody", layer: "attestation", reason: "attested" } as const;
  return [
    ...items,
    item("rows_left", leftOver(plan, end), left),
    item("backup_expiry", [`owner=${backups.owner}`, `by=${backups.expireBy}`], attested),
  ];
}

/** What stays against the record's will, or may, because nothing of the homeserver's can delete it. */
function leftOver({ media }: PurgePlan, { isDestination }: PurgeEnd): string[] {
  const quarantined = media.kept_in_quarantine;
  return [
    ...(media.purge ? ["media_of_encrypted_rooms=unknown"] : []),
    ...(quarantined > 0 ? [`media_in_quarantine=${quarantined}`] : []),
    "device_lists_remote_cache=unknown",
    ...(isDestination ? ["destinations=1"] : []),
  ];
}
