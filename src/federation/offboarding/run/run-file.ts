// One removal as this organisation runs it, in a folder of its own below the state folder: how it is opened, and what is
// remembered of its stages before they are stated. Invariants: one run at a time for one counterparty; what a run is about
// never changes; it ends once; a stage's file is written before anything is changed; a proof may be replaced until a
// statement is made from it, an item of evidence never. No field holds content, a secret or a personal contact.
import { readdirSync } from "node:fs";
import { join } from "node:path";
import * as z from "zod";
import { DrawbridgeError } from "../../../domain/errors.ts";
import { Sha256Digest } from "../../../domain/identifier-fields.ts";
import { parseJson } from "../../../domain/json.ts";
import { DsseEnvelope, DsseEnvelopeDraft } from "../../../records/format/dsse-envelope.ts";
import { EvidenceItem, isIntact } from "../../../records/format/evidence-item.ts";
import { GitRevision, Identifier, Instant, Scope, Word } from "../../../records/format/fields.ts";
import { counterpartyOf, STAGE_NAMES, type StageName } from "../../../records/format/removal-stages.ts";
import { CompletionPredicate } from "../../../records/format/statements.ts";
import { ownerOf, type TrustedParty } from "../../../records/format/trust.ts";
import {
  byDigest,
  envelopesByPlace,
  type HeldStatements,
  isCompletion,
  makerOf,
  statementIn,
} from "../../../records/sign/export-and-import.ts";
import { scopeOf } from "../../probes/from-inside.ts";
import { acceptedState } from "../../reconcile/accept-head.ts";
import { type Federation, timestamp } from "../../reconcile/context.ts";
import { findPartner } from "../../registry/partner.ts";
import { damagedFile, type StateFolder } from "../../state/folder.ts";
import { removal } from "../../workflow/procedures.ts";
import { JudgedCondition } from "../../workflow/run-step.ts";

/** Names its subject exactly, and counts only once it stands in a signed statement. */
const Waiver = z.strictObject({
  subject: Identifier,
  /** Why the subject was out of reach when it was waived: another reason is not. */
  out_of_reach: z.array(Word),
  ...{ by: Identifier, reason: Word, at: Instant },
});

const Ended = z.strictObject({ how: z.enum(["completed", "aborted"]), reason: Word.nullable(), at: Instant });
const { run, kind, trigger, remover, partner } = CompletionPredicate.shape;

const RunFile = z.strictObject({
  ...{ version: z.literal(1), run, kind, trigger, remover, partner, self: remover },
  /** Outside version control; it never leaves this machine. */
  private_record_file: z.string().min(1),
  opened_at: Instant,
  /** What was declared when the run was opened: a removal that is not partial has to cover all of it. */
  baseline: z.strictObject({ revision: GitRevision, scope: Scope }),
  /** Of an emergency: when the first four planes were closed at once; null before, and for other kinds. */
  contained_at: Instant.nullable(),
  waivers: z.array(Waiver),
  ended: Ended.nullable(),
});
export type RunFile = z.output<typeof RunFile>;
export type Run = RunFile & { readonly state: StateFolder };
const FOLDER = "offboarding";
const RUN_FILE = "run.json";
export const RECORD_FILE = "record.json";

export const runFile = (run: string, name: string): string => `${FOLDER}/${run}/${name}`;

export const recordFileOf = ({ run, state }: Run): string => join(state.path, runFile(run, RECORD_FILE));

export const counterpartyIn = (run: Pick<RunFile, "self" | "remover" | "partner">): string =>
  counterpartyOf(run.self, run);

export function writeRun(state: StateFolder, file: RunFile): Run {
  state.write(runFile(file.run, RUN_FILE), file);
  return { ...file, state };
}

export const changeRun = (
  { state, ...file }: Run,
  change: Partial<Pick<RunFile, "contained_at" | "waivers" | "ended">>,
): Run => writeRun(state, { ...file, ...change });

