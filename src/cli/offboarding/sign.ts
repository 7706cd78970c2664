// drawbridge offboarding sign: signs what was shown here, and what the other organisation has stated.
import process from "node:process";
import type { Command } from "commander";
import { sign } from "../../federation/offboarding/workflow/sign.ts";
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
import { passOn, signedLines } from "../lib/offboarding-signing.ts";
import { renderJson } from "../lib/output.ts";

interface Options extends RunOptions {
  readonly export?: string;
}

export const command: CommandModule = {
  register(program: Command): void {
    program
      .option(...CONFIG_OPTION)
      .option(...RUN_ID_OPTION)
      .option(...PROBE_OPTION)
      .option("--export <file>", "then write everything that is signed, for the other one")
      .option(...JSON_OPTION)
      .addHelpText(
        "after",
        `
Signs every stage of one's own that was shown closed, and countersigns what was imported. Before a completion
is countersigned, every plane is looked at again (with --probe-config from outside as well). Nothing is signed twice.

Exit codes:
  0  signed
  1  something does not hold and is named, or there is nothing to sign
  2  the signing key cannot be used`,
      )
      .action(async (options: Options) => {
        const context = await openOffboarding(options);
        const result = await sign(context, options.runId);
        const { run, signed, countersigned, recordFile } = result;
        await passOn(context, run, options.export);
        const status = statusNow(context, run.run);
        if (options.json === true) {
          process.stdout.write(renderJson({ signed, countersigned, recordFile, status }));
          return;
        }
        const lines = [...signedLines(run, result), nextLine(status, options)];
        process.stdout.write(`${lines.join("\n")}\n`);
      });
  },
};
