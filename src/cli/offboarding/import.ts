// drawbridge offboarding import: takes in what the other organisation has signed.
import { importStatements } from "../../federation/offboarding/workflow/exchange.ts";
import { defineCommand } from "../lib/command.ts";
import { ExitCode } from "../lib/exit-codes.ts";
import { readInput } from "../lib/input.ts";
import { nextLine, openOffboarding, PROBING_RUN_OPTIONS, statusNow } from "../lib/offboarding.ts";
import { print } from "../lib/output.ts";
import { reportFailure, requireSigning, SIGNING_OPTIONS, signedLines, signIfAsked } from "../lib/signing.ts";

export const command = defineCommand({
  arguments: [["<file>", "what the other organisation has exported"]],
  options: [...PROBING_RUN_OPTIONS, ...SIGNING_OPTIONS],
  help: `
Every statement is verified against the other organisation's pinned key before anything is taken in. Importing
a file again changes nothing. With --sign, what was taken in is countersigned as well, and what was shown closed
here is signed; before a completion is countersigned, every plane is probed again (with --probe-config from outside
too).

Exit codes:
  0  taken in, and with --sign signed
  1  refused, with every reason; nothing was changed
  2  the file cannot be read, or with --sign the signing key; nothing was changed
  5  with --sign: taken in, and not signed, because something does not hold, which is named`,
  async run([file], options) {
    const bytes = readInput(file, {
      code: "usage",
      hint: "Check the path and that this user may read the file; nothing was changed.",
    });
    const context = await openOffboarding(options);
    requireSigning(context, options);
    const result = await importStatements(context, bytes, options.runId);
    const { run, added } = result;
    const signing = await signIfAsked(context, result, options);
    const { signed, countersigned } = signing;
    const recordFile = signing.recordFile ?? result.recordFile;
    const status = statusNow(context, run.run);
    const lines = [
      `taken in: ${added.statements} statements, ${added.signatures} signatures, ${added.evidence} items of evidence`,
      ...signedLines(run, { signed, countersigned, recordFile }),
      nextLine(status, options),
    ];
    print(options, { added, signed, countersigned, recordFile, status }, () => `${lines.join("\n")}\n`);
    return reportFailure(signing) ? ExitCode.incomplete : ExitCode.ok;
  },
});
