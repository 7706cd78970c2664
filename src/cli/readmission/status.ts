// drawbridge readmission status: where it stands, from the records alone.
import process from "node:process";
import type { Command } from "commander";
import { requireReadmission } from "../../federation/readmission/readmission.ts";
import { currentState } from "../../federation/reconcile/assess.ts";
import { findPartner } from "../../federation/registry/find-partner.ts";
import { type CommandModule, ExitCode } from "../lib/command.ts";
import { CONFIG_OPTION, openForCommand } from "../lib/federation-options.ts";
import { renderJson } from "../lib/output.ts";
import { nextCommand, textOf } from "../lib/readmission-options.ts";

export const command: CommandModule = {
  register(program: Command): void {
    program
      .argument("<partner>", "server name, or name of the registry file")
      .option(...CONFIG_OPTION)
      .option("--json", "print JSON")
      .addHelpText(
        "after",
        `
Exit codes:
  0  complete
  2  unknown partner, or none was opened
  5  not complete yet; the command that goes on is printed`,
      )
      .action(async (partner: string, options: { config: string; json?: boolean }) => {
        const { federation } = await openForCommand(options.config);
        const { desired } = await currentState(federation);
        const { serverName } = findPartner(desired.registry, partner).partner;
        const readmission = requireReadmission(federation.state, serverName);
        const next = nextCommand(readmission, partner, options.config);
        if (options.json === true) process.stdout.write(renderJson({ readmission, next: next ?? null }));
        else {
          process.stdout.write(textOf(readmission));
          if (next !== undefined) process.stdout.write(`next: ${next}\n`);
        }
        process.exitCode = readmission.done ? ExitCode.ok : ExitCode.incomplete;
      });
  },
};
