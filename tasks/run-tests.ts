// Runs test files with Node.js's own test runner. Invariant: nothing is printed after the runner's closing
// lines, which say how many tests ran.
import { globSync, mkdtempSync, statSync, writeFileSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join, relative, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { DrawbridgeError } from "../src/domain/errors.ts";
import { inMemory } from "./memory-folder.ts";
import { ROOT, runProgram } from "./run-program.ts";

/** Processes for the files that may share one. */
const SHARED_PROCESSES = 16;
/** Compiled modules, of which each process that a test file starts loads hundreds. */
const COMPILE_CACHE = join(ROOT, "node_modules", ".cache", "compiled-modules");

export interface TestRun {
  /** Where the files are, such as `tests/unit`. */
  readonly folders: readonly string[];
  /** Files, folders, or parts of a path or of a file's name; and options of `node --test`, from the first `-`. */
  readonly args: readonly string[];
  /** Files that are left out, unless an argument names them. */
  readonly except?: readonly string[];
  /** Test files at a time; by default as many as there are cores. */
  readonly concurrency?: number;
  readonly timeoutMs: number;
  /**
   * Files share processes, since loading the modules costs many more than their own work, and may not rely on a process
   * of their own. `first` are those that take the longest: each has one, and is started before the others.
   */
  readonly sharedProcesses?: { readonly first: readonly string[] };
  readonly env?: Readonly<Record<string, string>>;
}

/** The seed of random orders. */
export const SEED = "--seed";

export function optionValue(args: readonly string[], option: string): string | undefined {
  const position = args.indexOf(option);
  return position < 0 ? undefined : args[position + 1];
}

/** The arguments but these: options, and the values of options. */
export function without(args: readonly string[], ...words: readonly (string | undefined)[]): string[] {
  return args.filter((argument) => !words.includes(argument));
}

/** The test files of `folders` that match one of `filters`, or, without a filter, all of them but `except`. */
export function selectFiles(
  folders: readonly string[],
  filters: readonly string[],
  except: readonly string[] = [],
): string[] {
  const files = folders.flatMap((folder) => globSync(`${folder}/**/*.test.ts`, { cwd: ROOT })).sort();
  if (filters.length === 0) return files.filter((file) => !except.includes(file));
  // A path as the shell completes it, wherever it is absolute or begins with ./
  const wanted = filters.map((filter) => {
    const path = relative(ROOT, resolve(ROOT, filter));
    return path.startsWith("..") ? filter : path;
  });
  return files.filter((file) => wanted.some((part) => file.includes(part)));
}

/** Runs the tests; resolves to the runner's exit code. */
export async function runTests(run: TestRun): Promise<number> {
  const filters = run.args.filter((argument) => !argument.startsWith("-"));
  const options = run.args.filter((argument) => argument.startsWith("-") && argument !== "--update");
  const files = selectFiles(run.folders, filters, run.except);
  if (files.length === 0) {
    throw new DrawbridgeError(
      "usage",
      `no test file in ${run.folders.join(", ")} matches ${filters.join(" ")}`,
      {
        hint: "Give a part of a test file's path, such as ledger or tests/unit/cards.",
      },
    );
  }
  const env = {
    NODE_COMPILE_CACHE: COMPILE_CACHE,
    ...run.env,
    ...(run.args.includes("--update") ? { UPDATE_GOLDENS: "1" } : {}),
  };
  return await inMemory(async () => {
    const words = [
      "--test",
      `--test-concurrency=${run.concurrency ?? availableParallelism()}`,
      `--test-timeout=${run.timeoutMs}`,
      "--test-reporter=spec",
      ...options,
      ...(run.sharedProcesses === undefined ? files : groupFiles(files, run.sharedProcesses.first)),
    ];
    const { code } = await runProgram(process.execPath, words, { env });
    return code;
  });
}

/** The size of a file is a fair guess of its time. */
function longestFirst(files: readonly string[]): string[] {
  const sizes = new Map(files.map((file) => [file, statSync(resolve(ROOT, file)).size]));
  return [...files].sort((a, b) => (sizes.get(b) ?? 0) - (sizes.get(a) ?? 0));
}

/**
 * Replaces the files by a few that import them, unless there are few. They are named by their order, because the runner
 * sorts its files by path.
 */
function groupFiles(files: readonly string[], first: readonly string[]): string[] {
  if (files.length <= SHARED_PROCESSES) return [...files];
  const alone = first.filter((file) => files.includes(file));
  const shared = longestFirst(files.filter((file) => !alone.includes(file)));
  const groups: string[][] = Array.from({ length: SHARED_PROCESSES }, () => []);
  // In turn by size, so that the groups take about as long as one another.
  for (const [index, file] of shared.entries()) groups[index % SHARED_PROCESSES]?.push(file);
  const directory = mkdtempSync(join(tmpdir(), "drawbridge-test-groups-"));
  return [...alone.map((file) => [file]), ...groups].map((group, index) => {
    const file = join(directory, `group-${`${index}`.padStart(2, "0")}.test.mjs`);
    const imports = group
      .sort()
      .map((path) => `import ${JSON.stringify(pathToFileURL(resolve(ROOT, path)).href)};`);
    writeFileSync(file, `${imports.join("\n")}\n`);
    return file;
  });
}
