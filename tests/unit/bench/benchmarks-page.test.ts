// The page of benchmarks and its charts.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { type BenchRow, renderBenchmarks, renderCharts } from "../../../bench/bench.ts";
import { renderChart } from "../../../bench/chart.ts";

const row = (more: Partial<BenchRow> = {}): BenchRow => ({
  measure: "claims",
  ours: "2 ms",
  reference: "1 ms",
  bar: "≤ 3 ms",
  outcome: "1 ms more",
  met: true,
  ...more,
});
const resultOf = (name: string, rows: readonly BenchRow[]) => ({
  bench: { name, description: `What ${name} is.` },
  rows,
  load: [0, 0] as const,
});
const ms = (ours: number, reference: number) => ({ ours, reference, unit: "ms" });
const widths = (svg: string) =>
  [...svg.matchAll(/width="([\d.]+)" height="15"/g)].map(([, width]) => Number(width));

describe("a chart", () => {
  it("escapes what a measure and a title contain", () => {
    const svg = renderChart(`A & "B"`, [{ measure: "<script>", numbers: ms(1, 2) }]) ?? "";
    assert.doesNotMatch(svg, /<script>|A & /);
    assert.match(svg, /&#60;script&#62;/);
    assert.match(svg, /<title id="title">A &#38; &#34;B&#34;<\/title>/);
  });

  it("draws zero and what is below it as bars without length", () => {
    assert.deepEqual(widths(renderChart("t", [{ measure: "m", numbers: ms(0, 0) }]) ?? ""), [0, 0]);
    assert.deepEqual(widths(renderChart("t", [{ measure: "m", numbers: ms(-1, 4) }]) ?? ""), [0, 600]);
  });

  it("leaves out rows without numbers, and is not made where no row has any", () => {
    const svg = renderChart("t", [{ measure: "with", numbers: ms(1, 2) }, { measure: "without" }]) ?? "";
    assert.match(svg, />with</);
    assert.doesNotMatch(svg, /without/);
    assert.equal(renderChart("t", [{ measure: "without" }]), undefined);
  });

  it("scales the bars of each unit by the longest of that unit", () => {
    const rows = [
      { measure: "a", numbers: ms(1, 2) },
      { measure: "b", numbers: ms(4, 3) },
      { measure: "c", numbers: { ours: 1_000, reference: 500, unit: "per second" } },
    ];
    assert.deepEqual(widths(renderChart("t", rows) ?? ""), [150, 300, 600, 450, 600, 300]);
  });

  it("says its numbers to people who do not see it, and has colours for dark pages", () => {
    const svg = renderChart("Claim", [{ measure: "one", numbers: ms(1.234, 2) }]) ?? "";
    assert.match(svg, /<desc id="desc">[^<]*one: 1\.23 ms beside 2 ms/);
    assert.match(svg, /role="img" aria-labelledby="title desc"/);
    assert.match(svg, /prefers-color-scheme: dark/);
  });
});

describe("the page of benchmarks", () => {
  it("links the chart of a result whose rows have numbers, and no other", () => {
    const results = [
      resultOf("Mention to dispatch", [row({ numbers: ms(2, 1) })]),
      resultOf("Removal", [row()]),
    ];
    assert.deepEqual([...renderCharts(results).keys()], ["bench-mention-to-dispatch.svg"]);
    const page = renderBenchmarks(results);
    assert.deepEqual(page.match(/\(\.\.\/images\/.*\)/g), ["(../images/bench-mention-to-dispatch.svg)"]);
  });

  it("keeps the sections that were not measured again, with their charts and without", () => {
    const before = renderBenchmarks([
      resultOf("Claim", [row({ numbers: ms(2, 1) })]),
      resultOf("Removal", [row()]),
    ]);
    const after = renderBenchmarks([resultOf("Removal", [row({ ours: "5 ms" })])], before);
    assert.match(after, /## Claim.*bench-claim\.svg.*## Removal.*5 ms/s);
    assert.equal(after.match(/^## /gm)?.length, 2);
  });
});
