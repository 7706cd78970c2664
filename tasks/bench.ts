// Runs the benchmarks one after the other, so that none disturbs another.
import { globSync, readFileSync, writeFileSync } from "node:fs";
import { loadavg } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { type Bench, type BenchResult, renderBenchmarks } from "../bench/bench.ts";
import { DrawbridgeError } from "../src/domain/errors.ts";
import { startTestServer } from "../tests/support/test-server.ts";
import { ROOT } from "./run-program.ts";

const PAGE = join(ROOT, "docs", "reference", "benchmarks.md");

export async function runBenchmarks(args: readonly string[]): Promise<number> {
  const filters = args.filter((argument) => !argument.startsWith("-"));
  const minutes = args.find((argument) => argument.startsWith("--minutes="))?.slice("--minutes=".length);
  if (minutes !== undefined && !(Number(minutes) > 0)) {
    throw new DrawbridgeError("usage", `--minutes=${minutes} is not a number of minutes`, {
      hint: "Write, for example, --minutes=30.",
    });
  }
  const files = globSync("bench/*.bench.ts", { cwd: ROOT })
    .sort()
    .filter((file) => filters.length === 0 || filters.some((filter) => file.includes(filter)));
  if (files.length === 0) {
    throw new DrawbridgeError("usage", `no benchmark matches ${filters.join(" ")}`, {
      hint: "Look into the folder bench for their names.",
    });
  }
  const results: BenchResult[] = [];
  for (const file of files) {
    const { bench } = (await import(pathToFileURL(join(ROOT, file)).href)) as { bench: Bench };
    const server = await startTestServer();
    try {
      process.stderr.write(`${bench.name} …\n`);
      const progress = (message: string) => void process.stderr.write(`  ${message}\n`);
      const loadBefore = loadavg()[0] ?? 0;
      const rows = await bench.run({
        postgresUrl: server.url,
        minutes: minutes === undefined ? undefined : Number(minutes),
        progress,
      });
      results.push({ bench, rows, load: [loadBefore, loadavg()[0] ?? 0] });
    } finally {
      await server.stop();
    }
  }
  process.stdout.write(renderBenchmarks(results));
  if (args.includes("--write")) writeFileSync(PAGE, renderBenchmarks(results, readFileSync(PAGE, "utf8")));
  return results.every(({ rows }) => rows.every(({ met }) => met)) ? 0 : 1;
}
