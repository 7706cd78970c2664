// Runs test files with Node.js's own test runner. Invariant: nothing is printed after the runner's closing
// lines, which say how many tests ran.
import { globSync } from "node:fs";
import { availableParallelism } from "node:os";
import { relative, resolve } from "node:path";
import { DrawbridgeError } from "../src/domain/errors.ts";
import { inMemory } from "./memory-folder.ts";
import { ROOT, runProgram } from "./run-program.ts";

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
  readonly env?: Readonly<Record<string, string>>;
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
  const words = [
    "--test",
    `--test-concurrency=${run.concurrency ?? availableParallelism()}`,
    `--test-timeout=${run.timeoutMs}`,
    "--test-reporter=spec",
    ...options,
    ...files,
  ];
  const env = { ...run.env, ...(run.args.includes("--update") ? { UPDATE_GOLDENS: "1" } : {}) };
  const { code } = await inMemory(() => runProgram(process.execPath, words, { env }));
  return code;
}
