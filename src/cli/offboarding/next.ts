// drawbridge offboarding next: does the next thing that is this organisation's to do.
import { type NextResult, next } from "../../federation/offboarding/steps/run-until-blocked.ts";
import { planeLabel } from "../../federation/plane-order.ts";
import { defineCommand } from "../lib/command.ts";
import { stateOf } from "../lib/containment.ts";
import { ExitCode } from "../lib/exit-codes.ts";
import {
  blockLines,
  nextLine,
  openOffboarding,
  PROBING_RUN_OPTIONS,
  shownWords,
  statusNow,
} from "../lib/offboarding.ts";
import { print, short } from "../lib/output.ts";

export const command = defineCommand({
  options: [
    ...PROBING_RUN_OPTIONS,
    [
      "--skip-countersignature <reason>",
      "open the next stage before both have signed the one before it; a word",
    ],
  ],
  help: `
Closes the stage whose turn it is (one commit), brings its plane to the head, and observes whether the exit
conditions hold. Run it again after anything: what is done is found, and not done twice. An emergency closes
planes 5, 4, 2 and 3 at once first.

Exit codes:
  0  the stage is shown closed, or it is not this organisation's turn (and what is waited for is said)
  4  the head is refused
  5  an exit condition does not hold yet, and is named with its probe, what it got and what to do`,
  async run(_, options) {
    const context = await openOffboarding(options);
    const result = await next(context, {
      run: options.runId,
      skipCountersignature: options.skipCountersignature,
    });
    const isOpen =
      result.did === "not_proved" ||
      result.planes.some(({ done, verdict }) => !done && verdict !== "unmanaged");
    const status = statusNow(context, result.run.run);
    const lines = [...resultLines(result, status), nextLine(status, options)];
    print(options, jsonOf(result, status), () => `${lines.join("\n")}\n`);
    return isOpen ? ExitCode.incomplete : ExitCode.ok;
  },
});

function jsonOf({ did, stage, progress, planes }: NextResult, status: ReturnType<typeof statusNow>) {
  return {
    ...{ did, stage, planes, status },
    commit: progress?.commit ?? null,
    conditions: progress?.proof?.conditions ?? [],
    outOfReach: progress?.proof?.out_of_reach ?? [],
  };
}

function resultLines(
  { did, stage, progress, planes }: NextResult,
  status: ReturnType<typeof statusNow>,
): readonly string[] {
  if (did === "contained") {
    return planes.map((one) => `plane ${planeLabel(one.plane)}: ${stateOf("contain", one)}`);
  }
  if (did === "idle" || stage === null) return [];
  const commit = progress?.commit === null ? "" : `, commit ${short(progress?.commit)}`;
  const conditions = progress?.proof?.conditions ?? [];
  if (did === "proved") {
    return [
      `${stage}: ${shownWords(conditions)}${commit}`,
      ...conditions.map(
        ({ condition, verdict, evidence }) => `  ${condition}: ${verdict} (${evidence.length} observed)`,
      ),
    ];
  }
  const blocks = status.steps.find(({ step }) => step === stage)?.blocks ?? [];
  return [`${stage}: NOT SHOWN CLOSED YET${commit}`, ...blockLines(blocks)];
}
