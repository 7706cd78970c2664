// drawbridge envelope: encrypted events that wait for their keys.
import { defineCommand } from "./lib/command.ts";
import { CONFIG, JSON_OPTION } from "./lib/options.ts";
import { print } from "./lib/output.ts";
import { changing, envelopeTable, inJson, onLedger, showing } from "./lib/waiting-work.ts";

const EVENT = ["<event>", "the event ID of the encrypted event"] as const;

export const listCommand = defineCommand({
  options: [CONFIG.bridge, ["--room <room>", "only those of this room"], JSON_OPTION],
  help: `
The oldest come first. An event holds its room for limits.roomGate after it came, and waits for its key until UNTIL.`,
  async run(_, options) {
    const open = await onLedger(options.config, (operations) => operations.envelopes(options.room));
    print(options, open.map(inJson), () => envelopeTable(open));
  },
});

export const showCommand = showing(EVENT, "", (operations, event) => operations.envelope(event), {
  ...{ what: "such encrypted event", list: "drawbridge envelope list", table: envelopeTable },
});

export const cancelCommand = changing(
  EVENT,
  `
The event is never read, and its room continues. Exit code 1: it does not wait.`,
  async (operations, id, now) => ((await operations.cancelEnvelope(id, now)) ? "ended" : "unchanged"),
  { ended: "the wait has ended", unchanged: "it does not wait: nothing was changed" },
);

export const retryCommand = changing(
  EVENT,
  `
Exit code 1: it does not wait, or a bridge works on it.`,
  async (operations, id, now) => ((await operations.retryEnvelope(id, now)) ? "due" : "unchanged"),
  { due: "due now", unchanged: "it does not wait, or a bridge works on it: nothing was changed" },
);
