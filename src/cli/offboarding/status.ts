// drawbridge offboarding status: where a removal is, what blocks it, and the next command on either side.
import { trustOf } from "../../federation/offboarding/run/context.ts";
import { findRun, listRuns } from "../../federation/offboarding/run/run-file.ts";
import { statusOf, waiverLines } from "../../federation/offboarding/steps/status.ts";
import { defineCommand, print } from "../lib/command.ts";
import { openForCommand, stepTable } from "../lib/federation.ts";
import { blockLines, nextLine, RUN_OPTIONS, type RunStatus } from "../lib/offboarding.ts";

export const statusCommand = defineCommand({
  options: [...RUN_OPTIONS, ["--all", "every run, the oldest first"]],
  help: `
Read from this organisation's own files; no server is asked.`,
  async run(_, options) {
    const { config, state } = await openForCommand(options.config);
    const trust = trustOf(config);
    const runs = options.all === true ? listRuns(state) : [findRun(state, options.runId)];
    const all = runs.map((run) => statusOf(run, trust));
    print(options, options.all === true ? all : all[0], () =>
      all.map((one) => textOf(one, nextLine(one, options))).join("\n"),
    );
    return all.some((one) => blocked(one).length > 0) ? "incomplete" : "ok";
  },
});

/** What an ended run lacks, nobody can do any more. */
function blocked({ ended, steps }: RunStatus) {
  return ended === null ? steps.filter(({ blocks }) => blocks.length > 0) : [];
}

function textOf(status: RunStatus, next: string): string {
  const { run, remover, partner, self, steps, unmanaged, completion, otherNext, recordFile } = status;
  const other = self === remover ? partner : remover;
  return [
    `${remover} removes ${partner} (${status.kind}, ${status.trigger}); this is ${self}`,
    `run ${run}, open since ${status.openedAt}`,
    ...(status.containedAt === null
      ? []
      : [
          `planes 5, 4, 2 and 3 were told to close at ${status.containedAt}; drawbridge federation status says which are closed`,
        ]),
    "",
    `${stepTable(steps)}completion: ${completion.state}${completion.since === null ? "" : ` since ${completion.since}`}`,
    ...unmanaged.map((one) => `not managed here, so not shown: ${one.step} (${one.conditions.join(", ")})`),
    ...(recordFile === null ? [] : [`record: ${recordFile}`]),
    ...waiverLines(status.waivedByOther),
    ...blocked(status).flatMap(({ step, blocks }) => [
      "",
      `${step} cannot be signed:`,
      ...blockLines(blocks),
    ]),
    "",
    next,
    ...(otherNext.length === 0 ? [] : [`At ${other}: ${commandsOf(otherNext)}`]),
    "",
  ].join("\n");
}

/** `import FILE sign export FILE` as three commands. */
function commandsOf(words: readonly string[]): string {
  const commands = words.join(" ").split(/ (?!FILE)/);
  return commands.map((command) => `drawbridge offboarding ${command}`).join("; ");
}
