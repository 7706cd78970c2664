// Where a run stands, from its files alone. Pure but for reading them.
// Invariant: a state is never stored; it follows from what is there: a record, a commit, a proof, signatures.
import { z } from "zod";
import { Instant } from "../../../records/format/fields.ts";
import {
  PLANE_OF_STAGE,
  STAGE_NAMES,
  STAGES_LEFT_ALONE,
  type StageName,
} from "../../../records/format/stages.ts";
import type { TrustedParty } from "../../../records/format/trust.ts";
import { placeOf } from "../../../records/verify/stage.ts";
import { type Proof, readStage, readWaivers, type StageRecord, type Waiver } from "../run/progress.ts";
import { counterpartyOf, type Run, runFile } from "../run/run.ts";
import { envelopeAt, type Held, isSignedBy, readHeld, signedSince } from "../run/statements.ts";
import { allHold } from "../stages/judge.ts";

/** `closing`: begun, and not known to be committed; `proving`: closed, and not shown yet. */
export type StageState = "pending" | "closing" | "proving" | "proved" | "signed" | "countersigned";
/** What is known here of the other organisation's part. */
export type OtherState = "unknown" | "signed" | "countersigned";

export interface StageView {
  readonly stage: StageName;
  readonly own: { readonly state: StageState; readonly since: string | null };
  readonly other: { readonly state: OtherState; readonly since: string | null };
  readonly record: StageRecord | undefined;
  /** Out of reach, and waived by nobody yet. */
  readonly unwaived: Proof["outOfReach"];
}

export interface RunView {
  readonly run: Run;
  readonly stages: readonly StageView[];
  readonly completion: { readonly state: "none" | "signed" | "countersigned"; readonly since: string | null };
  /** Of an emergency: when the first four planes were closed at once; null before, and for other kinds. */
  readonly containedAt: string | null;
  readonly held: Held;
  readonly waivers: ReadonlyMap<string, Waiver>;
}

const CONTAINMENT = "containment.json";
const Containment = z.strictObject({ version: z.literal(1), at: Instant });

export function markContained(run: Run, at: string): void {
  run.state.write(runFile(run.run, CONTAINMENT), { version: 1, at });
}

export function isLeftAlone({ kind }: Pick<Run, "kind">, stage: StageName): boolean {
  return STAGES_LEFT_ALONE[kind].includes(stage);
}

export function viewOf(run: Run, parties: readonly TrustedParty[]): RunView {
  const held = readHeld(run);
  const waivers = readWaivers(run);
  const other = counterpartyOf(run);
  const stages = STAGE_NAMES.map((stage): StageView => {
    const record = readStage(run, stage);
    const unwaived = (record?.proof?.outOfReach ?? []).filter(({ subject }) => !waivers.has(subject));
    return {
      stage,
      own: ownState(run, stage, record, unwaived, held, parties),
      other: signedState(held, placeOf({ organisation: other, stage }), other, run.self, parties),
      record,
      unwaived,
    };
  });
  const completion = signedState(held, "completion", run.remover, run.partner, parties);
  return {
    run,
    stages,
    completion: { ...completion, state: completion.state === "unknown" ? "none" : completion.state },
    containedAt: run.state.read(Containment, runFile(run.run, CONTAINMENT))?.at ?? null,
    held,
    waivers,
  };
}

function ownState(
  run: Run,
  stage: StageName,
  record: StageRecord | undefined,
  unwaived: Proof["outOfReach"],
  held: Held,
  parties: readonly TrustedParty[],
): StageView["own"] {
  const place = placeOf({ organisation: run.self, stage });
  const signed = signedState(held, place, run.self, counterpartyOf(run), parties);
  if (signed.state !== "unknown") return { ...signed, state: signed.state };
  if (record === undefined) return { state: "pending", since: null };
  const { proof, openedAt, commit } = record;
  if (proof !== null && allHold(proof.conditions) && unwaived.length === 0) {
    return { state: "proved", since: proof.at };
  }
  const closes = PLANE_OF_STAGE[stage] !== null && !isLeftAlone(run, stage);
  if (closes && commit === null) return { state: "closing", since: openedAt };
  return { state: "proving", since: proof?.at ?? openedAt };
}

