// drawbridge issuer: runs the one-machine token issuer, or makes its signing keys.
import { once } from "node:events";
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import process from "node:process";
import type { Command } from "commander";
import { systemClock } from "../domain/clock.ts";
import { DrawbridgeError } from "../domain/errors.ts";
import { loadIssuerConfig } from "../issuer/config.ts";
import { startIssuer } from "../issuer/server.ts";
import { generateSigningKeys } from "../issuer/signing-keys.ts";
import { serviceLog, stopSignal } from "../runtime/service.ts";
import type { CommandModule } from "./command.ts";

export const command: CommandModule = {
  register(program: Command): void {
    // Else the options of a command below would be taken for this one's.
    program.parent?.enablePositionalOptions();
    program
      .enablePositionalOptions()
      .option("--config <file>", "the issuer's configuration", "issuer.yaml")
      .addHelpText(
        "after",
        `
Issues OAuth 2.0 access tokens to declared clients, in the foreground, until SIGTERM. The clients' file
and their secrets are read again at each request. The log line with "event":"ready" says that it serves.`,
      )
      .action(async (options: { config: string }) => {
        const log = serviceLog("issuer");
        const stop = stopSignal();
        const config = loadIssuerConfig(options.config);
        const issuer = await startIssuer(config, log, systemClock);
        log.info({ event: "ready", listen: issuer.address, url: config.url }, "the issuer is serving");
        if (!stop.aborted) await once(stop, "abort");
        await issuer.close();
      });
    program
      .command("keygen")
      .description("make a set of one new signing key")
      .requiredOption("-o, --out <file>", "where to write it; an existing file is kept and refused")
      .action(async (options: { out: string }) => {
        await writeKeys(resolve(options.out));
      });
  },
};

async function writeKeys(file: string): Promise<void> {
  const keys = await generateSigningKeys();
  mkdirSync(dirname(file), { recursive: true });
  try {
    writeFileSync(file, `${JSON.stringify(keys, null, 2)}\n`, { mode: 0o600, flag: "wx" });
  } catch (cause) {
    throw new DrawbridgeError("usage", `cannot write ${file}`, {
      mend: "Name a file that does not exist yet; a key in use is never overwritten.",
      cause,
    });
  }
  process.stdout.write(`${file}\n`);
}
