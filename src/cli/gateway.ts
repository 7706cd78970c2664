// drawbridge gateway: runs the gateway.
import { resolve } from "node:path";
import process from "node:process";
import { systemClock } from "../domain/clock.ts";
import { serve } from "../gateway/serve.ts";
import { serviceLog, stopSignal } from "../runtime/service.ts";
import { defineCommand, fromConfigFile, OPTION } from "./lib/command.ts";

export const command = defineCommand({
  options: [OPTION.gateway],
  help: `
Runs Envoy on the rendered configuration, in the foreground, until SIGTERM. Beside its own file it follows
the two that say which cards are public and who may call (publicationFile, invocationFile). A change of any
of them is validated and taken up live; a file that cannot be used leaves the last good one in force. What
is in force stands in the state file. Standard output is a log, one JSON object a line; the line with
"event":"ready" says that the gateway serves.`,
  async run(_, options) {
    const configFile = fromConfigFile(options.config, "gateway", resolve);
    const log = serviceLog("gateway");
    process.exitCode = await serve({ configFile, clock: systemClock, log, stop: stopSignal() });
  },
});
