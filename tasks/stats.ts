// Figures of the sources' size and shape, for comparing two states of the repository.
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { ROOT } from "./run-program.ts";
import { cyclesOf, folderCyclesOf, readImports } from "./structure.ts";

const FOLDERS = ["src", "lab", "examples", "tasks", "tests", "bench"];
const LONG_LINES = 400;

function sizes(folder: string): number[] {
  return globSync(`${folder}/**/*.{ts,py}`, { cwd: ROOT })
    .map((file) => readFileSync(join(ROOT, file), "utf8").split("\n").length - 1)
    .sort((a, b) => a - b);
}

function figures(folder: string) {
  const all = sizes(folder);
  return {
    folder,
    files: all.length,
    lines: all.reduce((sum, lines) => sum + lines, 0),
    medianLines: all[Math.floor(all.length / 2)] ?? 0,
    under40: all.filter((lines) => lines < 40).length,
    over400: all.filter((lines) => lines > LONG_LINES).length,
  };
}

export async function printStats(args: readonly string[]): Promise<number> {
  const folders = FOLDERS.map(figures);
  const graph = readImports(["src"]);
  const totals = {
    fileCycles: cyclesOf(graph).length,
    folderCycles: folderCyclesOf(graph).length,
    testHelpers: globSync("tests/support/**/*.ts", { cwd: ROOT }).length,
  };
  if (args.includes("--json")) {
    process.stdout.write(`${JSON.stringify({ folders, ...totals })}\n`);
    return 0;
  }
  const columns = ["folder", "files", "lines", "medianLines", "under40", "over400"] as const;
  const rows = [[...columns], ...folders.map((row) => columns.map((column) => String(row[column])))];
  for (const row of rows) process.stdout.write(`${row.map((cell) => cell.padStart(12)).join("")}\n`);
  for (const [name, value] of Object.entries(totals)) process.stdout.write(`${name}: ${value}\n`);
  return 0;
}
