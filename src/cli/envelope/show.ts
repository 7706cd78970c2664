// drawbridge envelope show: one encrypted event that waited, or waits, for its key.
import { defineCommand } from "../lib/command.ts";
import { CONFIG, JSON_OPTION } from "../lib/options.ts";
import { print } from "../lib/output.ts";
import { envelopeTable, found, inJson, onLedger } from "../lib/waiting-work.ts";

export const command = defineCommand({
  arguments: [["<event>", "the event ID of the encrypted event"]],
  options: [CONFIG.bridge, JSON_OPTION],
  async run([event], options) {
    const one = await onLedger(options.config, (operations) => operations.envelope(event));
    const shown = found(one, "such encrypted event", "drawbridge envelope list");
    print(options, inJson(shown), () => envelopeTable([shown]));
  },
});
