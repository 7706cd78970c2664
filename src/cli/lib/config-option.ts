// The `--config` of every command: one default name for a kind of file, and one error when there is none.
// Invariant: where nothing is named, the file of that name in the current folder is meant, and the help and
// the error both say so.
import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { DrawbridgeError } from "../../domain/errors.ts";

/** Arguments of `Command.option`: flags, what the file is, the name that is looked for in the current folder. */
type ConfigOption = readonly [flags: string, what: string, byDefault: string];

function configOption(what: string, byDefault: string): ConfigOption {
  return ["-c, --config <file>", what, byDefault];
}

export const CONFIG = {
  bridge: configOption("the bridge's configuration", "bridge.yaml"),
  federation: configOption("the deployment's configuration", "federation.yaml"),
  gateway: configOption("the gateway's configuration", "gateway.yaml"),
  issuer: configOption("the issuer's configuration", "issuer.yaml"),
} as const;

/** @throws DrawbridgeError `config_unreadable` when there is no such file */
export function requireConfigFile(file: string, [, what, byDefault]: ConfigOption): void {
  if (existsSync(file)) return;
  throw new DrawbridgeError("config_unreadable", `there is no ${resolve(file)}`, {
    hint: `Name ${what} with --config FILE, or go to the folder that holds ${byDefault}: that is read when none is named.`,
  });
}
