// drawbridge bridge registration: writes the appservice registration file of a bridge.
// Invariant: a registration with other tokens is not overwritten unless asked for, because a homeserver that
// still has the old one would be cut off.
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { parse } from "yaml";
import { loadBridgeConfig } from "../../bridge/config.ts";
import { type AppserviceTokens, renderRegistration } from "../../bridge/setup/registration.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { readSecret } from "../../runtime/secrets.ts";
import { replacePrivateFile } from "../../runtime/write-file.ts";
import { defineCommand } from "../lib/command.ts";
import { CONFIG, requireConfigFile } from "../lib/options.ts";
import { printData, printText, say } from "../lib/output.ts";

export const command = defineCommand({
  options: [
    CONFIG.bridge,
    ["-o, --output <file>", "where to write it, - for standard output"],
    ["--force", "replace a registration that has other tokens"],
  ],
  run(_, options) {
    requireConfigFile(options.config, "bridge");
    const config = loadBridgeConfig(options.config);
    const tokens = {
      asToken: readSecret(config.appservice.asToken, config.directory),
      hsToken: readSecret(config.appservice.hsToken, config.directory),
    };
    const rendered = renderRegistration(config, tokens);
    if (options.output === "-") {
      printData(rendered);
      return;
    }
    const file = resolve(options.output ?? join(config.directory, "registration.yaml"));
    if (options.force !== true && !isSafeToReplace(file, tokens)) {
      throw new DrawbridgeError("usage", `${file} holds another registration`, {
        hint: "If the homeserver is to learn the new tokens, run it again with --force, then restart the homeserver.",
      });
    }
    replacePrivateFile(file, rendered);
    printText(`${file}\n`);
    say("Add it to app_service_config_files in homeserver.yaml and restart the homeserver.");
  },
});

/** Whether there is no file, or one with the same tokens. */
function isSafeToReplace(file: string, tokens: AppserviceTokens): boolean {
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "ENOENT";
  }
  try {
    const found = parse(text) as { as_token?: unknown; hs_token?: unknown } | null;
    return found?.as_token === tokens.asToken && found.hs_token === tokens.hsToken;
  } catch {
    return false;
  }
}
