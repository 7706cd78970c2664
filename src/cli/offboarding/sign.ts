// drawbridge offboarding sign: signs what was shown here, and what the other organisation has stated.
import { sign } from "../../federation/offboarding/steps/sign.ts";
import { defineCommand } from "../lib/command.ts";
import { nextLine, openOffboarding, PROBING_RUN_OPTIONS, statusNow } from "../lib/offboarding.ts";
import { print } from "../lib/output.ts";

export const command = defineCommand({
  options: PROBING_RUN_OPTIONS,
  help: `
Signs every stage of one's own that was shown closed, and countersigns what was imported. Before a completion
is countersigned, every plane is probed again (with --probe-config from outside as well). Nothing is signed twice.

Exit codes:
  0  signed
  1  something does not hold and is named, or there is nothing to sign
  2  the signing key cannot be used`,
  async run(_, options) {
    const context = await openOffboarding(options);
    const { run, signed, countersigned, recordFile } = await sign(context, options.runId);
    const status = statusNow(context, run.run);
    const lines = [
      ...signed.map((stage) => `signed: ${stage} of ${run.self}`),
      ...countersigned.map((place) => `countersigned: ${place}`),
      ...(recordFile === null ? [] : [`COMPLETE; the record verifies: ${recordFile}`]),
      nextLine(status, options),
    ];
    print(options, { signed, countersigned, recordFile, status }, () => `${lines.join("\n")}\n`);
  },
});
