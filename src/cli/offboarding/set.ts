// drawbridge offboarding set: changes one field of a private record, and names the fields that are missing.
import { systemClock } from "../../domain/clock.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import {
  changeRecordFile,
  fieldValue,
  requireField,
} from "../../federation/offboarding/private-record/file.ts";
import { defineCommand } from "../lib/command.ts";
import { ExitCode } from "../lib/exit-codes.ts";
import { JSON_OPTION } from "../lib/options.ts";
import { printJson, say } from "../lib/output.ts";
import { RECORD_OPTION, reportMissing } from "../lib/private-record.ts";

export const command = defineCommand({
  arguments: [
    ["<field>", "such as security.incidentOwner; `offboarding show` lists them"],
    ["[value...]", "its value; several for a list"],
  ],
  options: [
    RECORD_OPTION,
    ["--none", "a list that is empty"],
    ["--clear", "take the value away again"],
    JSON_OPTION,
  ],
  help: `
Exit codes:
  0  set, and the record is complete
  2  refused: nothing was changed; every reason is named, never the value
  5  set; other fields are still missing, and are named`,
  async run([path, words], options) {
    const value = meantValue(requireField(path), words, options);
    const { missing, file } = await changeRecordFile(options.record, new Map([[path, value]]), systemClock);
    const complete = missing.length === 0;
    if (options.json === true) printJson({ file, set: path, complete, missing });
    else {
      say(`${path} is set.`);
      reportMissing(options.record, missing);
    }
    return complete ? ExitCode.ok : ExitCode.incomplete;
  },
});

function meantValue(
  field: ReturnType<typeof requireField>,
  words: readonly string[],
  { none, clear }: { readonly none: boolean | undefined; readonly clear: boolean | undefined },
): unknown {
  if (none !== true && clear !== true && words.length > 0) return fieldValue(field, words);
  if (words.length > 0 || (none === true) === (clear === true)) {
    throw new DrawbridgeError("usage", "give a value, or --none, or --clear", {
      hint: "--none says that there is none of a list; --clear opens the field again. Nothing was changed.",
    });
  }
  if (clear === true) return undefined;
  if (field.holds !== "words" && field.holds !== "rooms") {
    throw new DrawbridgeError("usage", `${field.path} is no list`, { hint: "Give its value, or --clear." });
  }
  return [];
}
