// drawbridge offboarding plan: what each remaining step would change, interrupt and restart.
import { planRemoval } from "../../federation/offboarding/steps/status.ts";
import { defineCommand } from "../lib/command.ts";
import { openOffboarding, RUN_OPTIONS } from "../lib/offboarding.ts";
import { print } from "../lib/output.ts";
import { planText } from "../lib/steps.ts";

export const command = defineCommand({
  options: RUN_OPTIONS,
  help: "\nChanges nothing, and asks no server.",
  async run(_, options) {
    const planned = await planRemoval(await openOffboarding(options), options.runId);
    print(options, planned, () => planText(planned));
  },
});
