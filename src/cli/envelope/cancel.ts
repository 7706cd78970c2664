// drawbridge envelope cancel: ends the wait for a key.
import { defineCommand } from "../lib/command.ts";
import { ExitCode } from "../lib/exit-codes.ts";
import { CONFIG, JSON_OPTION } from "../lib/options.ts";
import { print } from "../lib/output.ts";
import { onLedger } from "../lib/waiting-work.ts";

export const command = defineCommand({
  arguments: [["<event>", "the event ID of the encrypted event"]],
  options: [CONFIG.bridge, JSON_OPTION],
  help: `
The event is never read, and its room continues. Exit code 1: it does not wait.`,
  async run([id], options) {
    const result = await onLedger(options.config, (operations, now) =>
      operations.cancelEnvelope(id, now).then((done) => (done ? ("ended" as const) : ("unchanged" as const))),
    );
    print(options, { result }, () => TEXTS[result]);
    return result === "unchanged" ? ExitCode.failed : ExitCode.ok;
  },
});

const TEXTS = {
  ended: "the wait has ended\n",
  unchanged: "it does not wait: nothing was changed\n",
} as const;
