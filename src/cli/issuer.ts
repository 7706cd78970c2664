// drawbridge issuer: runs the issuer of access tokens, and makes its keys.
import { once } from "node:events";
import { resolve } from "node:path";
import { systemClock } from "../domain/clock.ts";
import { loadIssuerConfig } from "../issuer/config.ts";
import { generateSigningKeys, startIssuer } from "../issuer/server.ts";
import { serviceLog, stopSignal } from "../runtime/service.ts";
import { createFile } from "../runtime/write-file.ts";
import { defineCommand, fromConfigFile, OPTION, printText, renderJson, required } from "./lib/command.ts";

export const command = defineCommand({
  options: [OPTION.issuer],
  help: `
Issues OAuth 2.0 access tokens to declared clients, in the foreground, until SIGTERM. The clients' file
and their secrets are read again at each request. The log line with "event":"ready" says that it serves.`,
  async run(_, options) {
    const config = fromConfigFile(options.config, "issuer", loadIssuerConfig);
    const log = serviceLog("issuer");
    const stop = stopSignal();
    const issuer = await startIssuer(config, log, systemClock);
    log.info({ event: "ready", listen: issuer.address, url: config.url }, "the issuer is serving");
    if (!stop.aborted) await once(stop, "abort");
    await issuer.close();
  },
});

export const keygenCommand = defineCommand({
  options: [required("-o, --output <file>", "where to write them; an existing file is kept and refused")],
  async run(_, options) {
    const file = resolve(options.output);
    const keys = await generateSigningKeys();
    createFile(file, renderJson(keys));
    printText(`${file}\n`);
  },
});
