// drawbridge offboarding status: where a removal is, what waits for whom, since when, and the next command.
import { trustOf } from "../../federation/offboarding/run/context.ts";
import { findRun, listRuns } from "../../federation/offboarding/run/run-file.ts";
import { type RunStatus, statusOf } from "../../federation/offboarding/steps/status.ts";
import { defineCommand } from "../lib/command.ts";
import { ExitCode } from "../lib/exit-codes.ts";
import { openForCommand } from "../lib/federation.ts";
import { blockLines, nextLine, RUN_OPTIONS } from "../lib/offboarding.ts";
import { print } from "../lib/output.ts";
import { stepTable } from "../lib/steps.ts";

export const command = defineCommand({
  options: [...RUN_OPTIONS, ["--all", "every run, the oldest first"]],
  help: `
Read from this organisation's own files; no server is asked.

Exit codes:
  0  the run is complete, or nothing is in the way
  5  an exit condition does not hold, or something is out of reach and waived by nobody`,
  async run(_, options) {
    const { config, federation } = await openForCommand(options.config);
    const { state } = federation;
    const trust = trustOf(config);
    const runs = options.all === true ? listRuns(state) : [findRun(state, options.runId)];
    const all = runs.map((run) => statusOf(run, trust));
    print(options, options.all === true ? all : all[0], () =>
      all.map((one) => textOf(one, nextLine(one, options))).join("\n"),
    );
    const isBlocked = all.some(
      ({ ended, steps }) => ended === null && steps.some(({ blocks }) => blocks.length > 0),
    );
    return isBlocked ? ExitCode.incomplete : ExitCode.ok;
  },
});

function textOf(status: RunStatus, next: string): string {
  const { run, kind, trigger, remover, partner, self, steps, completion, otherNext, recordFile } = status;
  const other = self === remover ? partner : remover;
  const blocked = steps.filter(({ blocks }) => blocks.length > 0);
  return [
    `${remover} removes ${partner} (${kind}, ${trigger}); this is ${self}`,
    `run ${run}, open since ${status.openedAt}`,
    ...(status.containedAt === null ? [] : [`planes 5, 4, 2 and 3 contained at ${status.containedAt}`]),
    "",
    `${stepTable(steps)}completion: ${completion.state}${completion.since === null ? "" : ` since ${completion.since}`}`,
    ...status.unmanaged.map(
      ({ step, conditions }) => `not managed here, so not shown: ${step} (${conditions.join(", ")})`,
    ),
    ...(recordFile === null ? [] : [`record: ${recordFile}`]),
    ...blocked.flatMap(({ step, blocks }) => ["", `${step} cannot be signed:`, ...blockLines(blocks)]),
    "",
    next,
    ...(otherNext.length === 0
      ? []
      : [
          `At ${other}: ${commandsOf(otherNext)
            .map((words) => `drawbridge offboarding ${words}`)
            .join("; ")}`,
        ]),
    "",
  ].join("\n");
}

/** `import FILE sign export FILE` as three commands. */
function commandsOf(words: readonly string[]): readonly string[] {
  const commands: string[] = [];
  for (const word of words) {
    if (word === "FILE") commands.push(`${commands.pop() ?? ""} FILE`);
    else commands.push(word);
  }
  return commands;
}
