// drawbridge docs-qa: runs the sample agent.
import { once } from "node:events";
import type { Command } from "commander";
import { startAgent } from "../docs-qa/agent.ts";
import { loadDocsQaConfig } from "../docs-qa/config.ts";
import { systemClock } from "../domain/clock.ts";
import { serviceLog, stopSignal } from "../runtime/service.ts";
import type { CommandModule } from "./command.ts";
import { CONFIG, requireConfigFile } from "./config-option.ts";

export const command: CommandModule = {
  register(program: Command): void {
    program
      .option(...CONFIG.docsQa)
      .addHelpText(
        "after",
        `
Answers questions from a folder of Markdown over A2A 1.0, in the foreground, until SIGTERM. Put the
gateway in front: the agent believes the caller's name that the gateway sends. The log line with
"event":"ready" says that it serves.`,
      )
      .action(async (options: { config: string }) => {
        requireConfigFile(options.config, CONFIG.docsQa);
        const log = serviceLog("docs-qa");
        const stop = stopSignal();
        const config = loadDocsQaConfig(options.config);
        const agent = await startAgent(config, { clock: systemClock, log });
        log.info({ event: "ready", url: agent.url, name: config.name }, "the agent is serving");
        if (!stop.aborted) await once(stop, "abort");
        await agent.close();
      });
  },
};
