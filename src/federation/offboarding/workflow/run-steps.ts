// Carries a run as far as it goes without a person: every step of one's own, signing, passing on, taking in what has
// come, and countersigning. Invariants: it does nothing that the single commands would not do, in the order that
// `stepsOf` gives; what only people can decide (a purge, a waiver) ends it; each step is found again after a kill.
import type { StageName } from "../../../records/format/stages.ts";
import { type OffboardingContext, trustOf } from "../run/context.ts";
import { findRun, type Run } from "../run/run.ts";
import { complete } from "./complete.ts";
import { exportStatements, importStatements } from "./exchange.ts";
import { next } from "./next.ts";
import { sign } from "./sign.ts";
import { type RunView, stepsOf, viewOf } from "./view.ts";

export interface RunStepsOptions {
  readonly run?: string | undefined;
  /** What has come from the other organisation; undefined when nothing new has. */
  readonly takeIn?: (() => Uint8Array | undefined) | undefined;
  /** Passes everything that is signed on to the other organisation. */
  readonly passOn?: ((text: string) => unknown) | undefined;
  /** How long the other organisation is waited for, in milliseconds, since the last step here. */
  readonly waitMs: number;
  /** Ends before this stage is opened. */
  readonly before?: StageName | undefined;
}

/**
 * `blocked`: something does not hold, and the status names it; `paused`: the next stage is the one that was to be
 * left; `waiting`: the other organisation has to act.
 */
export type RunEnd = "completed" | "blocked" | "paused" | "waiting";

/** An exit condition may hold only once other programs have followed. */
const PROVED_WITHIN_MS = 30_000;
const PROVE_AGAIN_MS = 1_000;
const LOOK_EVERY_MS = 100;

/**
 * @throws OffboardingBlocked when a plane is open that was signed for; RecordRefused when a statement does not hold;
 *   and what the single steps throw
 */
export async function runSteps(
  context: OffboardingContext,
  options: RunStepsOptions,
): Promise<{ readonly run: Run; readonly end: RunEnd }> {
  const { federation, say } = context;
  const { clock } = federation;
  const { run: id } = findRun(federation.state, options.run);
  const { parties } = trustOf(context.config);
  const end = (how: RunEnd) => ({ run: findRun(federation.state, id), end: how });
  let waitsUntil = clock.now() + options.waitMs;
  let triesUntil: number | undefined;
  // What was signed before an interruption may not have reached the other organisation.
  let isUnsent = viewOf(findRun(federation.state, id), parties).statements.envelopes.length > 0;
  for (;;) {
    const arrived = options.takeIn?.();
    if (arrived !== undefined) {
      const { added } = await importStatements(context, arrived, id);
      if (added.signatures > 0) waitsUntil = clock.now() + options.waitMs;
    }
    const run = findRun(federation.state, id);
    const view = viewOf(run, parties);
    const steps = stepsOf(view);
    if (steps.sign.length > 0 || steps.countersign.length > 0) {
      const { signed, countersigned } = await sign(context, id);
      for (const stage of signed) say(`${stage}: signed`);
      for (const place of countersigned) say(`${place}: countersigned`);
      isUnsent = true;
      continue;
    }
    if (isUnsent && options.passOn !== undefined && isAnySigned(view)) {
      options.passOn((await exportStatements(context, id)).text);
    }
    isUnsent = false;
    if (steps.ended !== null) return end(steps.ended === "completed" ? "completed" : "blocked");
    if (steps.work !== null && steps.work === options.before && isPending(view, steps.work)) {
      return end("paused");
    }
    if (steps.contain || steps.work !== null) {
      const { did, stage, progress } = await next(context, { run: id });
      if (did === "contained") say("planes 5, 4, 2 and 3: closed at once");
      if (did === "proved") say(`${stage}: shown closed`);
      waitsUntil = clock.now() + options.waitMs;
      if (did !== "not_proved") {
        triesUntil = undefined;
        continue;
      }
      triesUntil ??= clock.now() + PROVED_WITHIN_MS;
      const isUpToPeople = stage === "data_duties" || (progress?.proof?.out_of_reach.length ?? 0) > 0;
      if (isUpToPeople || clock.now() >= triesUntil) return end("blocked");
      await clock.sleep(PROVE_AGAIN_MS);
      continue;
    }
    if (steps.complete) {
      await complete(context, id);
      say("completion: signed");
      isUnsent = true;
      continue;
    }
    if (clock.now() >= waitsUntil) return end("waiting");
    await clock.sleep(LOOK_EVERY_MS);
  }
}

function isAnySigned({ stages, completion }: RunView): boolean {
  return (
    completion.state !== "none" ||
    stages.some(({ own }) => own.state === "signed" || own.state === "countersigned")
  );
}

function isPending({ stages }: RunView, stage: StageName): boolean {
  return stages.some((one) => one.stage === stage && one.own.state === "pending");
}
