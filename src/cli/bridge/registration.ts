// drawbridge bridge registration: writes the appservice registration. Invariant: one with other tokens is not overwritten
// unless asked for, because a homeserver that still has the old one would be cut off.
import { join, resolve } from "node:path";
import { parse } from "yaml";
import { loadBridgeConfig } from "../../bridge/config.ts";
import { type AppserviceTokens, renderRegistration } from "../../bridge/setup/registration.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { readSecret } from "../../runtime/secrets.ts";
import { readIfPresent, replacePrivateFile } from "../../runtime/write-file.ts";
import { defineCommand, fromConfigFile, OPTION, printText, say } from "../lib/command.ts";

export const registrationCommand = defineCommand({
  options: [
    OPTION.bridge,
    ["-o, --output <file>", "where to write it; beside the configuration when absent"],
    ["--force", "replace a registration that has other tokens"],
  ],
  run(_, options) {
    const config = fromConfigFile(options.config, "bridge", loadBridgeConfig);
    const tokens = {
      asToken: readSecret(config.appservice.asToken, config.directory),
      hsToken: readSecret(config.appservice.hsToken, config.directory),
    };
    const rendered = renderRegistration(config, tokens);
    const file = resolve(options.output ?? join(config.directory, "registration.yaml"));
    if (options.force !== true && !isSafeToReplace(file, tokens)) {
      throw new DrawbridgeError("usage", `${file} holds another registration`, {
        hint: "If the homeserver is to learn the new tokens, run it again with --force, give it to the homeserver, then restart that and every bridge process.",
      });
    }
    replacePrivateFile(file, rendered);
    printText(`${file}\n`);
    say("Add it to app_service_config_files in homeserver.yaml and restart the homeserver.");
  },
});

function isSafeToReplace(file: string, tokens: AppserviceTokens): boolean {
  try {
    const text = readIfPresent(file);
    if (text === undefined) return true;
    const found = parse(text) as { as_token?: unknown; hs_token?: unknown } | null;
    return found?.as_token === tokens.asToken && found.hs_token === tokens.hsToken;
  } catch {
    return false;
  }
}
