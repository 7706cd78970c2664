// drawbridge offboarding verify: does the record of one of this organisation's removals verify?
import { DrawbridgeError } from "../../domain/errors.ts";
import { trustOf } from "../../federation/offboarding/run/context.ts";
import { findRun, runFile } from "../../federation/offboarding/run/run.ts";
import { recordFileOf } from "../../federation/offboarding/workflow/complete.ts";
import { verifyRecord } from "../../records/verify/verify-record.ts";
import { defineCommand } from "../lib/command.ts";
import { ExitCode } from "../lib/exit-codes.ts";
import { openForCommand } from "../lib/federation.ts";
import { RUN_OPTIONS } from "../lib/offboarding.ts";
import { print, say } from "../lib/output.ts";
import { renderReport } from "../lib/verify-report.ts";

export const command = defineCommand({
  options: RUN_OPTIONS,
  help: `
The same as drawbridge verify RECORD --trust FILE, with the record and the keys of this deployment.

Exit codes:
  0  verified
  1  not verified
  2  there is no record yet`,
  async run(_, options) {
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
    print(options, { file, ...report }, () => renderReport(report));
    if (options.json !== true) say(file);
    return report.verified ? ExitCode.ok : ExitCode.failed;
  },
});