/** Every run, the oldest first. @throws DrawbridgeError `state_unreadable` for a folder that may be an open removal */
export const listRuns = (state: StateFolder): readonly Run[] =>
  state
    .names(FOLDER, (entry) => !entry.isFile())
    .flatMap((name) => readRun(state, name) ?? [])
    .sort((left, right) => (left.opened_at < right.opened_at ? -1 : 1));

/** Undefined where a kill has kept a run from being opened. */
function readRun(state: StateFolder, name: string): Run | undefined {
  // No run can be read as long as one cannot, whoever it is with.
  const damaged = (path: string) => {
    const lost =
      "Without either, move its whole folder away: this removal cannot be finished then, others go on.";
    throw damagedFile(path, `Restore it from a backup, or use the version that wrote it. ${lost}`);
  };
  const file = state.read(RunFile, runFile(name, RUN_FILE), damaged);
  if (file?.run === name) return { ...file, state };
  const folder = join(state.path, FOLDER, name);
  if (!isBegun(folder)) return undefined;
  const what = file === undefined ? "has no run.json" : `is a copy of run ${file.run}`;
  const hint = "Put back what is missing from a backup, or move a copy out of there.";
  throw new DrawbridgeError("state_unreadable", `${folder} ${what}`, { hint });
}

/** Whether a folder holds more than what is written while a run is opened; one that cannot be read may. */
function isBegun(folder: string): boolean {
  try {
    return readdirSync(folder).some((name) => !name.startsWith(`${RUN_FILE}.`));
  } catch {
    return true;
  }
}

export const runsWith = (state: StateFolder, counterparty: string): readonly Run[] =>
  listRuns(state).filter((run) => counterpartyIn(run) === counterparty);

export const openRunWith = (state: StateFolder, counterparty: string): Run | undefined =>
  runsWith(state, counterparty).find(({ ended }) => ended === null);

/** By its ID, or the open one with a counterparty; unnamed, the only open one or else the last. @throws DrawbridgeError `usage` */
export function findRun(state: StateFolder, named?: string): Run {
  const runs = listRuns(state);
  const open = runs.filter(({ ended }) => ended === null);
  const found =
    named !== undefined
      ? [...runs.filter(({ run }) => run === named), ...open.filter((run) => counterpartyIn(run) === named)]
      : open.length === 0
        ? runs.slice(-1)
        : open;
  const [only, second] = found;
  if (only !== undefined && second === undefined) return only;
  const none = named === undefined ? "there is no run here" : `there is no run ${JSON.stringify(named)} here`;
  const choices = (second === undefined ? runs : found).map((run) => `${run.run} (${counterpartyIn(run)})`);
  const isAmbiguous = named === undefined && second !== undefined;
  const names = `Name one with --run-id: ${choices.join(", ")}.`;
  const hint = runs.length === 0 ? "Open one: drawbridge offboarding open." : names;
  throw new DrawbridgeError("usage", isAmbiguous ? "several runs are open" : none, { hint });
}

interface OpenRunOptions extends Pick<RunFile, "kind" | "trigger"> {
  readonly partner: string;
  readonly privateRecordFile: string;
  /** The ID that the other organisation has chosen: this one then joins its run, as the partner. */
  readonly run?: string | undefined;
}

