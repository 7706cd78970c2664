// drawbridge offboarding verify: does the record of one of this organisation's removals verify?
import process from "node:process";
import type { Command } from "commander";
import { DrawbridgeError } from "../../domain/errors.ts";
import { trustOf } from "../../federation/offboarding/run/context.ts";
import { findRun, runFile } from "../../federation/offboarding/run/run.ts";
import { recordFileOf } from "../../federation/offboarding/workflow/complete.ts";
import { verifyRecord } from "../../records/verify/verify-record.ts";
import { type CommandModule, ExitCode } from "../lib/command.ts";
import { CONFIG_OPTION, openForCommand, say } from "../lib/federation-options.ts";
import { JSON_OPTION, RUN_ID_OPTION, type RunOptions } from "../lib/offboarding-options.ts";
import { renderJson } from "../lib/output.ts";
import { renderReport } from "../lib/verify-report.ts";

export const command: CommandModule = {
  register(program: Command): void {
    program
      .option(...CONFIG_OPTION)
      .option(...RUN_ID_OPTION)
      .option(...JSON_OPTION)
      .addHelpText(
        "after",
        `
The same as drawbridge verify RECORD --trust FILE, with the record and the keys of this deployment.

Exit codes:
  0  verified
  1  not verified
  2  there is no record yet`,
      )
      .action(async (options: RunOptions) => {
        const { config, federation } = await openForCommand(options.config);
        const run = findRun(federation.state, options.runId);
        const text = federation.state.readText(runFile(run.run, "record.json"));
        if (text === undefined) {
          throw new DrawbridgeError("usage", `run ${run.run} has no record yet`, {
            hint: "See drawbridge offboarding status: it says what is missing.",
          });
        }
        const { remover, partner, run: id } = run;
        const expect = { remover, partner, run: id };
        const report = verifyRecord(Buffer.from(text, "utf8"), { ...trustOf(config), expect });
        const file = recordFileOf(run);
        process.stdout.write(options.json === true ? renderJson({ file, ...report }) : renderReport(report));
        if (options.json !== true) say(file);
        if (!report.verified) process.exitCode = ExitCode.failed;
      });
  },
};
