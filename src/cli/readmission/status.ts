// drawbridge readmission status: where it stands, from the records alone.

import { requireReadmission } from "../../federation/readmission/readmission.ts";
import { readmissionStatus } from "../../federation/readmission/status.ts";
import { currentState } from "../../federation/reconcile/accept-head.ts";
import { findPartner } from "../../federation/registry/find-partner.ts";
import { defineCommand } from "../lib/command.ts";
import { ExitCode } from "../lib/exit-codes.ts";
import { openForCommand } from "../lib/federation.ts";
import { CONFIG, JSON_OPTION, PARTNER } from "../lib/options.ts";
import { print } from "../lib/output.ts";
import { nextCommand, nextLine, textOf } from "../lib/readmission.ts";

export const command = defineCommand({
  arguments: [PARTNER],
  options: [CONFIG.federation, JSON_OPTION],
  help: `
Exit codes:
  0  complete
  2  unknown partner, or none was opened
  5  not complete yet; the command that goes on is printed`,
  async run([partner], options) {
    const { federation } = await openForCommand(options.config);
    const { desired } = await currentState(federation);
    const { serverName } = findPartner(desired.registry, partner).partner;
    const readmission = requireReadmission(federation.state, serverName);
    const next = nextCommand(readmission, partner, options.config);
    print(
      options,
      { ...readmissionStatus(readmission), next: next ?? null },
      () => `${textOf(readmission)}${nextLine(next)}`,
    );
    return readmission.done ? ExitCode.ok : ExitCode.incomplete;
  },
});
