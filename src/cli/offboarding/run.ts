// The commands on an open run of a removal: its steps, where it stands, and what ends it.
import { statSync } from "node:fs";
import { resolve } from "node:path";
import { printableLine, shellWord } from "../../domain/printable.ts";
import { outsideProbe } from "../../federation/evidence/observe-from-outside.ts";
import { residualReport } from "../../federation/offboarding/duties/residual.ts";
import { recordFacts } from "../../federation/offboarding/private-record/file.ts";
import { type OffboardingContext, trustOf } from "../../federation/offboarding/run/context.ts";
import { counterpartyIn, findRun, listRuns, type Run } from "../../federation/offboarding/run/run-file.ts";
import { exportStatements, importStatements } from "../../federation/offboarding/steps/exchange.ts";
import { abort, next, runSteps, waive } from "../../federation/offboarding/steps/run-waive-or-abort.ts";
import { complete, sign } from "../../federation/offboarding/steps/sign-and-complete.ts";
import { planRemoval, statusOf, waitedFor, waiverLines } from "../../federation/offboarding/steps/status.ts";
import { planeLabel } from "../../federation/plane-order.ts";
import type { Block } from "../../federation/workflow/procedure.ts";
import { verdictOf } from "../../federation/workflow/step-verdict.ts";
import { type Evaluated, isSettled } from "../../records/conditions/evaluate.ts";
import { STAGE_NAMES } from "../../records/format/removal-stages.ts";
import { readInput } from "../../runtime/read-input.ts";
import { replacePrivateFile } from "../../runtime/write-file.ts";
import { stateOf } from "../federation/contain.ts";
import { type DeploymentOptions, defineCommand, OPTION, parser, required } from "../lib/command.ts";
import { ExitCode } from "../lib/exit-codes.ts";
import { openForCommand, planText, stepTable } from "../lib/federation.ts";
import { print, say, short } from "../lib/output.ts";

const RUN_ID = ["--run-id <run>", "the run, or the other organisation; the open one when absent"] as const;
const RUN_OPTIONS = [OPTION.federation, RUN_ID, OPTION.json] as const;
const PROBING_RUN_OPTIONS = [OPTION.federation, RUN_ID, OPTION.probe, OPTION.json] as const;

type NextResult = Awaited<ReturnType<typeof next>>;
type RunStatus = ReturnType<typeof statusOf>;
type RunOptions = DeploymentOptions & { readonly runId: string | undefined };

async function openOffboarding(options: DeploymentOptions): Promise<OffboardingContext> {
  const federation = await openForCommand(options.config);
  const outside = outsideProbe(federation, options.probeConfig);
  const residual = async (run: Run) => (await residualReport({ ...federation, say }, run)).statement;
  return { ...federation, facts: recordFacts, say, residual, outside };
}

/** Prints what was done in a run (`done` as JSON, `lines` for people), where it stands now, and the next command. */
function printDone(
  { state, config }: OffboardingContext,
  { run }: Pick<Run, "run">,
  options: RunOptions,
  done: Readonly<Record<string, unknown>>,
  lines: (status: RunStatus) => readonly string[],
): void {
  const status = statusOf(findRun(state, run), trustOf(config));
  const { recordFile } = status;
  const complete = recordFile === null ? [] : [endLine(status, recordFile)];
  const text = () => [...lines(status), ...complete, nextLine(status, options)].join("\n");
  print(options, { ...done, recordFile, status }, () => `${text()}\n`);
}

/** What `drawbridge verify` answers about the record: it calls none complete in which a part is managed by nobody. */
export function endLine({ isWhole }: Pick<RunStatus, "isWhole">, recordFile: string): string {
  return isWhole
    ? `COMPLETE; the record verifies: ${recordFile}`
    : `ENDED; both have signed, and the record is INCOMPLETE: a part is not managed, and drawbridge verify names what is not shown: ${recordFile}`;
}

export function blockLines(blocks: readonly Block[]): readonly string[] {
  return blocks.flatMap(({ plane, condition, probe, found, hint }) => [
    `  ${condition}${plane === null ? "" : ` (plane ${planeLabel(plane)})`}`,
    `    probe  ${printableLine(probe)}`,
    `    found  ${found}`,
    `    hint   ${hint}`,
  ]);
}

function nextLine({ next, waiting, ended }: RunStatus, { config, probeConfig, runId }: RunOptions): string {
  if (ended?.how === "aborted") return `The run was aborted at ${ended.at} (${ended.reason}).`;
  const run = runId === undefined ? "" : ` --run-id ${shellWord(runId)}`;
  const probes = probeConfig !== undefined && ["next", "sign", "complete"].includes(next[0] ?? "");
  const probe = probes ? ` --probe-config ${shellWord(probeConfig)}` : "";
  const command = `drawbridge offboarding ${next.join(" ")} --config ${shellWord(config)}${run}${probe}`;
  if (waiting === null) return next.length === 0 ? "Nothing is left to do here." : `Next: ${command}`;
  const since = waiting.since === null ? "" : `, since ${waiting.since}`;
  return [
    `Waiting for ${waiting.for}: ${waitedFor(waiting)}${since}.`,
    `If it lacks a file: ${command}`,
    `When its file has come: drawbridge offboarding import FILE --config ${shellWord(config)}`,
  ].join("\n");
}

