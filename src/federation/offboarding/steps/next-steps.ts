// Where a run stands, and whose turn it is, from the run's files alone.
// Invariants: a state is never stored; a stage is opened only after both have signed the one before it, or, where somebody
// gives a reason to skip the countersignature, after every one before it was shown closed here.
import { isSettled } from "../../../records/conditions/evaluate.ts";
import { STAGE_NAMES, type StageName } from "../../../records/format/stages.ts";
import type { TrustedParty } from "../../../records/format/trust.ts";
import { placeOf } from "../../../records/verify/verify-stage.ts";
import { removalStep, type Since } from "../../workflow/procedure.ts";
import { containedAt, readStage, readWaivers, type StageProgress, type StageProof } from "../run/progress.ts";
import { counterpartyIn, type Run } from "../run/run-file.ts";
import { envelopeAt, readStatements, signingKeyOf } from "../run/statements.ts";

/** `closing`: begun, and not known to be committed; `proving`: closed, and not shown yet. */
export type StageState = "pending" | "closing" | "proving" | "proved" | "signed" | "countersigned";
export type OtherState = "unknown" | "signed" | "countersigned";

export interface StageView {
  readonly stage: StageName;
  readonly own: Since<StageState>;
  readonly other: Since<OtherState>;
  readonly progress: StageProgress | undefined;
  readonly unwaived: StageProof["out_of_reach"];
}

export type RunView = Readonly<ReturnType<typeof viewOf>>;

export function viewOf(run: Run, parties: readonly TrustedParty[]) {
  const statements = readStatements(run);
  const waivers = readWaivers(run);
  const other = counterpartyIn(run);
  /** How far a statement is signed: by its maker, and by the other organisation besides; undefined: not at all. */
  const signed = (place: string, maker: string, second: string) => {
    const envelope = envelopeAt(statements, place);
    const first = signingKeyOf(envelope, maker, parties);
    if (first === undefined) return undefined;
    const counter = signingKeyOf(envelope, second, parties);
    const since = statements.since[`${place} ${counter ?? first}`] ?? null;
    return { state: counter === undefined ? "signed" : "countersigned", since } as const;
  };
  const stages = STAGE_NAMES.map((stage): StageView => {
    const progress = readStage(run, stage);
    const unwaived = unwaivedIn(run, progress, waivers);
    const own = signed(placeOf({ organisation: run.self, stage }), run.self, other);
    const theirs = signed(placeOf({ organisation: other, stage }), other, run.self);
    return {
      ...{ stage, progress, unwaived },
      own: own ?? unsignedState(run, stage, progress, unwaived),
      other: theirs ?? { state: "unknown", since: null },
    };
  });
  const unstated = { state: "none", since: null } as const;
  const completion = signed("completion", run.remover, run.partner) ?? unstated;
  return { run, stages, completion, containedAt: containedAt(run), statements, waivers };
}

export function unwaivedIn(
  run: Run,
  progress: StageProgress | undefined,
  waivers = readWaivers(run),
): StageProof["out_of_reach"] {
  return (progress?.proof?.out_of_reach ?? []).filter(({ subject }) => !waivers.has(subject));
}

function unsignedState(
  run: Run,
  stage: StageName,
  progress: StageProgress | undefined,
  unwaived: StageView["unwaived"],
): StageView["own"] {
  if (progress === undefined) return { state: "pending", since: null };
  const { proof, opened_at: openedAt, commit } = progress;
  if (proof?.conditions.every(isSettled) && unwaived.length === 0) {
    return { state: "proved", since: proof.at };
  }
  if (removalStep(run.kind, stage).edit !== null && commit === null)
    return { state: "closing", since: openedAt };
  return { state: "proving", since: proof?.at ?? openedAt };
}

export interface Waiting {
  readonly for: string;
  readonly what: "countersignature" | "statement" | "completion" | "completion_countersignature";
  readonly stage: StageName | null;
  readonly since: string | null;
}

export function waitedFor({ what, stage }: Waiting): string {
  return `${what.replaceAll("_", " ")}${stage === null ? "" : ` of ${stage}`}`;
}

export interface Steps {
  readonly ended: "completed" | "aborted" | null;
  readonly contain: boolean;
  readonly work: StageName | null;
  readonly sign: readonly StageName[];
  readonly countersign: readonly (StageName | "completion")[];
  /** The completion is to be stated; or both have signed it, and a kill has kept the record from being written. */
  readonly complete: boolean;
  readonly waiting: Waiting | null;
}

const NO_STEPS: Steps = {
  ...{ ended: null, contain: false, work: null, sign: [], countersign: [], complete: false, waiting: null },
};

/** @param skips whether the next stage may be opened before both have signed the one before it; it is shown all the same */
export function nextStepsOf(view: RunView, skips = false): Steps {
  const { run, stages, completion } = view;
  if (run.ended !== null) return { ...NO_STEPS, ended: run.ended.how };
  const isRemover = run.self === run.remover;
  const contain = run.kind === "emergency" && view.containedAt === null;
  const countersign: (StageName | "completion")[] = stages
    .filter(({ other }) => other.state === "signed")
    .map(({ stage }) => stage);
  if (!isRemover && completion.state === "signed") countersign.push("completion");
  const work = contain ? null : workOf(stages, skips);
  const sign = signableOf(stages);
  const isStated = isRemover && completion.state === "none" && stages.every(isSignedByBoth);
  const complete = completion.state === "countersigned" || isStated;
  const isBusy = contain || work !== null || sign.length > 0 || countersign.length > 0 || complete;
  const waiting = isBusy ? null : waitingOf(view);
  return { ended: null, contain, work, sign, countersign, complete, waiting };
}

export function isSignedByBoth({ own, other }: StageView): boolean {
  return own.state === "countersigned" && other.state === "countersigned";
}

function workOf(stages: readonly StageView[], skips: boolean): StageName | null {
  const begun = stages.find(({ own }) => own.state === "closing" || own.state === "proving");
  const pending = stages.findIndex(({ own }) => own.state === "pending");
  const before = stages[pending - 1];
  const mayOpen = before === undefined || skips || isSignedByBoth(before);
  const opens = mayOpen ? stages[pending] : undefined;
  return (begun ?? opens)?.stage ?? null;
}

function signableOf(stages: readonly StageView[]): readonly StageName[] {
  const end = stages.findIndex(({ own }) => !["proved", "signed", "countersigned"].includes(own.state));
  return stages
    .slice(0, end < 0 ? undefined : end)
    .filter(({ own }) => own.state === "proved")
    .map(({ stage }) => stage);
}

function waitingOf({ run, stages, completion }: RunView): Waiting {
  const other = counterpartyIn(run);
  const open = stages.find((stage) => !isSignedByBoth(stage));
  if (open !== undefined) {
    const what = open.own.state === "signed" ? "countersignature" : "statement";
    return { for: other, what, stage: open.stage, since: open.own.since };
  }
  return {
    for: other,
    what: completion.state === "none" ? "completion" : "completion_countersignature",
    stage: null,
    since: completion.since ?? stages.at(-1)?.other.since ?? null,
  };
}
