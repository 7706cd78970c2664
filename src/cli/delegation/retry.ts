// drawbridge delegation retry: tries a delegation now, with a new deadline.
import { defineCommand } from "../lib/command.ts";
import { ExitCode } from "../lib/exit-codes.ts";
import { CONFIG, JSON_OPTION } from "../lib/options.ts";
import { print } from "../lib/output.ts";
import { delegationId, onLedger } from "../lib/waiting-work.ts";

export const command = defineCommand({
  arguments: [["<id>", "the delegation's number"]],
  options: [CONFIG.bridge, JSON_OPTION],
  help: `
Ends a back-off: a bridge tries it within a second, and its dispatch deadline or reply deadline begins anew. It still
waits for its turn when another question is at the head of its room. An ended delegation cannot be tried again: its
content was deleted. Exit code 1: it is not open, or a bridge works on it.`,
  async run([id], options) {
    const result = await onLedger(options.config, (operations, now) =>
      operations
        .retryDelegation(delegationId(id), now)
        .then((done) => (done ? ("due" as const) : ("unchanged" as const))),
    );
    print(options, { result }, () => TEXTS[result]);
    return result === "unchanged" ? ExitCode.failed : ExitCode.ok;
  },
});

const TEXTS = {
  due: "due now\n",
  unchanged: "it is not open, or a bridge works on it: nothing was changed\n",
} as const;
