// How a command line is run to its end, and what it prints: data to standard output, as text for people or as JSON for
// scripts; progress to standard error. Invariants: all that the CLI prints is printed here; no control character and no mark
// that reorders or hides text reaches a terminal, whatever an identifier holds, except in data that programs read by bytes.

import process from "node:process";
import { type Command, CommanderError } from "commander";
import { hexOfDigest, isDigest } from "../../domain/digest.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { printableLine, printableText } from "../../domain/printable.ts";
import { ExitCode, exitCodeOf } from "./exit-codes.ts";

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

export function printText(text: string): void {
  process.stdout.write(printableText(text));
}

export function printJson(value: unknown): void {
  process.stdout.write(renderJson(value));
}

export function printData(data: string | Uint8Array): void {
  process.stdout.write(data);
}

export function printError(text: string): void {
  process.stderr.write(printableText(text));
}

export function say(text: string): void {
  printError(`${text}\n`);
}

export function renderTable(header: readonly string[], rows: readonly (readonly string[])[]): string {
  const all = [header, ...rows.map((row) => row.map(printableLine))];
  const widths = header.map((_, column) => Math.max(...all.map((row) => (row[column] ?? "").length)));
  const lines = all.map((row) => widths.map((width, column) => (row[column] ?? "").padEnd(width)).join("  "));
  return lines.map((line) => `${line.trimEnd()}\n`).join("");
}

/** A table with a line for each value: what stands in a column of it, by the column's heading. */
export function renderRows<One>(
  all: readonly One[],
  columns: Readonly<Record<string, (one: One) => string>>,
) {
  const rows = all.map((one) => Object.values(columns).map((cell) => cell(one)));
  return renderTable(Object.keys(columns), rows);
}

export function renderTableIfAny(...[header, rows]: Parameters<typeof renderTable>): string {
  return rows.length === 0 ? "" : renderTable(header, rows);
}

/** A value as indented JSON with a final line break; what could act on a terminal is escaped as JSON escapes it. */
export function renderJson(value: unknown): string {
  return `${printableText(JSON.stringify(value, null, 2))}\n`;
}

export function short(id: string | null | undefined): string {
  if (id === null || id === undefined) return "-";
  return (isDigest(id) ? hexOfDigest(id) : id).slice(0, 12);
}

/** What became of something, with the reason for it where there is one. */
export function withReason(outcome: string, reason: string | null | undefined): string {
  return reason === null || reason === undefined ? outcome : `${outcome} (${reason})`;
}

/** Prints an error. @returns the exit code that it means */
export function reportError(error: unknown): ExitCode {
  printError(renderError(error));
  return exitCodeOf(error);
}

/** An error as the operator sees it, with its hint; a defect of the program keeps its stack. */
export function renderError(error: unknown): string {
  if (error instanceof DrawbridgeError && error.code !== "internal") {
    const hint = error.hint === undefined ? "" : `hint: ${error.hint}\n`;
    return `error: ${error.message}\n${hint}`;
  }
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
export async function runWords(build: Build, words: readonly string[]): Promise<ExitCode | undefined> {
  try {
    await (await build(words)).parseAsync(words, { from: "user" });
    return undefined;
  } catch (error) {
    // Commander has printed its own message already; requested help is no error.
    if (error instanceof CommanderError) return error.exitCode === 0 ? ExitCode.ok : ExitCode.usage;
    return reportError(error);
  }
}
