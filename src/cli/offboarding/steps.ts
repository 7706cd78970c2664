// drawbridge offboarding next, sign, export, import, complete: the steps of a removal, each by itself.
import { counterpartyIn } from "../../federation/offboarding/run/run-file.ts";
import { complete } from "../../federation/offboarding/steps/complete.ts";
import { exportStatements, importStatements } from "../../federation/offboarding/steps/exchange.ts";
import { type NextResult, next } from "../../federation/offboarding/steps/run-until-blocked.ts";
import { sign } from "../../federation/offboarding/steps/sign.ts";
import type { RunStatus } from "../../federation/offboarding/steps/status.ts";
import { planeLabel } from "../../federation/plane-order.ts";
import { readInput } from "../../runtime/read-input.ts";
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
  writeExport,
} from "../lib/offboarding.ts";
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

Exit codes:
  0  signed
  1  something does not hold and is named, or there is nothing to sign
  2  the signing key cannot be used`,
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
The file holds statements, signatures and content-free evidence; it may travel by any channel, and be sent again.

Exit codes:
  0  written
  1  nothing is signed yet; nothing was written
  2  the file cannot be written`,
  async run([file], options) {
    const { run, text, statements } = await exportStatements(await openOffboarding(options), options.runId);
    const path = writeExport(file, text);
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
a file again changes nothing.

Exit codes:
  0  taken in
  1  refused, with every reason; nothing was changed
  2  the file cannot be read; nothing was changed`,
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
then imports, and signs.

Exit codes:
  0  stated and signed; complete once the partner has signed as well
  1  something is in the way, and each is named with its probe, what it got and what to do`,
  async run(_, options) {
    const context = await openOffboarding(options);
    const { run, recordFile } = await complete(context, options.runId);
    printDone(context, run, options, {}, () => (recordFile === null ? ["The completion is signed."] : []));
  },
});
