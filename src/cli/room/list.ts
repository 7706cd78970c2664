// drawbridge room list: which rooms have open work, and what is at the head of each.
import { defineCommand } from "../lib/command.ts";
import { CONFIG, JSON_OPTION } from "../lib/options.ts";
import { print } from "../lib/output.ts";
import { inJson, onLedger, roomTable } from "../lib/waiting-work.ts";

export const command = defineCommand({
  options: [CONFIG.bridge, JSON_OPTION],
  help: `
The room with the oldest open question comes first. HEAD: the delegation (a number) or the encrypted event whose turn
it is. SINCE: when the oldest open question came.`,
  async run(_, options) {
    const rooms = await onLedger(options.config, (operations) => operations.rooms());
    print(options, rooms.map(inJson), () => roomTable(rooms));
  },
});