/** What a settled stage's conditions show: a part that is not managed here is never called closed. */
export function shownWords(conditions: readonly Pick<Evaluated, "condition" | "verdict">[]): string {
  if (verdictOf(conditions) === "not_applicable") return "nothing to close, and that is shown";
  const has = (verdict: Evaluated["verdict"]) => conditions.some((one) => one.verdict === verdict);
  if (!has("unmanaged")) return "closed, and shown";
  return has("met") ? "closed and shown as far as it is managed here" : "not managed here, so not shown";
}

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
  // What an ended run lacks, nobody can do any more.
  const blocked = status.ended === null ? steps.filter(({ blocks }) => blocks.length > 0) : [];
  return [
    `${remover} removes ${partner} (${kind}, ${trigger}); this is ${self}`,
    `run ${run}, open since ${status.openedAt}`,
    ...(status.containedAt === null
      ? []
      : [
          `planes 5, 4, 2 and 3 were told to close at ${status.containedAt}; drawbridge federation status says which are closed`,
        ]),
    "",
    `${stepTable(steps)}completion: ${completion.state}${completion.since === null ? "" : ` since ${completion.since}`}`,
    ...status.unmanaged.map(
      ({ step, conditions }) => `not managed here, so not shown: ${step} (${conditions.join(", ")})`,
    ),
    ...(recordFile === null ? [] : [`record: ${recordFile}`]),
    ...waiverLines(status.waivedByOther),
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
    required("--reason <word>", "why, as a code or a reference; it is signed and published"),
    ["--by <role>", "who answers for it: a role or a staff number; the record's owner when absent"],
    ...RUN_OPTIONS,
  ],
  help: `
Only what a stage that is not signed yet lists as out of reach can be waived, also where it was observed open, which
the record then says; what is open within reach cannot.`,
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
  options: [required("--reason <word>", "why, as a code or a reference"), ...RUN_OPTIONS],
  help: "\nWhat is closed stays closed: it is opened again by a re-admission, or by hand.",
  async run(_, options) {
    const { run, closed, contained } = await abort(await openOffboarding(options), {
      reason: options.reason,
      run: options.runId,
    });
    const other = counterpartyIn(run);
    const lines = [
      `Run ${run.run} is aborted; it will have no record.`,
      closed === null
        ? `What is still closed for ${other} is not known: drawbridge federation status says why.`
        : closed.length === 0
          ? `No plane is closed for ${other}.`
          : `STILL CLOSED for ${other}: plane${closed.length === 1 ? "" : "s"} ${closed.map(planeLabel).join(", ")}.`,
      ...(contained ? [`${other} is still contained: drawbridge federation restore.`] : []),
    ];
    print(options, { run: run.run, ended: run.ended, closed, contained }, () => `${lines.join("\n")}\n`);
  },
});

