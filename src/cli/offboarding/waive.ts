// drawbridge offboarding waive: answers for something that could not be reached.
import { waive } from "../../federation/offboarding/steps/waive-and-abort.ts";
import { defineCommand } from "../lib/command.ts";
import { nextLine, openOffboarding, RUN_OPTIONS, statusNow } from "../lib/offboarding.ts";
import { print } from "../lib/output.ts";

export const command = defineCommand({
  arguments: [["<subject>", "what was not reached, exactly as it is listed, such as a room ID"]],
  options: [
    ["--reason <word>", "why, as a code or a reference; it is signed and published", { required: true }],
    ["--by <role>", "who answers for it: a role or a staff number; the record's owner when absent"],
    ...RUN_OPTIONS,
  ],
  help: `
Only what a stage that is not signed yet lists as out of reach can be waived; what is open cannot.

Exit codes:
  0  waived; it stands in the statement of the stage once that is signed
  2  nothing out of reach is called so; nothing was changed`,
  async run([subject], options) {
    const context = await openOffboarding(options);
    const { reason, by, runId } = options;
    const { run, left } = await waive(context, subject, { reason, by, run: runId });
    const status = statusNow(context, run.run);
    const rest =
      left.length === 0 ? "Nothing else is out of reach." : `Still out of reach: ${left.join(", ")}`;
    print(options, { waived: subject, left, status }, () => `${rest}\n${nextLine(status, options)}\n`);
  },
});
