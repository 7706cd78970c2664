// How commands print: data to standard output, as text for people or as JSON for scripts; progress to standard
// error.
import process from "node:process";

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
  { json }: { readonly json: boolean | undefined },
  value: unknown,
  text: () => string,
): void {
  process.stdout.write(json === true ? renderJson(value) : text());
}

/** A line about progress, to standard error. */
export function say(text: string): void {
  process.stderr.write(`${text}\n`);
}

/** Rows in aligned columns under a header line; without trailing blanks. */
export function renderTable(header: readonly string[], rows: readonly (readonly string[])[]): string {
  const all = [header, ...rows];
  const widths = header.map((_, column) => Math.max(...all.map((row) => (row[column] ?? "").length)));
  return all
    .map(
      (row) =>
        `${widths
          .map((width, column) => (row[column] ?? "").padEnd(width))
          .join("  ")
          .trimEnd()}\n`,
    )
    .join("");
}

/** A value as indented JSON with a final line break. */
export function renderJson(value: unknown): string {
  return `${JSON.stringify(value, null, 2)}\n`;
}

/** The first digits of a revision or a digest, enough for a table. */
export function short(id: string | null | undefined): string {
  return id === null || id === undefined ? "-" : id.replace(/^sha256:/, "").slice(0, 12);
}

/** An argument as a shell takes it back. */
export function shellWord(text: string): string {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

// Controls (C1, DEL), and the marks that reorder or hide text on a terminal.
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/** A text of unknown origin as a quoted string that is safe on a terminal, in JSON and in YAML. */
export function quoted(text: string): string {
  return JSON.stringify(text).replace(UNPRINTABLE, (mark) =>
    [...Array(mark.length).keys()]
      .map((index) => `\\u${mark.charCodeAt(index).toString(16).padStart(4, "0")}`)
      .join(""),
  );
}
