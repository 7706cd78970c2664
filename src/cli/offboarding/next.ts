// drawbridge offboarding next: closes the plane whose turn it is, and shows that it is closed.
import { next } from "../../federation/offboarding/steps/next-or-run.ts";
import { planeLabel } from "../../federation/plane-order.ts";
import { verdictOf } from "../../federation/workflow/run-step.ts";
import { type Evaluated, isSettled } from "../../records/conditions/evaluate.ts";
import { stateOf } from "../federation/contain-or-restore.ts";
import { defineCommand, short } from "../lib/command.ts";
import { blockLines, openOffboarding, PROBE_OPTIONS, printDone, type RunStatus } from "../lib/offboarding.ts";

type NextResult = Awaited<ReturnType<typeof next>>;

export const nextCommand = defineCommand({
  options: [
    ...PROBE_OPTIONS,
    ["--skip-countersignature <reason>", "open the next stage before both have signed the last one; a word"],
  ],
  help: `
Closes the stage whose turn it is (one commit), brings its plane to the head, and observes whether the exit
conditions hold. Run it again after anything: what is done is found, and not done twice. An emergency closes
planes 5, 4, 2 and 3 at once first.`,
  async run(_, options) {
    const context = await openOffboarding(options);
    const { runId: run, skipCountersignature } = options;
    const result = await next(context, { run, skipCountersignature });
    const { did, stage, progress, planes } = result;
    const json = {
      ...{ did, stage, planes },
      commit: progress?.commit ?? null,
      conditions: progress?.proof?.conditions ?? [],
      outOfReach: progress?.proof?.out_of_reach ?? [],
    };
    const isOpen = did === "not_proved" || planes.some((one) => !isSettled(one));
    printDone(context, result.run, options, json, (status) => resultLines(result, status));
    return isOpen ? "incomplete" : "ok";
  },
});

function resultLines({ did, stage, progress, planes }: NextResult, { steps }: RunStatus): readonly string[] {
  if (did === "contained") {
    return planes.map((one) => `plane ${planeLabel(one.plane)}: ${stateOf("contain", one)}`);
  }
  if (did === "idle" || stage === null) return [];
  const commit = progress?.commit === null ? "" : `, commit ${short(progress?.commit)}`;
  const conditions = progress?.proof?.conditions ?? [];
  if (did === "proved") {
    return [
      `${stage}: ${shownWords(conditions)}${commit}`,
      ...conditions.map((one) => `  ${one.condition}: ${one.verdict} (${one.evidence.length} observed)`),
    ];
  }
  const blocks = steps.find(({ step }) => step === stage)?.blocks ?? [];
  return [`${stage}: NOT SHOWN CLOSED YET${commit}`, ...blockLines(blocks)];
}

/** What a settled stage's conditions show: a part that is not managed here is never called closed. */
export function shownWords(conditions: readonly Pick<Evaluated, "condition" | "verdict">[]): string {
  if (verdictOf(conditions) === "not_applicable") return "nothing to close, and that is shown";
  const has = (verdict: Evaluated["verdict"]) => conditions.some((one) => one.verdict === verdict);
  if (!has("unmanaged")) return "closed, and shown";
  return has("met") ? "closed and shown as far as it is managed here" : "not managed here, so not shown";
}
