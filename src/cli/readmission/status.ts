// drawbridge readmission status: where a re-admission is, and what is next.
import { requireReadmission } from "../../federation/readmission/readmission.ts";
import { acceptedState } from "../../federation/reconcile/accept-head.ts";
import { findPartner } from "../../federation/registry/partner.ts";
import { defineCommand, OPTION, PARTNER } from "../lib/command.ts";
import { openForCommand } from "../lib/federation.ts";
import { printDone } from "../lib/readmission.ts";

export const statusCommand = defineCommand({
  arguments: [PARTNER],
  options: [OPTION.federation, OPTION.json],
  async run([partner], options) {
    const federation = await openForCommand(options.config);
    const { registry, revision } = (await acceptedState(federation)).desired;
    const entry = findPartner(registry, partner);
    const readmission = await requireReadmission(federation, revision, entry.partner);
    printDone(options, readmission, partner, undefined, (status) => status);
    return readmission.done ? "ok" : "incomplete";
  },
});
