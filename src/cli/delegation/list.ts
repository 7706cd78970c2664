// drawbridge delegation list: which questions are open, and what each waits for.
import { defineCommand } from "../lib/command.ts";
import { CONFIG, JSON_OPTION } from "../lib/options.ts";
import { print } from "../lib/output.ts";
import { delegationTable, inJson, onLedger } from "../lib/waiting-work.ts";

export const command = defineCommand({
  options: [
    CONFIG.bridge,
    ["--room <room>", "only those of this room"],
    ["--agent <agent>", "only those of this agent"],
    JSON_OPTION,
  ],
  help: `
The oldest come first. WAITS FOR: nothing (a bridge works on it), its turn (BEHIND names the delegation or the encrypted
event at the head of its room), next try (after a failure, for LAST REASON), the agent (its task runs), the homeserver
(the answer could not be delivered yet), a bridge (it is due, and no bridge has taken it).`,
  async run(_, { config, room, agent, json }) {
    const open = await onLedger(config, (operations, now) => operations.delegations(now, { room, agent }));
    print({ json }, open.map(inJson), () => delegationTable(open));
  },
});
