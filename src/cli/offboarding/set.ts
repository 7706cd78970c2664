// drawbridge offboarding set: fills in one field of a private record.
import process from "node:process";
import type { Command } from "commander";
import { systemClock } from "../../domain/clock.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import {
  changeRecordFile,
  fieldValue,
  requireField,
} from "../../federation/offboarding/private-record/file.ts";
import { type CommandModule, ExitCode } from "../lib/command.ts";
import { say } from "../lib/federation-options.ts";
import { renderJson } from "../lib/output.ts";
import { RECORD_OPTION, tellMissing } from "./record.ts";

interface Options {
  readonly record: string;
  readonly none?: boolean;
  readonly clear?: boolean;
  readonly json?: boolean;
}

async function run(path: string, words: readonly string[], options: Options): Promise<void> {
  const field = requireField(path);
  const { missing, file } = await changeRecordFile(
    options.record,
    new Map([[path, wordsMean(field, words, options)]]),
    systemClock,
  );
  if (options.json === true) {
    process.stdout.write(renderJson({ file, set: path, complete: missing.length === 0, missing }));
  } else {
    say(`${path} is set.`);
    tellMissing(options.record, missing);
  }
  if (missing.length > 0) process.exitCode = ExitCode.incomplete;
}

function wordsMean(
  field: ReturnType<typeof requireField>,
  words: readonly string[],
  { none, clear }: Options,
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

export const command: CommandModule = {
  register(program: Command): void {
    program
      .argument("<field>", "such as security.incidentOwner; `offboarding show` lists them")
      .argument("[value...]", "its value; several for a list")
      .requiredOption(...RECORD_OPTION)
      .option("--none", "a list that is empty")
      .option("--clear", "take the value away again")
      .option("--json", "print JSON")
      .addHelpText(
        "after",
        `
Exit codes:
  0  set, and the record is complete
  2  refused: nothing was changed; every reason is named, never the value
  5  set; other fields are still missing, and are named`,
      )
      .action(run);
  },
};
