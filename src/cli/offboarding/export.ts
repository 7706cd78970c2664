// drawbridge offboarding export: everything that this organisation has signed, as a file for the other one.
import { counterpartyIn } from "../../federation/offboarding/run/run-file.ts";
import { exportStatements } from "../../federation/offboarding/steps/exchange.ts";
import { defineCommand } from "../lib/command.ts";
import { openOffboarding, RUN_OPTIONS, writeExport } from "../lib/offboarding.ts";
import { print, say } from "../lib/output.ts";

export const command = defineCommand({
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
    say(`${statements} statements for ${other}; there: drawbridge offboarding import FILE`);
  },
});
