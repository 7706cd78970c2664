// drawbridge agent remove and withdraw: one agent goes out of use; one of ours that is removed may be added again.
import { withdrawAgent } from "../../federation/agents/withdraw.ts";
import { changeIdentity, PARTNER_OR_US } from "../lib/agent-identity.ts";
import { defineCommand, OPTION } from "../lib/command.ts";

export const removeCommand = defineCommand({
  arguments: [["<agent>", "its name under consumes in registry/organisation.yaml"]],
  options: [OPTION.federation, OPTION.json],
  help: `
Its entry goes, and the bridge carries it no more; its ghost stays in its rooms and answers that the agent is no longer
offered. Its key is not retired: it may be added again. For a key that must never be trusted again: agent withdraw.`,
  run: ([agent], options) => changeIdentity(options, withdrawAgent, { agent, keepsKey: true }),
});

export const withdrawCommand = defineCommand({
  arguments: [
    PARTNER_OR_US,
    ["<agent>", "its agent that our bridge carries, or an agent of ours that it may invoke"],
  ],
  options: [OPTION.federation, OPTION.json],
  help: `
An agent that our bridge carries: its entry goes, its pin is retired, and the bridge quarantines it at once.
An agent of ours: the partner may invoke it no more (its authorization, and the card where nobody else consumes
it). Everything else of the partner, and planes 1 to 3, stay as they are.`,
  run: ([partner, agent], options) => changeIdentity(options, withdrawAgent, { partner, agent }),
});
