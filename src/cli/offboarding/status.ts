import { trustOf } from "../../federation/offboarding/run/context.ts";
import { counterpartyIn, findRun, listRuns } from "../../federation/offboarding/run/run-file.ts";
import { planRemoval, type RunStatus, statusOf } from "../../federation/offboarding/steps/status.ts";
import { abort, waive } from "../../federation/offboarding/steps/waive-and-abort.ts";
import { planeLabel } from "../../federation/plane-order.ts";
import { defineCommand } from "../lib/command.ts";
import { ExitCode } from "../lib/exit-codes.ts";
import { openForCommand } from "../lib/federation.ts";
import { blockLines, nextLine, openOffboarding, printDone, RUN_OPTIONS } from "../lib/offboarding.ts";
import { print } from "../lib/output.ts";
import { planText, stepTable } from "../lib/step-table.ts";

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
    ...(otherNext.length === 0 ? [] : [`At ${other}: ${commandsOf(otherNext)}`]),
    "",
  ].join("\n");
}

/** `import FILE sign export FILE` as three commands. */
function commandsOf(words: readonly string[]): string {
  const commands = words.join(" ").split(/ (?!FILE)/);
  return commands.map((command) => `drawbridge offboarding ${command}`).join("; ");
}

export const planCommand = defineCommand({
  options: RUN_OPTIONS,
  help: "\nChanges nothing, and asks no server.",
  async run(_, options) {
    const planned = await planRemoval(await openOffboarding(options), options.runId);
    print(options, planned, () => planText(planned));
  },
});

export const waiveCommand = defineCommand({
  arguments: [["<subject>", "what was not reached, exactly as it is listed, such as a room ID"]],
  options: [
    ["--reason <word>", "why, as a code or a reference; it is signed and published", { required: true }],
    ["--by <role>", "who answers for it: a role or a staff number; the record's owner when absent"],
    ...RUN_OPTIONS,
  ],
  help: `
Only what a stage that is not signed yet lists as out of reach can be waived; what is open cannot.`,
  async run([subject], options) {
    const context = await openOffboarding(options);
    const { reason, by, runId } = options;
    const { run, left } = await waive(context, subject, { reason, by, run: runId });
    const rest =
      left.length === 0 ? "Nothing else is out of reach." : `Still out of reach: ${left.join(", ")}`;
    const done = { waived: subject, left };
    printDone(context, run, options, done, () => [rest]);
  },
});

export const abortCommand = defineCommand({
  options: [["--reason <word>", "why, as a code or a reference", { required: true }], ...RUN_OPTIONS],
  help: "\nWhat is closed stays closed: it is opened again by a re-admission, or by hand.",
  async run(_, options) {
    const { run, closed, contained } = await abort(await openOffboarding(options), {
      reason: options.reason,
      run: options.runId,
    });
    const other = counterpartyIn(run);
    const lines = [
      `Run ${run.run} is aborted; it will have no record.`,
      closed.length === 0
        ? "It had closed no plane."
        : `STILL CLOSED for ${other}: planes ${closed.map(planeLabel).join(", ")}.`,
      ...(contained ? [`${other} is still contained: drawbridge federation restore.`] : []),
    ];
    print(options, { run: run.run, ended: run.ended, closed, contained }, () => `${lines.join("\n")}\n`);
  },
});
