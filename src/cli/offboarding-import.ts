// drawbridge offboarding import: takes in what the other organisation has signed.
import { readFileSync } from "node:fs";
import process from "node:process";
import type { Command } from "commander";
import { DrawbridgeError } from "../domain/errors.ts";
import { importStatements } from "../federation/offboarding/walk/exchange.ts";
import type { CommandModule } from "./command.ts";
import { CONFIG_OPTION } from "./federation-options.ts";
import {
  JSON_OPTION,
  nextLine,
  openOffboarding,
  RUN_OPTION,
  type RunOptions,
  statusNow,
} from "./offboarding-options.ts";
import { renderJson } from "./output.ts";

export const command: CommandModule = {
  register(program: Command): void {
    program
      .argument("<file>", "what the other organisation has exported")
      .option(...CONFIG_OPTION)
      .option(...RUN_OPTION)
      .option(...JSON_OPTION)
      .addHelpText(
        "after",
        `
Every statement is verified against the other organisation's pinned key before anything is taken in. Importing
a file again changes nothing.

Exit codes:
  0  taken in
  1  refused, with every reason; nothing was changed
  2  the file cannot be read`,
      )
      .action(async (file: string, options: RunOptions) => {
        const bytes = read(file);
        const context = await openOffboarding(options);
        const { run, added, recordFile } = await importStatements(context, bytes, options.run);
        const status = statusNow(context, run.run);
        if (options.json === true) {
          process.stdout.write(renderJson({ added, recordFile, status }));
          return;
        }
        const lines = [
          `taken in: ${added.statements} statements, ${added.signatures} signatures, ${added.evidence} items of evidence`,
          ...(recordFile === null ? [] : [`COMPLETE; the record verifies: ${recordFile}`]),
          nextLine(status, options),
        ];
        process.stdout.write(`${lines.join("\n")}\n`);
      });
  },
};

function read(file: string): Buffer {
  try {
    return readFileSync(file);
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code ?? "unknown error";
    throw new DrawbridgeError("usage", `cannot read ${file}: ${code}`, {
      mend: "Check the path and that this user may read the file; nothing was changed.",
      cause,
    });
  }
}
