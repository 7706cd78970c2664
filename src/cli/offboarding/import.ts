// drawbridge offboarding import: takes in what the other organisation has signed.
import { readFileSync } from "node:fs";
import process from "node:process";
import type { Command } from "commander";
import { DrawbridgeError } from "../../domain/errors.ts";
import { importStatements } from "../../federation/offboarding/workflow/exchange.ts";
import { type CommandModule, ExitCode } from "../lib/command.ts";
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
import {
  requireSigning,
  type SigningOptions,
  sayFailure,
  signedLines,
  signToo,
  withSigningOptions,
} from "../lib/offboarding-signing.ts";
import { renderJson } from "../lib/output.ts";

type Options = RunOptions & SigningOptions;

export const command: CommandModule = {
  register(program: Command): void {
    withSigningOptions(
      program
        .argument("<file>", "what the other organisation has exported")
        .option(...CONFIG_OPTION)
        .option(...RUN_ID_OPTION)
        .option(...PROBE_OPTION),
    )
      .option(...JSON_OPTION)
      .addHelpText(
        "after",
        `
Every statement is verified against the other organisation's pinned key before anything is taken in. Importing
a file again changes nothing. With --sign, what was taken in is countersigned as well, and what was shown closed
here is signed; before a completion is countersigned, every plane is looked at again (with --probe-config from outside too).

Exit codes:
  0  taken in, and with --sign signed
  1  refused, with every reason; nothing was changed
  2  the file cannot be read, or with --sign the signing key; nothing was changed
  5  with --sign: taken in, and not signed, because something does not hold, which is named`,
      )
      .action(async (file: string, options: Options) => {
        const bytes = read(file);
        const context = await openOffboarding(options);
        requireSigning(context, options);
        const result = await importStatements(context, bytes, options.runId);
        const { run, added } = result;
        const signed = await signToo(context, result, options);
        const recordFile = signed.recordFile ?? result.recordFile;
        const status = statusNow(context, run.run);
        const lines = [
          `taken in: ${added.statements} statements, ${added.signatures} signatures, ${added.evidence} items of evidence`,
          ...signedLines(run, { ...signed, recordFile }),
          nextLine(status, options),
        ];
        const { countersigned } = signed;
        const json = { added, signed: signed.signed, countersigned, recordFile, status };
        process.stdout.write(options.json === true ? renderJson(json) : `${lines.join("\n")}\n`);
        if (sayFailure(signed)) process.exitCode = ExitCode.incomplete;
      });
  },
};

function read(file: string): Buffer {
  try {
    return readFileSync(file);
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code ?? "unknown error";
    throw new DrawbridgeError("usage", `cannot read ${file}: ${code}`, {
      hint: "Check the path and that this user may read the file; nothing was changed.",
      cause,
    });
  }
}