/** Opens a run, or joins one. @throws DrawbridgeError `usage`, `config_invalid` */
export async function openRun(
  federation: Federation,
  { partner: named, kind, trigger, privateRecordFile, run: joined }: OpenRunOptions,
): Promise<Run> {
  if (kind === "emergency" && trigger !== "suspected_compromise") {
    const hint = "Use the kind full, or the trigger suspected_compromise; nothing was opened.";
    throw new DrawbridgeError("usage", "an emergency needs a suspected compromise", { hint });
  }
  if (joined !== undefined && !run.safeParse(joined).success) {
    const hint = "Ask the other organisation for it: 32 hexadecimal digits. Nothing was opened.";
    throw new DrawbridgeError("usage", `${JSON.stringify(joined)} is no run ID`, { hint });
  }
  const { clock, state, random } = federation;
  // An emergency is not kept from beginning by a head that may not be accepted; nothing of that one counts.
  const { desired } = await acceptedState(federation, removal(kind).onBadHead);
  const { partner } = findPartner(desired.registry, named);
  const own = desired.registry.organisation.serverName;
  const other = partner.serverName;
  return state.locked("offboarding", clock, async () => {
    const known = listRuns(state).find(({ run }) => run === joined);
    if (known !== undefined) {
      if (known.kind === kind && known.trigger === trigger && counterpartyIn(known) === other) return known;
      const hint = "Compare run, kind, trigger and partner with the other organisation; nothing was changed.";
      throw new DrawbridgeError("usage", `run ${known.run} exists already, and is another removal`, { hint });
    }
    const active = openRunWith(state, other);
    if (active !== undefined) {
      const hint = "Go on with it (drawbridge offboarding status), or end it (drawbridge offboarding abort).";
      throw new DrawbridgeError("usage", `run ${active.run} with ${other} is open already`, { hint });
    }
    return writeRun(state, {
      ...{ version: 1, run: joined ?? random.bytes(16).toString("hex"), kind, trigger, self: own },
      ...(joined === undefined ? { remover: own, partner: other } : { remover: other, partner: own }),
      ...{ private_record_file: privateRecordFile, opened_at: timestamp(clock.now()) },
      ...{ contained_at: null, waivers: [], ended: null },
      baseline: { revision: desired.revision, scope: scopeOf(federation.parts, partner, desired) },
    });
  });
}

const StageProof = z.strictObject({
  ...{ at: Instant, revision: GitRevision.nullable(), render: Sha256Digest.nullable() },
  conditions: z.array(JudgedCondition),
  out_of_reach: z.array(z.strictObject({ subject: Identifier, reason: Word, hint: z.string() })),
  ...{ items: z.array(EvidenceItem), attested: z.array(Word) },
});
export type StageProof = z.output<typeof StageProof>;
export type OutOfReach = Readonly<StageProof["out_of_reach"]>;

export const waiverOf = ({ waivers }: Run, { subject, reason }: Omit<OutOfReach[number], "hint">) =>
  waivers.find((one) => one.subject === subject && one.out_of_reach.includes(reason));

const StageProgress = z.strictObject({
  ...{ version: z.literal(1), stage: z.enum(STAGE_NAMES), opened_at: Instant },
  /** Why it was opened before both had signed the stage before it; null where both had. */
  countersignature_skipped: Word.nullable(),
  scope: Scope,
  /** The commit that closes the plane; null before it is known to be there, and where there is no plane. */
  commit: GitRevision.nullable(),
  proof: StageProof.nullable(),
});
export type StageProgress = z.output<typeof StageProgress>;

export const readStage = ({ run, state }: Run, stage: StageName): StageProgress | undefined =>
  state.read(StageProgress, runFile(run, `stages/${stage}.json`));

export function writeStage({ run, state }: Run, progress: StageProgress): StageProgress {
  // A file that cannot be read again would end the run for good.
  state.write(runFile(run, `stages/${progress.stage}.json`), StageProgress.parse(progress));
  return progress;
}

const DUTIES_FILE = "duties.json";
const DutiesFile = z.strictObject({ version: z.literal(1), items: z.array(EvidenceItem) });

/** Adds evidence of the data duties, an item once. @throws RangeError for one of another partner, or not intact */
export function addDutiesEvidence(run: Run, items: readonly EvidenceItem[]): void {
  const other = counterpartyIn(run);
  if (items.some((item) => item.partner !== other || !isIntact(item)))
    throw new RangeError("this evidence is not about the counterparty of the run, or not intact");
  const all = new Map([...readDutiesEvidence(run), ...items].map((item) => [item.digest, item]));
  run.state.write(runFile(run.run, DUTIES_FILE), { version: 1, items: [...all.values()] });
}

