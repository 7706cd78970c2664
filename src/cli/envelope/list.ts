// drawbridge envelope list: which encrypted events wait for their keys.
import { defineCommand } from "../lib/command.ts";
import { CONFIG, JSON_OPTION } from "../lib/options.ts";
import { print } from "../lib/output.ts";
import { envelopeTable, inJson, onLedger } from "../lib/waiting-work.ts";

export const command = defineCommand({
  options: [CONFIG.bridge, ["--room <room>", "only those of this room"], JSON_OPTION],
  help: `
The oldest come first. An event holds its room for limits.roomGate after it came, and waits for its key until UNTIL.`,
  async run(_, options) {
    const open = await onLedger(options.config, (operations) => operations.envelopes(options.room));
    print(options, open.map(inJson), () => envelopeTable(open));
  },
});