/** How far a statement is signed: by whose it is, and by the other one besides. */
function signedState(
  held: Held,
  place: string,
  maker: string,
  second: string,
  parties: readonly TrustedParty[],
): StageView["other"] {
  const envelope = envelopeAt(held, place);
  if (!isSignedBy(envelope, maker, parties)) return { state: "unknown", since: null };
  const last = isSignedBy(envelope, second, parties) ? second : maker;
  const since = signedSince(held, place, last, parties) ?? null;
  return { state: last === second ? "countersigned" : "signed", since };
}

// Whose turn it is, and what for. Pure.
// Invariants: a stage is opened only after both have signed the one before it, unless somebody gives a reason
// to go ahead; whoever waits is told for what, since when, and what the other one's command is.

export interface Waiting {
  readonly for: string;
  readonly what: "countersignature" | "statement" | "completion" | "completion_countersignature";
  readonly stage: StageName | null;
  readonly since: string | null;
}

export interface Moves {
  readonly ended: "completed" | "aborted" | null;
  /** The first four planes are closed at once, before anything else. */
  readonly contain: boolean;
  /** The stage of one's own to be closed or shown. */
  readonly work: StageName | null;
  /** Stages of one's own that can be signed. */
  readonly sign: readonly StageName[];
  /** Statements of the other's that wait for this organisation's signature: stages, or `completion`. */
  readonly countersign: readonly (StageName | "completion")[];
  readonly complete: boolean;
  readonly waiting: Waiting | null;
}

const SIGNED: readonly StageView["own"]["state"][] = ["signed", "countersigned"];

export function movesOf(view: RunView, ahead = false): Moves {
  const { run, stages, completion } = view;
  const isRemover = run.self === run.remover;
  const contain = run.kind === "emergency" && view.containedAt === null;
  const countersign: (StageName | "completion")[] = stages
    .filter(({ other }) => other.state === "signed")
    .map(({ stage }) => stage);
  if (!isRemover && completion.state === "signed") countersign.push("completion");
  const isWhole = stages.every(
    ({ own, other }) => own.state === "countersigned" && other.state === "countersigned",
  );
  const moves: Moves = {
    ended: run.ended?.how ?? null,
    contain,
    work: contain ? null : workOf(stages, ahead),
    sign: signableOf(stages),
    countersign,
    complete: isRemover && isWhole && completion.state === "none",
    waiting: null,
  };
  if (run.ended !== null) {
    return { ...moves, contain: false, work: null, sign: [], countersign: [], complete: false };
  }
  const isIdle = !moves.contain && moves.work === null && moves.sign.length === 0 && countersign.length === 0;
  return isIdle && !moves.complete ? { ...moves, waiting: waitingOf(view) } : moves;
}

function workOf(stages: readonly StageView[], ahead: boolean): StageName | null {
  const begun = stages.find(({ own }) => own.state === "closing" || own.state === "proving");
  const pending = stages.findIndex(({ own }) => own.state === "pending");
  const before = stages[pending - 1];
  const mayOpen =
    pending === 0 ||
    (pending > 0 &&
      (ahead || (before?.own.state === "countersigned" && before.other.state === "countersigned")));
  const opens = mayOpen ? stages[pending] : undefined;
  const chosen = ahead ? (opens ?? begun) : (begun ?? opens);
  return chosen?.stage ?? null;
}

/** Proved, and every stage before it signed or to be signed with it. */
function signableOf(stages: readonly StageView[]): readonly StageName[] {
  const end = stages.findIndex(({ own }) => own.state !== "proved" && !SIGNED.includes(own.state));
  return stages
    .slice(0, end < 0 ? undefined : end)
    .filter(({ own }) => own.state === "proved")
    .map(({ stage }) => stage);
}

function waitingOf({ run, stages, completion }: RunView): Waiting {
  const other = run.self === run.remover ? run.partner : run.remover;
  const open = stages.find(
    ({ own, other: theirs }) => own.state !== "countersigned" || theirs.state !== "countersigned",
  );
  if (open !== undefined) {
    const what = open.own.state === "signed" ? "countersignature" : "statement";
    return { for: other, what, stage: open.stage, since: open.own.since };
  }
  const last = stages.at(-1);
  return {
    for: other,
    what: completion.state === "none" ? "completion" : "completion_countersignature",
    stage: null,
    since: completion.since ?? last?.other.since ?? null,
  };
}
