// drawbridge offboarding sign: signs what was shown here, and what the other organisation has stated.
import { sign } from "../../federation/offboarding/workflow/sign.ts";
import { defineCommand } from "../lib/command.ts";
import { nextLine, openOffboarding, PROBING_RUN_OPTIONS, statusNow } from "../lib/offboarding.ts";
import { print } from "../lib/output.ts";
import { EXPORT_OPTION, exportIfNamed, signedLines } from "../lib/signing.ts";

export const command = defineCommand({
  options: [...PROBING_RUN_OPTIONS, EXPORT_OPTION],
  help: `
Signs every stage of one's own that was shown closed, and countersigns what was imported. Before a completion
is countersigned, every plane is probed again (with --probe-config from outside as well). Nothing is signed twice.

Exit codes:
  0  signed
  1  something does not hold and is named, or there is nothing to sign
  2  the signing key cannot be used`,
  async run(_, options) {
    const context = await openOffboarding(options);
    const result = await sign(context, options.runId);
    const { run, signed, countersigned, recordFile } = result;
    await exportIfNamed(context, run, options.export);
    const status = statusNow(context, run.run);
    const lines = [...signedLines(run, result), nextLine(status, options)];
    print(options, { signed, countersigned, recordFile, status }, () => `${lines.join("\n")}\n`);
  },
});
