// drawbridge offboarding show: a private record as it stands, and what it lacks.
import { readRecordFile } from "../../federation/offboarding/private-record/file.ts";
import { defineCommand } from "../lib/command.ts";
import { ExitCode } from "../lib/exit-codes.ts";
import { JSON_OPTION } from "../lib/options.ts";
import { print } from "../lib/output.ts";
import { RECORD_OPTION, recordTable, reportMissing } from "../lib/private-record.ts";

export const command = defineCommand({
  options: [RECORD_OPTION, JSON_OPTION],
  help: `
Exit codes:
  0  the record is complete
  2  it is refused: where it lies, who may read it, or what it holds; every reason is named
  5  fields are missing, and are named`,
  run(_, options) {
    const found = readRecordFile(options.record);
    const { missing, values, file } = found;
    const complete = missing.length === 0;
    print(options, { file, complete, missing, record: values }, () => recordTable(found));
    if (options.json !== true) reportMissing(options.record, missing);
    return complete ? ExitCode.ok : ExitCode.incomplete;
  },
});
