// drawbridge offboarding export: writes what is signed here, for the other organisation.
import { resolve } from "node:path";
import { counterpartyIn } from "../../federation/offboarding/run/run-file.ts";
import { exportStatements } from "../../federation/offboarding/steps/exchange.ts";
import { replacePrivateFile } from "../../runtime/write-file.ts";
import { defineCommand, print, say } from "../lib/command.ts";
import { openOffboarding, RUN_OPTIONS } from "../lib/offboarding.ts";

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
