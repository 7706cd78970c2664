// What a benchmark is, and the page that its results make. One file a benchmark: bench/<name>.bench.ts,
// exporting `bench`. Invariants: a number never stands alone: its reference was measured in the same run; what is not
// measured again stays on the page as it is, with its chart.
import { availableParallelism, cpus, totalmem } from "node:os";
import { renderChart } from "./chart.ts";

export interface BenchRow {
  /** What was measured, with its unit: `intake, events/s`. */
  readonly measure: string;
  readonly ours: string;
  /** What it is compared with, measured in the same run. */
  readonly reference: string;
  /** The bar, such as `≥ 0.5 of the reference`, and how this run stands to it. */
  readonly bar: string;
  readonly outcome: string;
  readonly met: boolean;
  /** The same two as numbers of one unit, where a chart can compare them. */
  readonly numbers?: { readonly ours: number; readonly reference: number; readonly unit: string };
}

export interface BenchContext {
  /** A PostgreSQL server of this run's own; each benchmark makes its own databases on it. */
  readonly postgresUrl: string;
  /** How long the soak runs; undefined: as long as it says itself. */
  readonly minutes: number | undefined;
  /** Says on standard error what is going on. */
  progress(message: string): void;
}

export interface Bench {
  readonly name: string;
  /** About how long it takes on a machine of two cores that does nothing else. */
  readonly minutes: number;
  /** What is measured and how, for the page. */
  readonly description: string;
  run(context: BenchContext): Promise<readonly BenchRow[]>;
}

export interface BenchResult {
  readonly bench: Pick<Bench, "description" | "name">;
  readonly rows: readonly BenchRow[];
  /** The machine's load averages over one minute when it began and when it had ended. */
  readonly load: readonly [before: number, after: number];
}

/** The name of a result's chart in docs/images. */
export const chartFile = ({ bench }: Pick<BenchResult, "bench">): string =>
  `bench-${bench.name.toLowerCase().replace(/[^a-z0-9]+/g, "-")}.svg`;

/** The charts of these results by their file names; a result whose rows have no numbers has none. */
export function renderCharts(results: readonly BenchResult[]): ReadonlyMap<string, string> {
  const charts = results.map(
    (result) => [chartFile(result), renderChart(result.bench.name, result.rows)] as const,
  );
  return new Map(charts.filter((chart): chart is [string, string] => chart[1] !== undefined));
}

/**
 * The page docs/reference/benchmarks.md: what was measured now, and of `before`, the page as it is, what was not.
 */
export function renderBenchmarks(results: readonly BenchResult[], before = ""): string {
  const machine = `${cpus()[0]?.model.trim() ?? "unknown processor"}, ${availableParallelism()} cores, ${Math.round(totalmem() / 1024 ** 3)} GiB, ${process.platform}, Node.js ${process.versions.node}`;
  const charts = renderCharts(results);
  const measured = results.map((result) => {
    const { bench, rows, load } = result;
    const file = chartFile(result);
    const chart = charts.has(file)
      ? [`![${bench.name}: Drawbridge beside its reference, as in the table](../images/${file})`, ""]
      : [];
    return [
      `## ${bench.name}`,
      "",
      bench.description,
      "",
      `Measured on ${new Date().toISOString().slice(0, 10)} on ${machine}; load average ${load.map((one) => one.toFixed(1)).join(" before, ")} after.`,
      "",
      "| measure | ours | reference | bar | outcome | met |",
      "|---|---|---|---|---|---|",
      ...rows.map(
        (row) =>
          `| ${row.measure} | ${row.ours} | ${row.reference} | ${row.bar} | ${row.outcome} | ${row.met ? "yes" : "**no**"} |`,
      ),
      "",
      ...chart,
    ].join("\n");
  });
  const sections = new Map(
    [...before.split(/^(?=## )/m).slice(1), ...measured].map((text) => [text.split("\n")[0], text]),
  );
  return [
    "# Benchmarks",
    "",
    "Written by `./task bench --write`. Each number stands beside a reference measured in the same run. A load average far above the number of cores means that other work ran besides, and that times are longer than they would be alone.",
    "",
    ...[...sections.values()].map((text) => `${text.trimEnd()}\n`),
  ].join("\n");
}
