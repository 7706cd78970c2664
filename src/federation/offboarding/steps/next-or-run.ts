// Does the next step of a run, or carries it as far as it goes without a person, step by step.
// Invariants: `runSteps` does nothing that the single commands would not do, and next what `nextStepsOf` says, as the status
// does; an emergency is contained before anything of the other organisation's is taken in, which may be refused; what only
// people can decide (a purge, a waiver) ends it; each step is found again after a kill.
import { isSettled } from "../../../records/conditions/evaluate.ts";
import { SKIPPED_WORD } from "../../../records/format/evidence-item.ts";
import type { StageName } from "../../../records/format/removal-stages.ts";
import { RecordRefused } from "../../../records/verify/reasons.ts";
import { applyPlanes, type PlaneResult, performAct } from "../../containment/contain-or-restore.ts";
import { planeLabel } from "../../plane-order.ts";
import { timestamp } from "../../reconcile/context.ts";
import { removalStep } from "../../workflow/procedures.ts";
import { type OffboardingContext, type RunContext, requireOpen, trustOf, withRun } from "../run/context.ts";
import { changeRun, counterpartyIn, findRun, type Run, signingKeyOf } from "../run/run-file.ts";
import { exportStatements, importStatements } from "./exchange.ts";
import { workStage } from "./prove-stage.ts";
import { complete, sign } from "./sign-and-complete.ts";
import { nextStepsOf, type RunView, type StageState, viewOf, waitedFor } from "./status.ts";
import { wordOf } from "./waive-or-abort.ts";

interface RunStepsOptions {
  readonly run?: string | undefined;
  readonly takeIn?: (() => Uint8Array | undefined) | undefined;
  readonly passOn?: ((text: string) => unknown) | undefined;
  /** How long the other organisation is waited for, in milliseconds, since the last step here. */
  readonly waitMs: number;
  readonly before?: StageName | undefined;
}

/** `blocked`: the status names what does not hold; `paused`: before the stage to be left; `waiting`: for the other. */
export type RunEnd = "completed" | "blocked" | "paused" | "waiting";

/** An exit condition may hold only once other programs have followed. */
const PROVED_WITHIN_MS = 30_000;
const PROVE_AGAIN_MS = 1_000;
/** For what comes from the other organisation; and at the run's own files, which another command may change. */
const POLL_MS = 10;
const OWN_POLL_MS = 500;

/** @throws OffboardingBlocked when a plane is open that was signed for; RecordRefused; what the single steps throw */
export async function runSteps(context: OffboardingContext, options: RunStepsOptions) {
  const { state, clock, say } = context;
  const { run: id } = findRun(state, options.run);
  const { parties } = trustOf(context.config);
  const end = (how: RunEnd) => ({ run: findRun(state, id), end: how });
  let waitsUntil = clock.now() + options.waitMs;
  let triesUntil: number | undefined;
  let begun = "";
  const begin = (text: string) => {
    if (text !== begun) say(text);
    begun = text;
  };
  // What was signed before an interruption may not have reached the other organisation.
  let isUnsent = viewOf(findRun(state, id), parties).statements.envelopes.length > 0;
  let arrived: Uint8Array | undefined;
  let refusal: RecordRefused | undefined;
  for (;;) {
    const run = findRun(state, id);
    const view = viewOf(run, parties);
    const { action, work, waiting } = nextStepsOf(view);
    if (action !== "contain") {
      arrived ??= options.takeIn?.();
      if (arrived !== undefined) {
        const taken = await importStatements(context, arrived, id).catch((error: unknown) => {
          // A file that is being copied is there before the whole of it is.
          if (!isMalformed(error) || clock.now() >= waitsUntil) throw error;
          if (refusal === undefined) say(`${error.message}; waiting for it to change`);
          refusal = error;
        });
        arrived = undefined;
        if (taken !== undefined) refusal = undefined;
        if (taken !== undefined && taken.added.signatures > 0) waitsUntil = clock.now() + options.waitMs;
        continue;
      }
      if (action === "sign") {
        const { signed, countersigned } = await sign(context, id);
        for (const stage of signed) say(`${stage}: signed`);
        for (const place of countersigned) say(`${place}: countersigned`);
        isUnsent = true;
        continue;
      }
      const isAnySigned = view.statements.envelopes.some((one) => signingKeyOf(one, run.self, parties));
      if (isUnsent && options.passOn !== undefined && isAnySigned) {
        options.passOn((await exportStatements(context, id)).text);
      }
      isUnsent = false;
    }
    if (run.ended !== null) return end(run.ended.how === "completed" ? "completed" : "blocked");
    if (work !== null && work === options.before && isIn(view, work, "pending")) return end("paused");
    if (action === "contain" || work !== null) {
      begin(work === null ? "closing planes 5, 4, 2 and 3 at once" : beginning(run, work));
      const { did, stage, progress, planes } = await next(context, { run: id });
      if (did === "contained") say(`planes 5, 4, 2 and 3: ${atOnce(planes)}`);
      if (did === "proved") say(`${stage}: shown closed`);
      if (did === "not_proved" && triesUntil === undefined) say(`${stage}: not shown closed yet`);
      waitsUntil = clock.now() + options.waitMs;
      if (did !== "not_proved") {
        triesUntil = undefined;
        continue;
      }
      triesUntil ??= clock.now() + PROVED_WITHIN_MS;
      const isDecided = stage !== null && removalStep(run.kind, stage).approval === null;
      const isUpToPeople = !isDecided || (progress?.proof?.out_of_reach.length ?? 0) > 0;
      if (isUpToPeople || clock.now() >= triesUntil) return end("blocked");
      await clock.sleep(PROVE_AGAIN_MS);
      continue;
    }
    if (action === "complete") {
      begin("completion: observing every plane again");
      await complete(context, id);
      if (view.completion.state === "none") say("completion: signed");
      isUnsent = true;
      continue;
    }
    if (clock.now() >= waitsUntil) {
      if (refusal !== undefined) throw refusal;
      return end("waiting");
    }
    if (waiting !== null) begin(`waiting for ${waiting.for}: ${waitedFor(waiting)}`);
    const until = Math.min(waitsUntil, clock.now() + OWN_POLL_MS);
    for (; arrived === undefined && clock.now() < until; arrived = options.takeIn?.()) {
      await clock.sleep(POLL_MS);
    }
  }
}

