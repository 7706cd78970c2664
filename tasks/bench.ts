// Runs the benchmarks one after the other, so that none disturbs another. Invariants: each ends within a bound, and the
// programs that it has started end with it; one that fails keeps no other from being measured; with --write a benchmark is
// on the page as soon as it has ended.
import { globSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { loadavg } from "node:os";
import { basename, join } from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { type Bench, type BenchResult, renderBenchmarks, renderCharts } from "../bench/bench.ts";
import { DrawbridgeError } from "../src/domain/errors.ts";
import { Fed } from "../tests/support/lab-session.ts";
import { startTestServer } from "../tests/support/test-server.ts";
import { ROOT } from "./run-program.ts";

const PAGE = join(ROOT, "docs", "reference", "benchmarks.md");
const CHARTS = join(ROOT, "docs", "images");
/** No benchmark runs longer than this many times what it says, and some minutes for starting programs. */
const TIMES_LONGER_MAX = 4;
const STARTING_MINUTES = 5;
const SIGNALS = ["SIGINT", "SIGTERM"] as const;

const USAGE = `
Usage: ./task bench [NAME...] [--short] [--write] [--minutes=N]

Runs the benchmarks whose file names contain one of the names, or all of them, one after the other, each on a database
server of its own, and prints their page on standard output.

  --short      makes each so small that it only shows that it works
  --write      keeps what was measured in docs/reference/benchmarks.md, with charts in docs/images
  --minutes=N  how long the soak runs

  0  every bar was met
  1  one was not, or a benchmark failed
`;

const OPTIONS = {
  short: { type: "boolean", default: false },
  write: { type: "boolean", default: false },
  minutes: { type: "string" },
  help: { type: "boolean", short: "h", default: false },
} as const;

interface FoundBench {
  readonly file: string;
  readonly bench: Bench;
}

export async function runBenchmarks(args: readonly string[]): Promise<number> {
  const { values, positionals } = parse(args);
  const found = await find(values.help ? [] : positionals);
  if (values.help) {
    process.stdout.write(`${USAGE.trim()}\n\n${listed(found)}\n`);
    return 0;
  }
  process.stderr.write(`${values.short ? "the short form of\n" : ""}${listed(found)}\n`);
  const results: BenchResult[] = [];
  const failed: string[] = [];
  const fail = (file: string, error: unknown) => {
    process.stderr.write(`${nameOf(file)} failed: ${(error as Error).stack}\n`);
    failed.push(nameOf(file));
  };
  let isCutShort = false;
  for (const { file, bench } of found) {
    const server = await startTestServer();
    try {
      process.stderr.write(`${bench.name} …\n`);
      const progress = (message: string) => void process.stderr.write(`  ${message}\n`);
      const loadBefore = loadavg()[0] ?? 0;
      const begun = performance.now();
      const rows = await bounded(bench, values.minutes, () =>
        bench.run({ postgresUrl: server.url, minutes: values.minutes, progress }),
      );
      progress(`took ${((performance.now() - begun) / 60_000).toFixed(1)} minutes`);
      results.push({ bench, rows, load: [loadBefore, loadavg()[0] ?? 0] });
      if (values.write) write(results.slice(-1));
    } catch (error) {
      fail(file, error);
      isCutShort = error instanceof CutShort;
    } finally {
      await server.stop();
    }
    // It may still be at work, and would disturb the others.
    if (isCutShort) break;
  }
  process.stdout.write(renderBenchmarks(results));
  if (failed.length > 0) process.stderr.write(`failed: ${failed.join(", ")}\n`);
  if (isCutShort) await endPrograms();
  return failed.length === 0 && results.every(({ rows }) => rows.every(({ met }) => met)) ? 0 : 1;
}

const nameOf = (file: string) => basename(file, ".bench.ts");

async function find(filters: readonly string[]): Promise<readonly FoundBench[]> {
  const files = globSync("bench/*.bench.ts", { cwd: ROOT })
    .sort()
    .filter((file) => filters.length === 0 || filters.some((filter) => file.includes(filter)));
  if (files.length === 0) {
    throw new DrawbridgeError("usage", `no benchmark matches ${filters.join(" ")}`, {
      hint: "`./task bench --help` lists their names.",
    });
  }
  return await Promise.all(
    files.map(async (file) => ({
      file,
      ...((await import(pathToFileURL(join(ROOT, file)).href)) as { bench: Bench }),
    })),
  );
}

/** Their names, and how long each and all of them take. */
function listed(found: readonly FoundBench[]): string {
  const lines = found.map(
    ({ file, bench }) =>
      `  ${nameOf(file).padEnd(15)} ${String(bench.minutes).padStart(3)} min  ${bench.name}`,
  );
  const total = found.reduce((sum, { bench }) => sum + bench.minutes, 0);
  return [...lines, `  ${"together".padEnd(15)} ${String(total).padStart(3)} min  on two quiet cores`].join(
    "\n",
  );
}

class CutShort extends Error {}

/** What a benchmark that did not end has started, labs included. */
async function endPrograms(): Promise<void> {
  for (const thread of readdirSync("/proc/self/task")) {
    const children = readFileSync(`/proc/self/task/${thread}/children`, "utf8").split(" ");
    for (const child of children.filter((one) => one !== "")) process.kill(Number(child), "SIGKILL");
  }
  for (const fed of Fed.open) {
    await fed.task("fed:down", "--purge");
    fed.remove();
  }
}

/** @throws CutShort when it does not end in its time, or this process is told to end */
async function bounded<Result>(
  { name, minutes }: Bench,
  longer: number | undefined,
  run: () => Promise<Result>,
): Promise<Result> {
  const minutesMax = STARTING_MINUTES + TIMES_LONGER_MAX * Math.max(minutes, longer ?? 0);
  const cut = Promise.withResolvers<never>();
  const interrupt = () => cut.reject(new CutShort(`${name} was interrupted`));
  for (const signal of SIGNALS) process.once(signal, interrupt);
  const timer = setTimeout(
    () => cut.reject(new CutShort(`${name} has not ended within ${minutesMax} minutes`)),
    minutesMax * 60_000,
  );
  try {
    return await Promise.race([run(), cut.promise]);
  } finally {
    clearTimeout(timer);
    for (const signal of SIGNALS) process.removeListener(signal, interrupt);
  }
}

function write(results: readonly BenchResult[]): void {
  for (const [file, svg] of renderCharts(results)) writeFileSync(join(CHARTS, file), svg);
  writeFileSync(PAGE, renderBenchmarks(results, readFileSync(PAGE, "utf8")));
}

function parse(args: readonly string[]) {
  const usage = (message: string, hint: string) => new DrawbridgeError("usage", message, { hint });
  const read = () => {
    try {
      return parseArgs({ args: [...args], options: OPTIONS, allowPositionals: true });
    } catch (error) {
      throw usage((error as Error).message, "`./task bench --help` lists the options.");
    }
  };
  const { values, positionals } = read();
  const minutes = values.minutes === undefined ? undefined : Number(values.minutes);
  if (minutes !== undefined && !(minutes > 0)) {
    throw usage(
      `--minutes=${values.minutes} is not a number of minutes`,
      "Write, for example, --minutes=30.",
    );
  }
  if (values.short && values.write) {
    throw usage("what --short measures is not kept", "Leave out --short or --write.");
  }
  return { values: { ...values, minutes }, positionals };
}
