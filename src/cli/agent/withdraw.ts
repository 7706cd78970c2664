// drawbridge agent withdraw: one agent less between us and one partner.
import process from "node:process";
import type { Command } from "commander";
import { systemClock } from "../../domain/clock.ts";
import { agentParts } from "../../federation/agents/proof.ts";
import { withdrawAgent } from "../../federation/agents/withdraw.ts";
import { IDENTITY_EXIT_CODES, report } from "../lib/agent-report.ts";
import type { CommandModule } from "../lib/command.ts";
import { CONFIG_OPTION, openForCommand, say } from "../lib/federation-options.ts";

export const command: CommandModule = {
  register(program: Command): void {
    program
      .argument("<partner>", "server name, or name of the registry file; our own server for an agent of ours")
      .argument("<agent>", "its agent that our bridge carries, or an agent of ours that it may invoke")
      .option(...CONFIG_OPTION)
      .option("--json", "print JSON")
      .addHelpText(
        "after",
        `
An agent that our bridge carries: its entry goes, its pin is retired, and the bridge quarantines it at once.
An agent of ours: the partner may invoke it no more (its authorization, and the card where nobody else consumes
it). Everything else of the partner, and planes 1 to 3, stay as they are.${IDENTITY_EXIT_CODES}`,
      )
      .action(async (partner: string, agent: string, options: { config: string; json?: boolean }) => {
        const { config, federation } = await openForCommand(options.config);
        const context = { ...federation, onWait: () => say("another change is being committed; waiting") };
        const result = await withdrawAgent(context, agentParts(config, systemClock), { partner, agent });
        process.exitCode = report(federation, result, options.json === true);
      });
  },
};
