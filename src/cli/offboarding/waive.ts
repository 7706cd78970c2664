// drawbridge offboarding waive: accepts that something could not be reached, in the name of who answers for it.
import { waive } from "../../federation/offboarding/steps/waive-or-abort.ts";
import { defineCommand, required } from "../lib/command.ts";
import { openOffboarding, printDone, RUN_OPTIONS } from "../lib/offboarding.ts";

export const waiveCommand = defineCommand({
  arguments: [["<subject>", "what was not reached, exactly as it is listed, such as a room ID"]],
  options: [
    required("--reason <word>", "why, as a code or a reference; it is signed and published"),
    ["--by <role>", "who answers for it: a role or a staff number; the record's owner when absent"],
    ...RUN_OPTIONS,
  ],
  help: `
Only what a stage that is not signed yet lists as out of reach can be waived, also where it was observed open, which
the record then says; what is open within reach cannot.`,
  async run([subject], options) {
    const context = await openOffboarding(options);
    const { reason, by, runId } = options;
    const { run, left } = await waive(context, subject, { reason, by, run: runId });
    printDone(context, run, options, { waived: subject, left }, () => [
      left.length === 0 ? "Nothing else is out of reach." : `Still out of reach: ${left.join(", ")}`,
    ]);
  },
});
