// drawbridge offboarding import: takes in what the other organisation has signed.
import { importStatements } from "../../federation/offboarding/steps/exchange.ts";
import { readInput } from "../../runtime/read-input.ts";
import { defineCommand } from "../lib/command.ts";
import { nextLine, openOffboarding, RUN_OPTIONS, statusNow } from "../lib/offboarding.ts";
import { print } from "../lib/output.ts";

export const command = defineCommand({
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
    const { run, added, recordFile } = await importStatements(context, bytes, options.runId);
    const status = statusNow(context, run.run);
    const lines = [
      `taken in: ${added.statements} statements, ${added.signatures} signatures, ${added.evidence} items of evidence`,
      ...(recordFile === null ? [] : [`COMPLETE; the record verifies: ${recordFile}`]),
      nextLine(status, options),
    ];
    print(options, { added, recordFile, status }, () => `${lines.join("\n")}\n`);
  },
});
