// Arguments and options that several commands share, and the check of `--config`.
// Invariant: where no configuration is named, the file of its usual name in the current folder is meant, and the
// help and the error both say so.
import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { InvalidArgumentError } from "commander";
import { DrawbridgeError } from "../../domain/errors.ts";
import { parseServerName } from "../../domain/identifiers.ts";

export const PARTNER = ["<partner>", "server name, or name of the registry file"] as const;
export const JSON_OPTION = ["--json", "print JSON"] as const;
export const PROBE_CONFIG = [
  "--probe-config <file>",
  "a probe.yaml: probe from outside as well, as the partner",
] as const;

export const CONFIG = {
  bridge: ["-c, --config <file>", "the bridge's configuration", { default: "bridge.yaml" }],
  federation: ["-c, --config <file>", "the deployment's configuration", { default: "federation.yaml" }],
  gateway: ["-c, --config <file>", "the gateway's configuration", { default: "gateway.yaml" }],
  issuer: ["-c, --config <file>", "the issuer's configuration", { default: "issuer.yaml" }],
} as const;

export function parser<Value>(what: string, parse: (text: string) => Value | undefined) {
  return (text: string): Value => {
    const value = parse(text);
    if (value === undefined) throw new InvalidArgumentError(`It is no ${what}.`);
    return value;
  };
}

export const httpUrl = parser("http or https URL", (text) =>
  /^https?:$/.test(URL.parse(text)?.protocol ?? "") ? text : undefined,
);

export interface DeploymentOptions {
  readonly config: string;
  readonly probeConfig?: string | undefined;
  readonly json?: boolean | undefined;
}

export function startingOptions(by: string) {
  return [
    ["-d, --directory <directory>", "the folder to write", { required: true }],
    ["--server-name <name>", "the homeserver's name, such as example.org", REQUIRED_SERVER],
    ["--homeserver-url <url>", `its client-server API as ${by} reaches it`, REQUIRED_URL],
  ] as const;
}
const REQUIRED_SERVER = { required: true, parse: parser("Matrix server name", parseServerName) } as const;
const REQUIRED_URL = { required: true, parse: httpUrl } as const;

/** What `load` makes of a configuration file. @throws DrawbridgeError `config_unreadable` when there is no such file */
export function fromConfigFile<T>(file: string, kind: keyof typeof CONFIG, load: (file: string) => T): T {
  if (existsSync(file)) return load(file);
  const [, what, { default: usual }] = CONFIG[kind];
  throw new DrawbridgeError("config_unreadable", `there is no ${resolve(file)}`, {
    hint: `Name ${what} with --config FILE, or go to the folder that holds ${usual}: that is read when none is named.`,
  });
}
