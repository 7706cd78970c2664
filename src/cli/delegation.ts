// drawbridge delegation: the questions that a bridge has taken.
import type { OpenDelegation } from "../bridge/ledger/operator-commands.ts";
import { defineCommand, OPTION, print } from "./lib/command.ts";
import type { Subject } from "./lib/waiting-work.ts";
import { changing, delegationTable, inJson, notListed, onLedger, showing } from "./lib/waiting-work.ts";

const LIST = "drawbridge delegation list";
const DELEGATION: Subject<OpenDelegation> = {
  argument: ["<id>", "the delegation's number"],
  what: "such delegation",
  list: LIST,
  find: (operations, id, now) => {
    if (/^[0-9]{1,18}$/.test(id)) return operations.delegation(id, now);
    throw notListed("a delegation is named by its number", LIST);
  },
};

export const listCommand = defineCommand({
  options: [OPTION.bridge, ["--room <room>", "only those of this room"], OPTION.json],
  help: `
The oldest come first. WAITS FOR: nothing (a bridge works on it), its turn (BEHIND names the delegation or the encrypted
event at the head of its room), next try (after a failure, for LAST REASON), the agent (its task runs), the asker (the agent has
asked something back), the homeserver (an answer or a question could not be delivered yet), a bridge
(it is due, and no bridge has taken it), its cancellation (it was canceled, and a bridge has yet to end it).`,
  async run(_, { config, room, json }) {
    const open = await onLedger(config, (operations, now) => operations.delegations(now, room));
    print({ json }, open.map(inJson), () => delegationTable(open));
  },
});

export const showCommand = showing(
  DELEGATION,
  `
The columns are those of \`${LIST}\`. Of an ended delegation, LAST REASON is why it ended.`,
  delegationTable,
);

export const cancelCommand = changing(
  DELEGATION,
  `
The asker is told, and the room continues. A bridge that works on the delegation notices it within a third of
limits.lease, tells the agent to cancel its task, for which it waits 15 s at most, and ends it. Exit code 1: it is not open.`,
  async (operations, { id }, now) => (await operations.cancelDelegation(id, now)) ?? "unchanged",
  { ended: "canceled", requested: "the bridge that works on it will end it", unchanged: "it is not open" },
);

export const retryCommand = changing(
  DELEGATION,
  `
Ends a back-off: a bridge tries it within a second, and its dispatch deadline or reply deadline begins anew. It still
waits for its turn when another question is at the head of its room. An ended delegation cannot be tried again: its
content was deleted. Exit code 1: it is not open, or a bridge works on it.`,
  async (operations, { id }, now) => ((await operations.retryDelegation(id, now)) ? "due" : "unchanged"),
  { due: "due now", unchanged: "it is not open, or a bridge works on it" },
);
