// drawbridge offboarding run: every step of a removal that needs nobody else, until a person or the other organisation has to act.
import { statSync } from "node:fs";
import { resolve } from "node:path";
import { runSteps } from "../../federation/offboarding/steps/next-or-run.ts";
import { STAGE_NAMES } from "../../records/format/removal-stages.ts";
import { readInput } from "../../runtime/read-input.ts";
import { replacePrivateFile } from "../../runtime/write-file.ts";
import { defineCommand, parser } from "../lib/command.ts";
import { blockLines, openOffboarding, PROBE_OPTIONS, printDone } from "../lib/offboarding.ts";

const seconds = parser("number of seconds", (text) => {
  const value = Number(text);
  return Number.isFinite(value) && value >= 0 ? value : undefined;
});

export const runCommand = defineCommand({
  options: [
    ...PROBE_OPTIONS,
    ["--import <file>", "take in the other organisation's file, whenever it is there or changes"],
    ["--export <file>", "write everything that is signed, for the other organisation"],
    ["--wait <seconds>", "how long to wait for the file of the other one", { default: 0, parse: seconds }],
    ["--before <stage>", "end before this stage is opened", { choices: STAGE_NAMES }],
  ],
  help: `
Does what next, sign, export, import and complete do, as often as they can: it closes and shows every stage, signs and
countersigns, and completes. An emergency is contained before anything is taken in or signed. It ends where a person has
to decide (a purge, a waiver), where a stage is not shown closed in half a minute, or where the other organisation has
to act. Run it again after anything.
Exit code 1: something that was signed for is open, or a statement does not hold. 5: a stage is not shown closed.
Whatever the code: each step is told when it is done, and what was done before the end stays done.`,
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
    return end === "blocked" ? "incomplete" : end === "waiting" ? end : "ok";
  },
});

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
