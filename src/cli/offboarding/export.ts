// drawbridge offboarding export: everything that this organisation has signed, as a file for the other one.
import process from "node:process";
import type { Command } from "commander";
import { counterpartyOf } from "../../federation/offboarding/run/run.ts";
import { exportStatements } from "../../federation/offboarding/workflow/exchange.ts";
import type { CommandModule } from "../lib/command.ts";
import { CONFIG_OPTION, say } from "../lib/federation-options.ts";
import { JSON_OPTION, openOffboarding, RUN_ID_OPTION, type RunOptions } from "../lib/offboarding-options.ts";
import { writeForOther } from "../lib/offboarding-signing.ts";
import { renderJson } from "../lib/output.ts";

export const command: CommandModule = {
  register(program: Command): void {
    program
      .argument("<file>", "where to write it")
      .option(...CONFIG_OPTION)
      .option(...RUN_ID_OPTION)
      .option(...JSON_OPTION)
      .addHelpText(
        "after",
        `
The file holds statements, signatures and content-free evidence; it may travel by any channel, and be sent again.

Exit codes:
  0  written
  1  nothing is signed yet; nothing was written
  2  the file cannot be written`,
      )
      .action(async (file: string, options: RunOptions) => {
        const { run, text, statements } = await exportStatements(
          await openOffboarding(options),
          options.runId,
        );
        const path = writeForOther(file, text);
        const other = counterpartyOf(run);
        if (options.json === true) process.stdout.write(renderJson({ file: path, for: other, statements }));
        else process.stdout.write(`${path}\n`);
        say(`${statements} statements for ${other}; there: drawbridge offboarding import FILE`);
      });
  },
};
