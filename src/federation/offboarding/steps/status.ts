// Where a run stands, whose turn it is since when, and the exact next command on either side, from the run's files alone.
// Invariants: a state is never stored; a stage is opened only after both have signed the one before it, or, where somebody
// gives a reason to skip the countersignature, after every one before it was shown closed here.
import { shellWord } from "../../../domain/printable.ts";
import { isSettled } from "../../../records/conditions/evaluate.ts";
import { PARTS } from "../../../records/format/fields.ts";
import { PLANE_OF_STAGE, STAGE_NAMES, type StageName } from "../../../records/format/removal-stages.ts";
import type { Trust, TrustedParty } from "../../../records/format/trust.ts";
import { envelopesByPlace, makerOf, stagesIn, statementIn } from "../../../records/sign/export-and-import.ts";
import { waiverText } from "../../../records/verify/report.ts";
import { placeOf } from "../../../records/verify/verify-stages.ts";
import { plan } from "../../workflow/plan.ts";
import { labelOf, removal, removalStep, type Step, type StepStatus } from "../../workflow/procedures.ts";
import { blocksIn, type OffboardingContext, registryBefore, withRun } from "../run/context.ts";
import {
  counterpartyIn,
  type OutOfReach,
  type Run,
  readStage,
  readStatements,
  recordFileOf,
  type StageProgress,
  signingKeyOf,
  waiverOf,
} from "../run/run-file.ts";

/** `closing`: begun, and not known to be committed; `proving`: closed, and not shown yet. */
export type StageState = "pending" | "closing" | "proving" | "proved" | "signed" | "countersigned";

export type RunView = Readonly<ReturnType<typeof viewOf>>;
type StageView = Readonly<RunView["stages"][number]>;

export function viewOf(run: Run, parties: readonly TrustedParty[]) {
  const statements = readStatements(run);
  const byPlace = envelopesByPlace(statements);
  const counterparty = counterpartyIn(run);
  /** How far a statement is signed: by its maker, and by the other organisation besides; undefined: not at all. */
  const signed = (place: string, maker: string, second: string) => {
    const envelope = byPlace.get(place);
    const first = signingKeyOf(envelope, maker, parties);
    if (first === undefined) return undefined;
    const counter = signingKeyOf(envelope, second, parties);
    const since = statements.since[`${place} ${counter ?? first}`] ?? null;
    return { state: counter === undefined ? "signed" : "countersigned", since } as const;
  };
  const stages = STAGE_NAMES.map((stage) => {
    const progress = readStage(run, stage);
    const unwaived = unwaivedIn(run, progress?.proof?.out_of_reach);
    const ours = signed(placeOf({ organisation: run.self, stage }), run.self, counterparty);
    const theirs = signed(placeOf({ organisation: counterparty, stage }), counterparty, run.self);
    const own = ours ?? unsignedState(run, stage, progress, unwaived);
    const other = theirs ?? ({ state: "unknown", since: null } as const);
    return { stage, progress, unwaived, own, other };
  });
  const completion =
    signed("completion", run.remover, run.partner) ?? ({ state: "none", since: null } as const);
  return { run, stages, completion, statements };
}

export const unwaivedIn = (run: Run, outOfReach: OutOfReach = []): OutOfReach =>
  outOfReach.filter((one) => waiverOf(run, one) === undefined);

/** What the other organisation's statements leave out of reach, by whom and why it is waived, and whether we have signed that. */
const waivedByOther = ({ run, statements }: RunView, parties: readonly TrustedParty[]) =>
  [...envelopesByPlace(statements)].flatMap(([place, envelope]) => {
    const statement = statementIn(envelope);
    if (statement === undefined || makerOf(statement) === run.self) return [];
    const countersigned = signingKeyOf(envelope, run.self, parties) !== undefined;
    return statement.predicate.out_of_reach.map((one) => ({ place, ...one, countersigned }));
  });

