// What a command of the CLI is: its arguments, its options, its help, and what it does; and the options that several share.
// Invariants: data goes to standard output, everything else to standard error; where no configuration is named, the file of
// its usual name in the current folder is meant, and the help and the error both say so.
import { existsSync } from "node:fs";
import { resolve } from "node:path";
import process from "node:process";
import { type Command, InvalidArgumentError, Option } from "commander";
import { DrawbridgeError } from "../../domain/errors.ts";
import { parseServerName } from "../../domain/identifiers.ts";
import type { ExitCode } from "./exit-codes.ts";

/** Gives a command of commander's its arguments, options, help and action. */
export type CommandModule = (command: Command) => void;

/** `<name>` is needed, `<name...>` is a list of them, and `[name]` is not needed. */
type ArgumentSpec = readonly [name: string, description: string];

interface OptionSettings {
  readonly required?: true;
  readonly default?: string | number;
  readonly choices?: readonly string[];
  readonly parse?: (text: string) => unknown;
}

/** Flags as commander writes them, such as `-o, --output <file>`. */
export type OptionSpec = readonly [flags: string, description: string, settings?: OptionSettings];

type ArgumentValue<Spec extends ArgumentSpec> = Spec[0] extends `<${string}...>`
  ? readonly string[]
  : Spec[0] extends `<${string}>`
    ? string
    : string | undefined;

type ArgumentValues<Specs extends readonly ArgumentSpec[]> = {
  readonly [Index in keyof Specs]: ArgumentValue<Specs[Index]>;
};

export type CamelCase<Text extends string> = Text extends `${infer Head}-${infer Rest}`
  ? `${Head}${Capitalize<CamelCase<Rest>>}`
  : Text;
type LongName<Flags extends string> = Flags extends `${string}--${infer Rest}`
  ? Rest extends `${infer Name} ${string}`
    ? Name
    : Rest
  : never;

type OptionValue<Spec extends OptionSpec> = Spec[2] extends { readonly parse: (text: string) => infer Value }
  ? Value | (Spec[2] extends { readonly default: unknown } | { readonly required: true } ? never : undefined)
  : Spec[2] extends { readonly default: string } | { readonly required: true }
    ? string
    : Spec[2] extends { readonly choices: readonly (infer Choice)[] }
      ? Choice | undefined
      : Spec[0] extends `${string}<${string}`
        ? string | undefined
        : boolean | undefined;

export type OptionValues<Specs extends readonly OptionSpec[]> = {
  readonly [Spec in Specs[number] as CamelCase<LongName<Spec[0]>>]: OptionValue<Spec>;
};

/** Defines a command. `run` throws DrawbridgeError when it fails, and returns another exit code than 0 for a no. */
export function defineCommand<
  const Arguments extends readonly ArgumentSpec[] = readonly [],
  const Options extends readonly OptionSpec[] = readonly [],
>(definition: {
  readonly arguments?: Arguments;
  readonly options?: Options;
  readonly help?: string;
  run(words: ArgumentValues<Arguments>, options: OptionValues<Options>): Result | Promise<Result>;
}): CommandModule {
  return (command) => {
    for (const spec of definition.arguments ?? []) command.argument(...spec);
    for (const spec of definition.options ?? []) command.addOption(optionOf(spec));
    if (definition.help !== undefined) command.addHelpText("after", definition.help);
    command.action(async (...given: unknown[]) => {
      // Commander passes the arguments, then the options, then the command.
      const words = given.slice(0, -2) as unknown as ArgumentValues<Arguments>;
      const exitCode = await definition.run(words, given.at(-2) as OptionValues<Options>);
      if (exitCode !== undefined) process.exitCode = exitCode;
    });
  };
}

// biome-ignore lint/suspicious/noConfusingVoidType: a command without an answer of its own returns nothing
type Result = ExitCode | undefined | void;

function optionOf([flags, description, settings = {}]: OptionSpec): Option {
  const option = new Option(flags, description).makeOptionMandatory(settings.required === true);
  if (settings.default !== undefined) option.default(settings.default);
  if (settings.choices !== undefined) option.choices(settings.choices);
  const { parse } = settings;
  // Commander passes the value before as well.
  if (parse !== undefined) option.argParser((text) => parse(text));
  return option;
}

export const PARTNER = ["<partner>", "server name, or name of the registry file"] as const;

/** Options that several commands share: `--config` of the program that is named, and others. */
export const OPTION = {
  bridge: ["-c, --config <file>", "the bridge's configuration", { default: "bridge.yaml" }],
  federation: ["-c, --config <file>", "the deployment's configuration", { default: "federation.yaml" }],
  gateway: ["-c, --config <file>", "the gateway's configuration", { default: "gateway.yaml" }],
  issuer: ["-c, --config <file>", "the issuer's configuration", { default: "issuer.yaml" }],
  probe: ["--probe-config <file>", "a probe.yaml: probe from outside as well, as the partner"],
  json: ["--json", "print JSON"],
} as const;

export function required<const Flags extends string>(flags: Flags, description: string) {
  return [flags, description, { required: true }] as const;
}

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
    required("-d, --directory <directory>", "the folder to write"),
    ["--server-name <name>", "the homeserver's name, such as example.org", REQUIRED_SERVER],
    ["--homeserver-url <url>", `its client-server API as ${by} reaches it`, REQUIRED_URL],
  ] as const;
}
const REQUIRED_SERVER = { required: true, parse: parser("Matrix server name", parseServerName) } as const;
const REQUIRED_URL = { required: true, parse: httpUrl } as const;

type Program = "bridge" | "federation" | "gateway" | "issuer";

/** What `load` makes of a configuration file. @throws DrawbridgeError `config_unreadable` when there is no such file */
export function fromConfigFile<T>(file: string, kind: Program, load: (file: string) => T): T {
  if (existsSync(file)) return load(file);
  const [, what, { default: usual }] = OPTION[kind];
  throw new DrawbridgeError("config_unreadable", `there is no ${resolve(file)}`, {
    hint: `Name ${what} with --config FILE, or go to the folder that holds ${usual}: that is read when none is named.`,
  });
}
