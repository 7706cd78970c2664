// Runs test files with Node.js's own test runner. Invariant: nothing is printed after the runner's closing
// lines, which say how many tests ran.
import { globSync, mkdtempSync, statSync, writeFileSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join, relative, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { DrawbridgeError } from "../src/domain/errors.ts";
import { inMemory } from "./memory-folder.ts";
import { ROOT, runProgram } from "./run-program.ts";

/** What each shared process loads before its files. */
const LOADED_FIRST = "tests/support/git-starter.ts";
/** What each shared process loads before the test runner's own module. */
const LOADED_AT_START = "tasks/no-promise-tracking.ts";
/** What each process loads after that. */
const LOADED_BY_EACH = "tasks/end-test-process.ts";
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
  /** Of each test. */
  readonly timeoutMs: number;
  /**
   * Files share processes, since loading the modules costs many more than their own work, and may not rely on a process
   * of their own. `waiting` are those that leave the processor alone for most of their time: they share one that is started
   * first and runs beside the others.
   */
  readonly sharedProcesses?: { readonly waiting: readonly string[] };
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
    const { concurrency = availableParallelism() } = run;
    const groups =
      run.sharedProcesses === undefined
        ? undefined
        : groupFiles(files, run.sharedProcesses.waiting, concurrency);
    const words = [
      "--test",
      `--test-concurrency=${concurrency + (groups === undefined ? 0 : 1)}`,
      `--test-timeout=${run.timeoutMs}`,
      "--test-reporter=spec",
      ...(groups === undefined ? [] : [`--import=${fileUrl(LOADED_AT_START)}`]),
      `--import=${fileUrl(LOADED_BY_EACH)}`,
      ...options,
      ...(groups ?? files),
    ];
    const { code } = await runProgram(process.execPath, words, { env });
    return code;
  });
}

function fileUrl(path: string): string {
  return pathToFileURL(resolve(ROOT, path)).href;
}

interface Group {
  readonly files: string[];
  /** In bytes. */
  size: number;
}

/**
 * Files that import the given ones, one for each process that runs at a time: a further one would load the same modules for
 * two seconds more. Undefined where there are no more files than processes.
 */
function groupFiles(
  files: readonly string[],
  waiting: readonly string[],
  concurrency: number,
): readonly string[] | undefined {
  if (files.length <= concurrency) return undefined;
  const groups = Array.from({ length: concurrency }, (): Group => ({ files: [], size: 0 }));
  const isWaiting = (file: string) => waiting.includes(file);
  // The size of a file is a fair guess of its time.
  const sizes = files
    .filter((file) => !isWaiting(file))
    .map((file) => ({ file, size: statSync(resolve(ROOT, file)).size }))
    .sort((left, right) => right.size - left.size);
  for (const { file, size } of sizes) {
    const group = groups.reduce((best, one) => (one.size < best.size ? one : best));
    group.files.push(file);
    group.size += size;
  }
  const directory = mkdtempSync(join(tmpdir(), "drawbridge-test-groups-"));
  return [waiting.filter((file) => files.includes(file)), ...groups.map((group) => group.files)].map(
    (group, index) => {
      // The runner sorts its files by path.
      const file = join(directory, `group-${`${index}`.padStart(2, "0")}.test.mjs`);
      const imports = [LOADED_FIRST, ...group].map((path) => `import ${JSON.stringify(fileUrl(path))};`);
      writeFileSync(file, `${imports.join("\n")}\n`);
      return file;
    },
  );
}
