// drawbridge offboarding complete: states that the removal is whole, after every plane was probed again.
import { complete } from "../../federation/offboarding/steps/sign-and-complete.ts";
import { defineCommand } from "../lib/command.ts";
import { openOffboarding, PROBE_OPTIONS, printDone } from "../lib/offboarding.ts";

export const completeCommand = defineCommand({
  options: PROBE_OPTIONS,
  help: `
For the organisation that decided, once both have signed all six stages. Every plane is probed again without
being brought in order, so that one which was opened by hand is noticed; the static tests are run. The partner
then imports, and signs.`,
  async run(_, options) {
    const context = await openOffboarding(options);
    const { run, recordFile } = await complete(context, options.runId);
    printDone(context, run, options, {}, () => (recordFile === null ? ["The completion is signed."] : []));
  },
});
