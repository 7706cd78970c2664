// drawbridge offboarding complete: looks at every plane again, and states and signs that the removal is whole.
import process from "node:process";
import type { Command } from "commander";
import { complete } from "../../federation/offboarding/workflow/complete.ts";
import type { CommandModule } from "../lib/command.ts";
import { CONFIG_OPTION } from "../lib/federation-options.ts";
import {
  JSON_OPTION,
  nextLine,
  openOffboarding,
  PROBE_OPTION,
  RUN_ID_OPTION,
  type RunOptions,
  statusNow,
} from "../lib/offboarding-options.ts";
import { renderJson } from "../lib/output.ts";

export const command: CommandModule = {
  register(program: Command): void {
    program
      .option(...CONFIG_OPTION)
      .option(...RUN_ID_OPTION)
      .option(...PROBE_OPTION)
      .option(...JSON_OPTION)
      .addHelpText(
        "after",
        `
For the organisation that decided, once both have signed all six stages. Every plane is probed again without
being brought in order, so that one which was opened by hand is noticed; the static tests are run. The partner
then imports, and signs.

Exit codes:
  0  stated and signed; complete once the partner has signed as well
  1  something is in the way, and each is named with its probe, what it got and what to do`,
      )
      .action(async (options: RunOptions) => {
        const context = await openOffboarding(options);
        const { run, recordFile } = await complete(context, options.runId);
        const status = statusNow(context, run.run);
        if (options.json === true) process.stdout.write(renderJson({ recordFile, status }));
        else {
          const done =
            recordFile === null
              ? "The completion is signed."
              : `COMPLETE; the record verifies: ${recordFile}`;
          process.stdout.write(`${done}\n${nextLine(status, options)}\n`);
        }
      });
  },
};
