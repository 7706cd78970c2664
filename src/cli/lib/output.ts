// How commands print data: a table for people, JSON for scripts.
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
