// drawbridge offboarding import: takes in what the other organisation has signed.
import { importStatements } from "../../federation/offboarding/steps/exchange.ts";
import { waiverLines } from "../../federation/offboarding/steps/status.ts";
import { readInput } from "../../runtime/read-input.ts";
import { defineCommand } from "../lib/command.ts";
import { openOffboarding, printDone, RUN_OPTIONS } from "../lib/offboarding.ts";

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
