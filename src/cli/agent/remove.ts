// drawbridge agent remove: takes an agent away that `agent add` has added.
import { withdrawAgent } from "../../federation/agents/withdraw.ts";
import { changeIdentity, IDENTITY_EXIT_CODES } from "../lib/agent-identity.ts";
import { defineCommand } from "../lib/command.ts";
import { CONFIG, JSON_OPTION } from "../lib/options.ts";

export const command = defineCommand({
  arguments: [["<agent>", "its name under consumes in registry/organisation.yaml"]],
  options: [CONFIG.federation, JSON_OPTION],
  help: `
Its entry goes, and the bridge carries it no more; its ghost stays in its rooms and answers that the agent is no longer
offered. Its key is not retired: it may be added again. For a key that must never be trusted again: agent withdraw.${IDENTITY_EXIT_CODES}`,
  run: ([agent], options) =>
    changeIdentity(options, (context, parts) => withdrawAgent(context, parts, { agent, keepsKey: true })),
});
