// drawbridge offboarding waive: answers for something that could not be reached.
import process from "node:process";
import type { Command } from "commander";
import { waive } from "../../federation/offboarding/workflow/waive-and-abort.ts";
import type { CommandModule } from "../lib/command.ts";
import { CONFIG_OPTION } from "../lib/federation-options.ts";
import {
  JSON_OPTION,
  nextLine,
  openOffboarding,
  RUN_ID_OPTION,
  type RunOptions,
  statusNow,
} from "../lib/offboarding-options.ts";
import { renderJson } from "../lib/output.ts";

interface Options extends RunOptions {
  readonly reason: string;
  readonly by?: string;
}

export const command: CommandModule = {
  register(program: Command): void {
    program
      .argument("<subject>", "what was not reached, exactly as it is listed, such as a room ID")
      .requiredOption("--reason <word>", "why, as a code or a reference; it is signed and published")
      .option("--by <role>", "who answers for it: a role or a staff number; the record's owner when absent")
      .option(...CONFIG_OPTION)
      .option(...RUN_ID_OPTION)
      .option(...JSON_OPTION)
      .addHelpText(
        "after",
        `
Only what a stage that is not signed yet lists as out of reach can be waived; what is open cannot.

Exit codes:
  0  waived; it stands in the statement of the stage once that is signed
  2  nothing out of reach is called so; nothing was changed`,
      )
      .action(async (subject: string, options: Options) => {
        const context = await openOffboarding(options);
        const { run, left } = await waive(context, subject, {
          run: options.runId,
          reason: options.reason,
          by: options.by,
        });
        const status = statusNow(context, run.run);
        if (options.json === true) process.stdout.write(renderJson({ waived: subject, left, status }));
        else {
          const rest =
            left.length === 0 ? "Nothing else is out of reach." : `Still out of reach: ${left.join(", ")}`;
          process.stdout.write(`${rest}\n${nextLine(status, options)}\n`);
        }
      });
  },
};