/** A line for each waiver of the other organisation that the next signature here would answer for. */
export const waiverLines = (waived: ReturnType<typeof waivedByOther>): readonly string[] =>
  waived
    .filter(({ countersigned }) => !countersigned)
    .map((one) => `to be countersigned: ${one.place}: ${one.subject}: ${waiverText(one)}`);

function unsignedState(
  { kind }: Run,
  stage: StageName,
  progress: StageProgress | undefined,
  unwaived: OutOfReach,
): { readonly state: StageState; readonly since: string | null } {
  if (progress === undefined) return { state: "pending", since: null };
  const { proof, opened_at: begun, commit } = progress;
  if (proof?.conditions.every(isSettled) && unwaived.length === 0)
    return { state: "proved", since: proof.at };
  const isClosing = removalStep(kind, stage).edit !== null && commit === null;
  return isClosing ? { state: "closing", since: begun } : { state: "proving", since: proof?.at ?? begun };
}

export type Steps = Readonly<ReturnType<typeof nextStepsOf>>;

/** @param skips whether the next stage may be opened before both have signed the one before it; it is shown all the same */
export function nextStepsOf(view: RunView, skips = false) {
  const { run, stages, completion } = view;
  if (run.ended !== null)
    return { action: "none", work: null, sign: [], countersign: [], waiting: null } as const;
  const isRemover = run.self === run.remover;
  const contain = run.kind === "emergency" && run.contained_at === null;
  const theirs = stages.filter(({ other }) => other.state === "signed");
  const countersign: (StageName | "completion")[] = theirs.map(({ stage }) => stage);
  if (!isRemover && completion.state === "signed") countersign.push("completion");
  const work = contain ? null : workOf(stages, skips);
  const unproved = stages.findIndex(({ own }) => ["pending", "closing", "proving"].includes(own.state));
  const shown = stages.slice(0, unproved < 0 ? undefined : unproved);
  const sign = shown.filter(({ own }) => own.state === "proved").map(({ stage }) => stage);
  const isStated = isRemover && completion.state === "none" && stages.every(isSignedByBoth);
  /** The completion is to be stated; or both have signed it, and a kill has kept the record from being written. */
  const complete = completion.state === "countersigned" || isStated;
  /** What comes next: an emergency is contained before anything is signed, and what is shown is signed before more is closed. */
  const actionOf = () => {
    if (contain) return "contain";
    if (sign.length > 0 || countersign.length > 0) return "sign";
    if (work !== null) return "work";
    return complete ? "complete" : "wait";
  };
  const action = actionOf();
  return { action, work, sign, countersign, waiting: action === "wait" ? waitingOf(view) : null } as const;
}

const isSignedByBoth = ({ own, other }: StageView): boolean =>
  own.state === "countersigned" && other.state === "countersigned";

function workOf(stages: readonly StageView[], skips: boolean): StageName | null {
  const begun = stages.find(({ own }) => own.state === "closing" || own.state === "proving");
  const pending = stages.findIndex(({ own }) => own.state === "pending");
  const before = stages[pending - 1];
  const opens = before === undefined || skips || isSignedByBoth(before) ? stages[pending] : undefined;
  return (begun ?? opens)?.stage ?? null;
}

function waitingOf({ run, stages, completion }: RunView) {
  const open = stages.find((stage) => !isSignedByBoth(stage));
  const stated = completion.state === "none" ? "completion" : "completion_countersignature";
  const ofStage = open?.own.state === "signed" ? "countersignature" : "statement";
  const what = open === undefined ? stated : ofStage;
  const since =
    open === undefined ? (completion.since ?? stages.at(-1)?.other.since ?? null) : open.own.since;
  return { for: counterpartyIn(run), what, stage: open?.stage ?? null, since } as const;
}

export const waitedFor = ({ what, stage }: Pick<ReturnType<typeof waitingOf>, "what" | "stage">): string =>
  `${what.replaceAll("_", " ")}${stage === null ? "" : ` of ${stage}`}`;

