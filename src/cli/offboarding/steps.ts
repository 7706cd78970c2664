import { statSync } from "node:fs";
import { resolve } from "node:path";
import { counterpartyIn } from "../../federation/offboarding/run/run-file.ts";
import { complete } from "../../federation/offboarding/steps/complete.ts";
import { exportStatements, importStatements } from "../../federation/offboarding/steps/exchange.ts";
import {
  type NextResult,
  next,
  type RunEnd,
  runSteps,
} from "../../federation/offboarding/steps/run-until-blocked.ts";
import { sign } from "../../federation/offboarding/steps/sign.ts";
import type { RunStatus } from "../../federation/offboarding/steps/status.ts";
import { planeLabel } from "../../federation/plane-order.ts";
import { STAGE_NAMES } from "../../records/format/stages.ts";
import { readInput } from "../../runtime/read-input.ts";
import { replacePrivateFile } from "../../runtime/write-file.ts";
import { stateOf } from "../federation/contain.ts";
import { defineCommand } from "../lib/command.ts";
import { ExitCode } from "../lib/exit-codes.ts";
import {
  blockLines,
  openOffboarding,
  PROBING_RUN_OPTIONS,
  printDone,
  RUN_OPTIONS,
  shownWords,
} from "../lib/offboarding.ts";
import { parser } from "../lib/options.ts";
import { print, say, short } from "../lib/output.ts";

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
    const isOpen =
      result.did === "not_proved" ||
      result.planes.some(({ done, verdict }) => !done && verdict !== "unmanaged");
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
is countersigned, every plane is probed again (with --probe-config from outside as well). Nothing is signed twice.`,
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
a file again changes nothing.`,
  async run([file], options) {
    const hint = "Check the path and that this user may read the file; nothing was changed.";
    const bytes = readInput(file, hint, "usage");
    const context = await openOffboarding(options);
    const { run, added } = await importStatements(context, bytes, options.runId);
    printDone(context, run, options, { added }, () => [
      `taken in: ${added.statements} statements, ${added.signatures} signatures, ${added.evidence} items of evidence`,
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

const EXIT_BY_END: Readonly<Record<RunEnd, ExitCode>> = {
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
