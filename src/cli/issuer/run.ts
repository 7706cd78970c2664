// drawbridge issuer: runs the one-machine token issuer.
import { once } from "node:events";
import { systemClock } from "../../domain/clock.ts";
import { loadIssuerConfig } from "../../issuer/config.ts";
import { startIssuer } from "../../issuer/server.ts";
import { serviceLog, stopSignal } from "../../runtime/service.ts";
import { defineCommand } from "../lib/command.ts";
import { CONFIG, requireConfigFile } from "../lib/options.ts";

export const command = defineCommand({
  options: [CONFIG.issuer],
  help: `
Issues OAuth 2.0 access tokens to declared clients, in the foreground, until SIGTERM. The clients' file
and their secrets are read again at each request. The log line with "event":"ready" says that it serves.`,
  async run(_, options) {
    requireConfigFile(options.config, "issuer");
    const log = serviceLog("issuer");
    const stop = stopSignal();
    const config = loadIssuerConfig(options.config);
    const issuer = await startIssuer(config, log, systemClock);
    log.info({ event: "ready", listen: issuer.address, url: config.url }, "the issuer is serving");
    if (!stop.aborted) await once(stop, "abort");
    await issuer.close();
  },
});