export function statusOf(run: Run, { parties }: Trust) {
  const view = viewOf(run, parties);
  const { run: id, kind, trigger, remover, partner, self, opened_at: openedAt, ended } = run;
  const steps = nextStepsOf(view);
  const stated = [...stagesIn(view.statements.envelopes).values()];
  return {
    ...{ run: id, kind, trigger, remover, partner, self, openedAt, ended },
    ...{ containedAt: run.contained_at, completion: view.completion, waiting: steps.waiting },
    steps: view.stages.map(stepStatus),
    /** Conditions about parts that this organisation does not manage: they are not shown, and the record says so. */
    unmanaged: view.stages.flatMap(unmanagedIn),
    /** Whether both organisations manage every part, as far as they have stated it. */
    isWhole: stated.every(({ predicate: { scope } }) => scope.parts.length === PARTS.length),
    /** Words of the command that comes next here, after `drawbridge offboarding`; empty when it is not our turn. */
    next: COMMANDS[steps.action],
    otherNext: otherCommand(view),
    waivedByOther: waivedByOther(view, parties),
    recordFile: ended?.how === "completed" ? recordFileOf(run) : null,
  };
}

function stepStatus(view: StageView): StepStatus {
  const { stage, own, other, progress } = view;
  const isStuck = own.state === "proving" && progress?.proof != null;
  return {
    ...labelOf({ name: stage, plane: PLANE_OF_STAGE[stage] }),
    ...{ own, other },
    commit: progress?.commit ?? null,
    openedAt: progress?.opened_at ?? null,
    provedAt: own.state === "closing" || isStuck ? null : (progress?.proof?.at ?? null),
    blocks: isStuck ? blocksOf(view) : [],
  };
}

export function blocksOf(view: Pick<StageView, "stage" | "progress" | "unwaived">) {
  const { stage, progress, unwaived } = view;
  if (progress?.proof == null) {
    const about = { found: "it has not been shown yet", hint: "Run drawbridge offboarding next." };
    return [{ stage, plane: PLANE_OF_STAGE[stage], condition: "shown", probe: "next", ...about }];
  }
  const waivable = unwaived.map(({ hint, ...one }) => ({
    ...one,
    hint: `${hint} Or waive it: drawbridge offboarding waive ${shellWord(one.subject)} --reason WORD.`,
  }));
  return blocksIn(stage, progress.proof.conditions, waivable);
}

function unmanagedIn({ stage, progress }: StageView) {
  const all = progress?.proof?.conditions ?? [];
  const conditions = all.filter(({ verdict }) => verdict === "unmanaged").map(({ condition }) => condition);
  return conditions.length === 0 ? [] : [{ step: stage, conditions }];
}

const COMMANDS: Readonly<Record<Steps["action"], readonly string[]>> = {
  ...{ contain: ["next"], sign: ["sign"], work: ["next"], complete: ["complete"], wait: ["export", "FILE"] },
  none: [],
};

/** What the other one has to do, if it has everything that was exported here. */
function otherCommand({ run, stages, completion }: RunView): readonly string[] {
  if (run.ended !== null) return [];
  const isCompletedHere = completion.state === "signed" && run.self === run.remover;
  if (isCompletedHere || stages.some(({ own }) => own.state === "signed"))
    return ["import", "FILE", "sign", "export", "FILE"];
  if (stages.some(({ other }) => other.state === "unknown")) return ["next", "sign", "export", "FILE"];
  return stages.every(isSignedByBoth) && counterpartyIn(run) === run.remover && completion.state === "none"
    ? ["complete", "export", "FILE"]
    : [];
}

export const planRemoval = (context: OffboardingContext, named?: string) =>
  withRun(context, named, async ({ run, trust: { parties } }) => {
    const { stages } = viewOf(run, parties);
    const stateOf = ({ name }: Step) => {
      const state = stages.find(({ stage }) => stage === name)?.own.state;
      return run.ended === null && (state === "pending" || state === "closing") ? state : undefined;
    };
    const before = await registryBefore(context, run);
    const left = await plan(context, removal(run.kind), counterpartyIn(run), stateOf, before);
    return { run: run.run, ...left };
  });
