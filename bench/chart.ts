// The bar charts of the page of benchmarks, as SVG: of each row ours beside its reference. Rows of one unit share a scale.
// Invariant: text is escaped, and no bar is longer than the chart, whatever was measured.

export interface ChartRow {
  readonly measure: string;
  readonly numbers?: { readonly ours: number; readonly reference: number; readonly unit: string } | undefined;
}

const WIDTH = 760;
const BARS_FROM = 12;
const BARS_WIDTH = 600;
const ROW_HEIGHT = 58;
const ROWS_FROM = 62;

const STYLE = `
    text { font: 13px system-ui, sans-serif; fill: #1f2328 }
    .title { font-weight: 600; font-size: 15px }
    .ours { fill: #0969da }
    .reference { fill: #8c959f }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3 }
      .ours { fill: #4493f8 }
      .reference { fill: #6e7681 }
    }`;

const escaped = (text: string) => text.replace(/[&<>"']/g, (character) => `&#${character.codePointAt(0)};`);

const digits = (value: number) =>
  value.toLocaleString("en", { maximumSignificantDigits: value < 100 ? 3 : 5 });

/** Undefined where no row has numbers. */
export function renderChart(title: string, rows: readonly ChartRow[]): string | undefined {
  const drawn = rows.flatMap(({ measure, numbers }) =>
    numbers === undefined ? [] : [{ measure, ...numbers }],
  );
  if (drawn.length === 0) return undefined;
  const longest = new Map<string, number>();
  for (const { unit, ours, reference } of drawn) {
    longest.set(unit, Math.max(longest.get(unit) ?? 0, ours, reference));
  }
  const bar = (value: number, unit: string, kind: "ours" | "reference", y: number) => {
    const scale = longest.get(unit) ?? 0;
    const length = scale > 0 ? (BARS_WIDTH * Math.max(0, value)) / scale : 0;
    return [
      `  <rect class="${kind}" x="${BARS_FROM}" y="${y}" width="${length.toFixed(1)}" height="15" rx="2"/>`,
      `  <text x="${(BARS_FROM + length + 6).toFixed(1)}" y="${y + 12}">${escaped(`${digits(value)} ${unit}`)}</text>`,
    ];
  };
  const bars = drawn.flatMap(({ measure, ours, reference, unit }, index) => {
    const y = ROWS_FROM + index * ROW_HEIGHT;
    return [
      `  <text x="${BARS_FROM}" y="${y}">${escaped(measure)}</text>`,
      ...bar(ours, unit, "ours", y + 6),
      ...bar(reference, unit, "reference", y + 23),
    ];
  });
  const said = drawn.map(
    ({ measure, ours, reference, unit }) =>
      `${measure}: ${digits(ours)} ${unit} beside ${digits(reference)} ${unit}`,
  );
  const height = ROWS_FROM + drawn.length * ROW_HEIGHT;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" role="img" aria-labelledby="title desc">`,
    `  <title id="title">${escaped(title)}</title>`,
    `  <desc id="desc">${escaped(`Drawbridge beside its reference. ${said.join("; ")}.`)}</desc>`,
    `  <style>${STYLE}\n  </style>`,
    `  <text class="title" x="${BARS_FROM}" y="20">${escaped(title)}</text>`,
    `  <rect class="ours" x="${BARS_FROM}" y="30" width="11" height="11"/>`,
    `  <text x="${BARS_FROM + 16}" y="40">Drawbridge</text>`,
    `  <rect class="reference" x="${BARS_FROM + 110}" y="30" width="11" height="11"/>`,
    `  <text x="${BARS_FROM + 126}" y="40">reference of the same run</text>`,
    ...bars,
    "</svg>",
    "",
  ].join("\n");
}
