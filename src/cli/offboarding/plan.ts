// drawbridge offboarding plan: what each remaining step of a removal would change.
import { planRemoval } from "../../federation/offboarding/steps/status.ts";
import { defineCommand, print } from "../lib/command.ts";
import { planText } from "../lib/federation.ts";
import { openOffboarding, RUN_OPTIONS } from "../lib/offboarding.ts";

export const planCommand = defineCommand({
  options: RUN_OPTIONS,
  help: "\nChanges nothing, and asks no server.",
  async run(_, options) {
    const planned = await planRemoval(await openOffboarding(options), options.runId);
    print(options, planned, () => planText(planned));
  },
});
