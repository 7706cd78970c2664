// drawbridge delegation cancel: ends a delegation without an answer.
import { defineCommand } from "../lib/command.ts";
import { ExitCode } from "../lib/exit-codes.ts";
import { CONFIG, JSON_OPTION } from "../lib/options.ts";
import { print } from "../lib/output.ts";
import { delegationId, onLedger } from "../lib/waiting-work.ts";

export const command = defineCommand({
  arguments: [["<id>", "the delegation's number"]],
  options: [CONFIG.bridge, JSON_OPTION],
  help: `
The asker is told, and the room continues. A bridge that works on the delegation ends it within a third of
limits.lease, and tells the agent to cancel its task. Exit code 1: it is not open.`,
  async run([id], options) {
    const result = await onLedger(options.config, (operations, now) =>
      operations.cancelDelegation(delegationId(id), now).then((done) => done ?? ("unchanged" as const)),
    );
    print(options, { result }, () => TEXTS[result]);
    return result === "unchanged" ? ExitCode.failed : ExitCode.ok;
  },
});

const TEXTS = {
  ended: "canceled\n",
  requested: "the bridge that works on it will end it\n",
  unchanged: "it is not open: nothing was changed\n",
} as const;
