// How commands print data: a table for people, JSON for scripts.

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
