// drawbridge offboarding show: a private record, and what it lacks.
import { isObject } from "../../domain/json.ts";
import { valueAt } from "../../federation/offboarding/private-record/check.ts";
import { readRecordFile } from "../../federation/offboarding/private-record/file.ts";
import { RECORD_FIELDS } from "../../federation/offboarding/private-record/schema.ts";
import { defineCommand, OPTION, print, renderTable } from "../lib/command.ts";
import { RECORD_OPTION, reportMissing } from "../lib/offboarding.ts";

export const showCommand = defineCommand({
  options: [RECORD_OPTION, OPTION.json],
  run(_, options) {
    const { missing, values, file } = readRecordFile(options.record);
    const complete = missing.length === 0;
    print(options, { file, complete, missing, record: values }, () =>
      renderTable(
        ["FIELD", "VALUE"],
        RECORD_FIELDS.map(({ path, says, isOptional }) => {
          const value = valueAt(values, path.split("."));
          if (value == null) return [path, isOptional ? "-" : `MISSING: ${says}`];
          return [path, textOf(value)];
        }),
      ),
    );
    if (options.json !== true && !complete) reportMissing(options.record, missing);
    return complete ? "ok" : "incomplete";
  },
});

function textOf(value: unknown): string {
  if (!Array.isArray(value)) return String(value);
  const items = value.map((item: unknown) => (isObject(item) ? Object.values(item).join("=") : String(item)));
  return items.join(" ") || "(none)";
}
