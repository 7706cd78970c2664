// drawbridge gateway: runs the gateway of one organisation.
import { resolve } from "node:path";
import process from "node:process";
import type { Command } from "commander";
import { systemClock } from "../../domain/clock.ts";
import { serve } from "../../gateway/serve.ts";
import { serviceLog, stopSignal } from "../../runtime/service.ts";
import type { CommandModule } from "../lib/command.ts";
import { CONFIG, requireConfigFile } from "../lib/config-option.ts";

export const command: CommandModule = {
  register(program: Command): void {
    program
      .option(...CONFIG.gateway)
      .addHelpText(
        "after",
        `
Runs Envoy on the rendered configuration, in the foreground, until SIGTERM. Beside its own file it follows
the two that say which cards are public and who may call (publicationFile, invocationFile). A change of any
of them is validated and taken up live; a file that cannot be used leaves the last good one in force. What
is in force stands in the state file. Standard output is a log, one JSON object a line; the line with
"event":"ready" says that the gateway serves.`,
      )
      .action(async (options: { config: string }) => {
        requireConfigFile(options.config, CONFIG.gateway);
        process.exitCode = await serve({
          configFile: resolve(options.config),
          clock: systemClock,
          log: serviceLog("gateway"),
          stop: stopSignal(),
        });
      });
  },
};