export const nextCommand = defineCommand({
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
planes 5, 4, 2 and 3 at once first.`,
  async run(_, options) {
    const context = await openOffboarding(options);
    const result = await next(context, {
      run: options.runId,
      skipCountersignature: options.skipCountersignature,
    });
    const isOpen = result.did === "not_proved" || result.planes.some((one) => !isSettled(one));
    printDone(context, result.run, options, jsonOf(result), (status) => resultLines(result, status));
    return isOpen ? ExitCode.incomplete : ExitCode.ok;
  },
});

function jsonOf({ did, stage, progress, planes }: NextResult) {
  return {
    ...{ did, stage, planes },
    commit: progress?.commit ?? null,
    conditions: progress?.proof?.conditions ?? [],
    outOfReach: progress?.proof?.out_of_reach ?? [],
  };
}

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
      ...conditions.map(
        ({ condition, verdict, evidence }) => `  ${condition}: ${verdict} (${evidence.length} observed)`,
      ),
    ];
  }
  const blocks = steps.find(({ step }) => step === stage)?.blocks ?? [];
  return [`${stage}: NOT SHOWN CLOSED YET${commit}`, ...blockLines(blocks)];
}

export const signCommand = defineCommand({
  options: PROBING_RUN_OPTIONS,
  help: `
Signs every stage of one's own that was shown closed, and countersigns what was imported. Before a completion
is countersigned, every plane is probed again (with --probe-config from outside as well). Nothing is signed twice.
Before anything is signed, what the other organisation has waived in it is printed.`,
  async run(_, options) {
    const context = await openOffboarding(options);
    const { run, signed, countersigned } = await sign(context, options.runId);
    printDone(context, run, options, { signed, countersigned }, () => [
      ...signed.map((stage) => `signed: ${stage} of ${run.self}`),
      ...countersigned.map((place) => `countersigned: ${place}`),
    ]);
  },
});

export const exportCommand = defineCommand({
  arguments: [["<file>", "where to write it"]],
  options: RUN_OPTIONS,
  help: `
The file holds statements, signatures and content-free evidence; it may travel by any channel, and be sent again.`,
  async run([file], options) {
    const { run, text, statements } = await exportStatements(await openOffboarding(options), options.runId);
    const path = resolve(file);
    replacePrivateFile(path, text);
    const other = counterpartyIn(run);
    print(options, { file: path, for: other, statements }, () => `${path}\n`);
    say(`Statements for ${other}: ${statements}. There: drawbridge offboarding import FILE`);
  },
});

export const importCommand = defineCommand({
  arguments: [["<file>", "what the other organisation has exported"]],
  options: RUN_OPTIONS,
  help: `
Every statement is verified against the other organisation's pinned key before anything is taken in. Importing
a file again changes nothing. What the other organisation has waived is printed, with who answers for it and why:
countersigning it is agreeing to it.`,
  async run([file], options) {
    const hint = "Check the path and that this user may read the file; nothing was changed.";
    const bytes = readInput(file, hint, "usage");
    const context = await openOffboarding(options);
    const { run, added } = await importStatements(context, bytes, options.runId);
    printDone(context, run, options, { added }, ({ waivedByOther }) => [
      `taken in: ${added.statements} statements, ${added.signatures} signatures, ${added.evidence} items of evidence`,
      ...waiverLines(waivedByOther),
    ]);
  },
});

export const completeCommand = defineCommand({
  options: PROBING_RUN_OPTIONS,
  help: `
For the organisation that decided, once both have signed all six stages. Every plane is probed again without
being brought in order, so that one which was opened by hand is noticed; the static tests are run. The partner
then imports, and signs.`,
  async run(_, options) {
    const context = await openOffboarding(options);
    const { run, recordFile } = await complete(context, options.runId);
    printDone(context, run, options, {}, () => (recordFile === null ? ["The completion is signed."] : []));
  },
});

const seconds = parser("number of seconds", (text) => {
  const value = Number(text);
  return Number.isFinite(value) && value >= 0 ? value : undefined;
});

export const runCommand = defineCommand({
  options: [
    ...PROBING_RUN_OPTIONS,
    ["--import <file>", "take in the other organisation's file, whenever it is there or changes"],
    ["--export <file>", "write everything that is signed, for the other organisation"],
    [
      "--wait <seconds>",
      "how long to wait for the other organisation's file",
      { default: 0, parse: seconds },
    ],
    ["--before <stage>", "end before this stage is opened", { choices: STAGE_NAMES }],
  ],
  help: `
Does what next, sign, export, import and complete do, as often as they can: it closes and shows every stage, signs and
countersigns, and completes. It ends where a person has to decide (a purge, a waiver), where a stage is not shown
closed in half a minute, or where the other organisation has to act. Run it again after anything.
Exit code 1: something that was signed for is open, or a statement does not hold. 5: a stage is not shown closed.`,
  async run(_, options) {
    const context = await openOffboarding(options);
    const { import: inbox, export: outbox } = options;
    const { run, end } = await runSteps(context, {
      run: options.runId,
      takeIn: inbox === undefined ? undefined : whenChanged(inbox),
      passOn: outbox === undefined ? undefined : (text) => replacePrivateFile(resolve(outbox), text),
      waitMs: options.wait * 1_000,
      before: options.before,
    });
    printDone(context, run, options, { end }, ({ steps }) => {
      const blocked = end === "blocked" ? steps.filter(({ blocks }) => blocks.length > 0) : [];
      return blocked.flatMap(({ step, blocks }) => [`${step}: NOT SHOWN CLOSED YET`, ...blockLines(blocks)]);
    });
    return EXIT_BY_END[end];
  },
});

const EXIT_BY_END = {
  completed: ExitCode.ok,
  paused: ExitCode.ok,
  blocked: ExitCode.incomplete,
  waiting: ExitCode.waiting,
};

/** Reads a file when it is there and is not the one that was read last. */
function whenChanged(file: string): () => Uint8Array | undefined {
  let last = "";
  return () => {
    const found = statSync(file, { throwIfNoEntry: false });
    const now = found === undefined ? "" : `${found.ino} ${found.size} ${found.mtimeMs}`;
    if (now === last) return undefined;
    last = now;
    return found === undefined ? undefined : readInput(file, undefined, "usage");
  };
}
