// How commands print: data to standard output, as text for people or as JSON for scripts; progress to standard
// error. Invariants: all that the CLI prints is printed here; no control character and no mark that reorders or hides
// text reaches a terminal, whatever an identifier holds, except in data that another program reads byte by byte.
import process from "node:process";
import { printableLine, printableText } from "../../domain/printable.ts";

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
export function print(
  { json }: { readonly json?: boolean | undefined },
  value: unknown,
  text: () => string,
): void {
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

export function renderTableIfAny(...[header, rows]: Parameters<typeof renderTable>): string {
  return rows.length === 0 ? "" : renderTable(header, rows);
}

/** A value as indented JSON with a final line break; what could act on a terminal is escaped as JSON escapes it. */
export function renderJson(value: unknown): string {
  return `${printableText(JSON.stringify(value, null, 2))}\n`;
}

export function short(id: string | null | undefined): string {
  return id === null || id === undefined ? "-" : id.replace(/^sha256:/, "").slice(0, 12);
}