export const readDutiesEvidence = (run: Run): readonly EvidenceItem[] =>
  run.state.read(DutiesFile, runFile(run.run, DUTIES_FILE))?.items ?? [];

// The statements of a run, of both organisations, with their signatures and evidence. Invariants: a signature and what it
// signs are written together, with the time at which it was made or came in; none is ever made again or taken away.

const STATEMENTS_FILE = "statements.json";
const StatementsFile = z.strictObject({
  version: z.literal(1),
  envelopes: z.array(DsseEnvelope),
  evidence: z.array(EvidenceItem),
  /** By place and key ID: when that signature was made or came in. */
  since: z.record(z.string(), Instant),
});
export type RunStatements = z.output<typeof StatementsFile>;

/** What was read or written last in each state folder: the file is read again at every step, and holds all evidence. */
const lastRead = new WeakMap<StateFolder, { readonly text: string; readonly statements: RunStatements }>();

export function readStatements({ run, state }: Run): RunStatements {
  const none: RunStatements = { version: 1, envelopes: [], evidence: [], since: {} };
  const name = runFile(run, STATEMENTS_FILE);
  const text = state.readText(name);
  if (text === undefined) return none;
  const last = lastRead.get(state);
  if (last?.text === text) return last.statements;
  const statements = state.read(StatementsFile, name, undefined, text) ?? none;
  lastRead.set(state, { text, statements });
  return statements;
}

/** @param at when the signatures that are not in the file yet were made or came in */
export function writeStatements(run: Run, held: HeldStatements, at: string): void {
  const { envelopes, evidence } = held;
  const since = { ...readStatements(run).since };
  for (const [place, { signatures }] of envelopesByPlace(held)) {
    for (const { keyid } of signatures) since[`${place} ${keyid}`] ??= at;
  }
  const statements: RunStatements = { version: 1, envelopes: [...envelopes], evidence: [...evidence], since };
  const text = run.state.write(runFile(run.run, STATEMENTS_FILE), statements);
  lastRead.set(run.state, { text, statements });
}

/** Keeps a DSSE envelope in the place of what has the same payload, and evidence besides, an item once. */
export function keepEnvelope(run: Run, at: string, envelope: DsseEnvelope, items: readonly EvidenceItem[]) {
  const held = readStatements(run);
  const others = held.envelopes.filter((one) => one.payload !== envelope.payload);
  const evidence = [...byDigest([...held.evidence, ...items]).values()];
  writeStatements(run, { envelopes: [...others, envelope], evidence }, at);
}

/** The pinned key by which an organisation has signed a DSSE envelope; undefined when it has not. */
export const signingKeyOf = (
  envelope: DsseEnvelope | undefined,
  organisation: string,
  parties: readonly TrustedParty[],
) => envelope?.signatures.find(({ keyid }) => ownerOf(keyid, parties) === organisation)?.keyid;

/** The file of a statement to sign. `read` throws DrawbridgeError `state_unreadable` for one of another place or run. */
export function statementFile(run: Run, place: `own-${StageName}` | `other-${StageName}` | "completion") {
  const name = runFile(run.run, `statements/${place}.json`);
  const read = () => {
    const text = run.state.readText(name);
    const { data } = DsseEnvelopeDraft.safeParse(parseJson(text ?? ""));
    const statement = data && statementIn(data);
    if (statement === undefined) return text;
    const side = makerOf(statement) === run.self ? "own" : "other";
    const found = isCompletion(statement) ? "completion" : `${side}-${statement.predicate.stage}`;
    if (statement.predicate.run === run.run && found === place) return text;
    const hint = "Find out who put it there, and put back the one that was there.";
    const what = `${name} holds a statement of another run or place`;
    throw new DrawbridgeError("state_unreadable", what, { hint });
  };
  return { read, write: (text: string) => run.state.writeText(name, text) };
}
