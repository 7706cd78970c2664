// drawbridge offboarding sign: signs what was shown here, and countersigns what the other organisation has stated.
import { sign } from "../../federation/offboarding/steps/sign-and-complete.ts";
import { defineCommand } from "../lib/command.ts";
import { openOffboarding, PROBE_OPTIONS, printDone } from "../lib/offboarding.ts";

export const signCommand = defineCommand({
  options: PROBE_OPTIONS,
  help: `
Signs every stage of one's own that was shown closed, and countersigns what was imported. Before a completion
is countersigned, every plane is probed again (with --probe-config from outside as well). Nothing is signed twice.
Before anything is signed, what the other organisation has waived in it is printed.`,
  async run(_, options) {
    const context = await openOffboarding(options);
    const { run, signed, countersigned } = await sign(context, options.runId);
    printDone(context, run, options, { signed, countersigned }, () => [
      ...signed.map((stage) => `signed: ${stage} of ${run.self}`),
      ...countersigned.map((place) => `countersigned: ${place}`),
    ]);
  },
});
