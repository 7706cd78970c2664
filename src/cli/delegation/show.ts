// drawbridge delegation show: one delegation, open or ended.
import { defineCommand } from "../lib/command.ts";
import { CONFIG, JSON_OPTION } from "../lib/options.ts";
import { print } from "../lib/output.ts";
import { delegationId, delegationTable, found, inJson, onLedger } from "../lib/waiting-work.ts";

export const command = defineCommand({
  arguments: [["<id>", "the delegation's number"]],
  options: [CONFIG.bridge, JSON_OPTION],
  help: `
The columns are those of \`drawbridge delegation list\`. Of an ended delegation, LAST REASON is why it ended.`,
  async run([id], options) {
    const one = await onLedger(options.config, (operations, now) =>
      operations.delegation(delegationId(id), now),
    );
    const shown = found(one, "such delegation", "drawbridge delegation list");
    print(options, inJson(shown), () => delegationTable([shown]));
  },
});
