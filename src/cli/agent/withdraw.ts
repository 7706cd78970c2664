// drawbridge agent withdraw: takes one agent away between us and one partner.
import { withdrawAgent } from "../../federation/agents/withdraw.ts";
import { changeIdentity, IDENTITY_EXIT_CODES } from "../lib/agent-identity.ts";
import { defineCommand } from "../lib/command.ts";
import { CONFIG, JSON_OPTION } from "../lib/options.ts";

export const command = defineCommand({
  arguments: [
    ["<partner>", "server name, or name of the registry file; our own server for an agent of ours"],
    ["<agent>", "its agent that our bridge carries, or an agent of ours that it may invoke"],
  ],
  options: [CONFIG.federation, JSON_OPTION],
  help: `
An agent that our bridge carries: its entry goes, its pin is retired, and the bridge quarantines it at once.
An agent of ours: the partner may invoke it no more (its authorization, and the card where nobody else consumes
it). Everything else of the partner, and planes 1 to 3, stay as they are.${IDENTITY_EXIT_CODES}`,
  run: ([partner, agent], options) =>
    changeIdentity(options, (context, parts) => withdrawAgent(context, parts, { partner, agent })),
});
