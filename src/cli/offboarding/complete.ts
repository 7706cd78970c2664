// drawbridge offboarding complete: probes every plane again, and states and signs that the removal is whole.
import { complete } from "../../federation/offboarding/steps/complete.ts";
import { defineCommand } from "../lib/command.ts";
import { nextLine, openOffboarding, PROBING_RUN_OPTIONS, statusNow } from "../lib/offboarding.ts";
import { print } from "../lib/output.ts";

export const command = defineCommand({
  options: PROBING_RUN_OPTIONS,
  help: `
For the organisation that decided, once both have signed all six stages. Every plane is probed again without
being brought in order, so that one which was opened by hand is noticed; the static tests are run. The partner
then imports, and signs.

Exit codes:
  0  stated and signed; complete once the partner has signed as well
  1  something is in the way, and each is named with its probe, what it got and what to do`,
  async run(_, options) {
    const context = await openOffboarding(options);
    const { run, recordFile } = await complete(context, options.runId);
    const status = statusNow(context, run.run);
    const done =
      recordFile === null ? "The completion is signed." : `COMPLETE; the record verifies: ${recordFile}`;
    print(options, { recordFile, status }, () => `${done}\n${nextLine(status, options)}\n`);
  },
});
