// drawbridge envelope: the encrypted events that wait for their keys.
import type { OpenEnvelope } from "../bridge/ledger/operator-commands.ts";
import { defineCommand, OPTION, print } from "./lib/command.ts";
import { changing, envelopeTable, inJson, onLedger, type Subject, showing } from "./lib/waiting-work.ts";

const ENVELOPE: Subject<OpenEnvelope> = {
  argument: ["<event>", "the event ID of the encrypted event"],
  what: "such encrypted event",
  list: "drawbridge envelope list",
  find: (operations, event) => operations.envelope(event),
};

export const listCommand = defineCommand({
  options: [OPTION.bridge, ["--room <room>", "only those of this room"], OPTION.json],
  help: `
The oldest come first. An event holds its room for limits.roomGate after it came, and waits for its key until UNTIL.`,
  async run(_, options) {
    const open = await onLedger(options.config, (operations) => operations.envelopes(options.room));
    print(options, open.map(inJson), () => envelopeTable(open));
  },
});

export const showCommand = showing(ENVELOPE, "", envelopeTable);

export const cancelCommand = changing(
  ENVELOPE,
  `
The event is never read, and its room continues. Exit code 1: it does not wait.`,
  async (operations, { event }, now) =>
    (await operations.cancelEnvelope(event, now)) ? "ended" : "unchanged",
  { ended: "the wait has ended", unchanged: "it does not wait" },
);

export const retryCommand = changing(
  ENVELOPE,
  `
Exit code 1: it does not wait, or a bridge works on it.`,
  async (operations, { event }, now) => ((await operations.retryEnvelope(event, now)) ? "due" : "unchanged"),
  { due: "due now", unchanged: "it does not wait, or a bridge works on it" },
);
