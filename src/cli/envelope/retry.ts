// drawbridge envelope retry: looks for a key now.
import { defineCommand } from "../lib/command.ts";
import { ExitCode } from "../lib/exit-codes.ts";
import { CONFIG, JSON_OPTION } from "../lib/options.ts";
import { print } from "../lib/output.ts";
import { onLedger } from "../lib/waiting-work.ts";

export const command = defineCommand({
  arguments: [["<event>", "the event ID of the encrypted event"]],
  options: [CONFIG.bridge, JSON_OPTION],
  help: `
Exit code 1: it does not wait, or a bridge works on it.`,
  async run([id], options) {
    const result = await onLedger(options.config, (operations, now) =>
      operations.retryEnvelope(id, now).then((done) => (done ? ("due" as const) : ("unchanged" as const))),
    );
    print(options, { result }, () => TEXTS[result]);
    return result === "unchanged" ? ExitCode.failed : ExitCode.ok;
  },
});

const TEXTS = {
  due: "due now\n",
  unchanged: "it does not wait, or a bridge works on it: nothing was changed\n",
} as const;
