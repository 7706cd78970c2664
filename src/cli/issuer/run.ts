// drawbridge issuer: runs the one-machine token issuer.
import { once } from "node:events";
import type { Command } from "commander";
import { systemClock } from "../../domain/clock.ts";
import { loadIssuerConfig } from "../../issuer/config.ts";
import { startIssuer } from "../../issuer/server.ts";
import { serviceLog, stopSignal } from "../../runtime/service.ts";
import type { CommandModule } from "../lib/command.ts";
import { CONFIG, requireConfigFile } from "../lib/config-option.ts";

export const command: CommandModule = {
  register(program: Command): void {
    program
      .option(...CONFIG.issuer)
      .addHelpText(
        "after",
        `
Issues OAuth 2.0 access tokens to declared clients, in the foreground, until SIGTERM. The clients' file
and their secrets are read again at each request. The log line with "event":"ready" says that it serves.`,
      )
      .action(async (options: { config: string }) => {
        requireConfigFile(options.config, CONFIG.issuer);
        const log = serviceLog("issuer");
        const stop = stopSignal();
        const config = loadIssuerConfig(options.config);
        const issuer = await startIssuer(config, log, systemClock);
        log.info({ event: "ready", listen: issuer.address, url: config.url }, "the issuer is serving");
        if (!stop.aborted) await once(stop, "abort");
        await issuer.close();
      });
  },
};
