// drawbridge offboarding show: a private record as it stands, and what it lacks.
import process from "node:process";
import type { Command } from "commander";
import { readRecordFile } from "../../federation/offboarding/private-record/file.ts";
import { type CommandModule, ExitCode } from "../lib/command.ts";
import { renderJson } from "../lib/output.ts";
import { RECORD_OPTION, recordTable, tellMissing } from "./record.ts";

interface Options {
  readonly record: string;
  readonly json?: boolean;
}

function run(options: Options): void {
  const found = readRecordFile(options.record);
  const { missing, values, file } = found;
  process.stdout.write(
    options.json === true
      ? renderJson({ file, complete: missing.length === 0, missing, record: values })
      : recordTable(found),
  );
  if (options.json !== true) tellMissing(options.record, missing);
  if (missing.length > 0) process.exitCode = ExitCode.incomplete;
}

export const command: CommandModule = {
  register(program: Command): void {
    program
      .requiredOption(...RECORD_OPTION)
      .option("--json", "print JSON")
      .addHelpText(
        "after",
        `
Exit codes:
  0  the record is complete
  2  it is refused: where it lies, who may read it, or what it holds; every reason is named
  5  fields are missing, and are named`,
      )
      .action(run);
  },
};
