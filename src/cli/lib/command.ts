// What a command of the CLI is (its arguments, options and help, and what it does), how a command line is run to its end,
// and what it prints: data to standard output, as text or as JSON for scripts; everything else to standard error.
// Invariants: all that the CLI prints is printed here; no control character and no mark that reorders or hides text
// reaches a terminal, whatever an identifier holds, except in data that programs read by bytes; where no configuration is
// named, the file of its usual name in the current folder is meant, and the help and the error both say so.
import { existsSync } from "node:fs";
import { resolve } from "node:path";
import process from "node:process";
import { type Command, CommanderError, InvalidArgumentError, Option } from "commander";
import { hexOfDigest, isDigest } from "../../domain/digest.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { parseServerName } from "../../domain/identifiers.ts";
import { printableLine, printableText } from "../../domain/printable.ts";
import { type Ending, ExitCode, endingOf } from "./exit-codes.ts";

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

/** Defines a command. `run` throws DrawbridgeError when it fails, and returns another ending than `ok` for a no. */
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
    for (const [flags, description, settings = {}] of definition.options ?? []) {
      const { required, default: usual, choices, parse } = settings;
      const option = new Option(flags, description).makeOptionMandatory(required === true);
      if (usual !== undefined) option.default(usual);
      if (choices !== undefined) option.choices(choices);
      // Commander passes the value before as well.
      if (parse !== undefined) option.argParser((text) => parse(text));
      command.addOption(option);
    }
    if (definition.help !== undefined) command.addHelpText("after", definition.help);
    command.action(async (...given: unknown[]) => {
      // Commander passes the arguments, then the options, then the command.
      const words = given.slice(0, -2) as unknown as ArgumentValues<Arguments>;
      const ending = await definition.run(words, given.at(-2) as OptionValues<Options>);
      if (ending !== undefined) process.exitCode = ExitCode[ending];
    });
  };
}

// biome-ignore lint/suspicious/noConfusingVoidType: a command without an answer of its own returns nothing
type Result = Ending | undefined | void;

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

/** Ends the process quietly when the reader of its output, such as `head`, has closed its end. */
export function tolerateClosedOutput(): void {
  process.stdout.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code === "EPIPE") process.exit(process.exitCode ?? 0);
    throw error;
  });
}

/** Resolves when all that was printed has left this process: ending it earlier cuts off what is long. */
export function outputWritten(): Promise<void> {
  return new Promise((resolve) => process.stdout.write("", () => resolve()));
}

/** Prints a command's answer: the value with `--json`, else its text, which ends with a line break. */
export function print({ json }: { readonly json?: boolean | undefined }, value: unknown, text: () => string) {
  if (json === true) printJson(value);
  else printText(text());
}

export const printData = (data: string | Uint8Array): void => void process.stdout.write(data);
export const printText = (text: string): void => printData(printableText(text));
export const printJson = (value: unknown): void => printData(renderJson(value));
export const printError = (text: string): void => void process.stderr.write(printableText(text));
export const say = (text: string): void => printError(`${text}\n`);

export function renderTable(header: readonly string[], rows: readonly (readonly string[])[]): string {
  const all = [header, ...rows.map((row) => row.map(printableLine))];
  const widths = header.map((_, column) => Math.max(...all.map((row) => (row[column] ?? "").length)));
  const lines = all.map((row) => widths.map((width, column) => (row[column] ?? "").padEnd(width)).join("  "));
  return lines.map((line) => `${line.trimEnd()}\n`).join("");
}

/** A table with a line for each value: what stands in a column of it, by the column's heading. */
export function renderRows<T>(all: readonly T[], columns: Readonly<Record<string, (one: T) => string>>) {
  const rows = all.map((one) => Object.values(columns).map((cell) => cell(one)));
  return renderTable(Object.keys(columns), rows);
}

export function tableIfAny(...[header, rows]: Parameters<typeof renderTable>): string {
  return rows.length === 0 ? "" : renderTable(header, rows);
}

/** A value as indented JSON with a final line break; what could act on a terminal is escaped as JSON escapes it. */
export const renderJson = (value: unknown) => `${printableText(JSON.stringify(value, null, 2))}\n`;

export function short(id: string | null | undefined): string {
  if (id === null || id === undefined) return "-";
  return (isDigest(id) ? hexOfDigest(id) : id).slice(0, 12);
}

/** What became of something, with the reason for it where there is one. */
export const withReason = (outcome: string, reason?: string | null): string =>
  reason ? `${outcome} (${reason})` : outcome;

/** Prints an error. @returns how a command ends with it */
export function endWith(error: unknown): Ending {
  printError(renderError(error));
  return endingOf(error);
}

/** An error as the operator sees it, with its hint; a defect of the program keeps its stack. */
export function renderError(error: unknown): string {
  if (error instanceof DrawbridgeError && error.code !== "internal") {
    const hint = error.hint === undefined ? "" : `hint: ${error.hint}\n`;
    return `error: ${error.message}\n${hint}`;
  }
  // A full disk is no defect of the program.
  if (error instanceof Error && /^(ENOSPC|EDQUOT|EROFS|EACCES|EPERM|ELOOP)\b/.test(error.message))
    return `error: ${error.message}\nhint: See that the disk has space and this user the rights, then give the command again.\n`;
  const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
  return `error: ${text}\nhint: This is a defect of Drawbridge; please report it with the lines above.\n`;
}

/** Makes the program for the words after the program's name. */
type Build = (words: readonly string[]) => Command | Promise<Command>;

export async function runCommandLine(build: Build) {
  tolerateClosedOutput();
  const code = await runWords(build, process.argv.slice(2));
  if (code === undefined) return;
  await outputWritten();
  process.exit(code);
}

/** @returns the exit code to end with at once; undefined when the command has set `process.exitCode` by itself */
export async function runWords(build: Build, words: readonly string[]): Promise<number | undefined> {
  try {
    await (await build(words)).parseAsync(words, { from: "user" });
    return undefined;
  } catch (error) {
    // Commander has printed its own message already; requested help is no error.
    if (error instanceof CommanderError) return error.exitCode === 0 ? ExitCode.ok : ExitCode.usage;
    return ExitCode[endWith(error)];
  }
}