const isMalformed = (error: unknown): error is RecordRefused =>
  error instanceof RecordRefused && error.problems.every(({ reason }) => reason === "exchange_malformed");

/** What was closed of the planes of an emergency's first step; every stage closes and observes its own again. */
function atOnce(planes: readonly PlaneResult[]): string {
  const left = planes.filter((one) => !isSettled(one)).map(({ plane }) => planeLabel(plane));
  return left.length === 0 ? "closed at once" : `told to close at once; NOT CLOSED YET: ${left.join(", ")}`;
}

function beginning(run: Run, stage: StageName): string {
  const { plane, conditions } = removalStep(run.kind, stage);
  if (conditions === null) return `${stage}: left alone by a ${run.kind} removal`;
  return plane === null
    ? `${stage}: collecting what shows them`
    : `${stage}: closing plane ${planeLabel(plane)}, and observing it`;
}

const isIn = ({ stages }: RunView, stage: StageName, state: StageState): boolean =>
  stages.some((one) => one.stage === stage && one.own.state === state);

/** One step of a run. @throws DrawbridgeError `usage`, `head_refused`, `repository_unusable` */
export function next(
  context: OffboardingContext,
  options: { readonly run?: string | undefined; readonly skipCountersignature?: string | undefined } = {},
) {
  return withRun(context, options.run, async (context) => {
    const { run, trust } = context;
    const { parties } = trust;
    requireOpen(run);
    // The word is checked before it is written, because every later step reads what was written.
    const { skipCountersignature: word } = options;
    const skipped = word === undefined ? null : wordOf("--skip-countersignature", word, SKIPPED_WORD);
    const { action, work: stage } = nextStepsOf(viewOf(run, parties), skipped !== null);
    const none = { run, stage: null, progress: undefined, planes: [] as readonly PlaneResult[] };
    if (action === "contain") return { ...none, did: "contained", planes: await contain(context) } as const;
    if (stage === null) return { ...none, did: "idle" } as const;
    const progress = await workStage(context, stage, skipped);
    // A stage that is proved can be signed; else the status names what does not hold.
    const did = isIn(viewOf(run, parties), stage, "proved") ? "proved" : "not_proved";
    return { ...none, did, stage, progress } as const;
  });
}

async function contain(context: RunContext): Promise<readonly PlaneResult[]> {
  const { run } = context;
  const { partner } = await performAct(context, "contain", counterpartyIn(run));
  const planes = await applyPlanes(context, "contain", partner);
  changeRun(run, { contained_at: timestamp(context.clock.now()) });
  return planes;
}
