// Unit and integration tests, the border module's in Python among them, on one embedded PostgreSQL server that all files share.
// The server is started only when a file needs it (none of tests/unit does).

import { availableParallelism } from "node:os";
import { CLI_VARIABLE } from "../lab/programs.ts";
import { MODEL_RUNS, ORDERS_SEED } from "../tests/support/kills.ts";
import { startTestServer, TEST_POSTGRES_URL } from "../tests/support/test-server.ts";
import { bundleForTests } from "./build.ts";
import { inMemory } from "./memory-folder.ts";
import { type Outcome, pythonProgram, runProgram } from "./run-program.ts";
import { optionValue, runTests, SEED, selectFiles, without } from "./run-tests.ts";

const FOLDERS = ["tests/unit", "tests/integration"];
/** Of a process with the tests of many files, on a machine that is busy with something else. */
const FILE_TIMEOUT_MS = 30 * 60_000;
/** With `--runs`, the random histories of the ledger take as long as is asked for. */
const LONG_FILE_TIMEOUT_MS = 4 * 60 * 60_000;
const RUNS = "--runs";
/** They wait for servers that are down, for pauses between two tries, or for other programs. */
const WAITING = ["tests/integration/federation/commands.test.ts", "tests/unit/toolchain/task-runner.test.ts"];
/** One more than there are cores, since some files wait for the disk or for time to pass. */
const FILES_AT_ONCE = availableParallelism() + 1;

export function testAll(args: readonly string[]): Promise<number> {
  return inMemory(() => runAll(args));
}

async function runAll(words: readonly string[]): Promise<number> {
  const [runs, seed] = [optionValue(words, RUNS), optionValue(words, SEED)];
  const args = without(words, RUNS, runs, SEED, seed);
  const filters = args.filter((argument) => !argument.startsWith("-"));
  const files = selectFiles(FOLDERS, filters);
  const border = testBorder(filters)?.then(({ code, output }) => {
    process.stdout.write(output);
    return code;
  });
  if (border !== undefined && files.length === 0) return await border;
  const needsServer = files.some((file) => file.startsWith("tests/integration"));
  const [bundle, server] = await Promise.all([
    filters.length > 0 ? undefined : bundleForTests(),
    needsServer && !process.env[TEST_POSTGRES_URL] ? startTestServer() : undefined,
  ]);
  try {
    const code = await runTests({
      folders: FOLDERS,
      args,
      concurrency: FILES_AT_ONCE,
      timeoutMs: runs === undefined ? FILE_TIMEOUT_MS : LONG_FILE_TIMEOUT_MS,
      sharedProcesses: { waiting: WAITING },
      env: {
        ...(server === undefined ? {} : { [TEST_POSTGRES_URL]: server.url }),
        ...(runs === undefined ? {} : { [MODEL_RUNS]: runs }),
        ...(seed === undefined ? {} : { [ORDERS_SEED]: seed }),
        ...(bundle === undefined ? {} : { [CLI_VARIABLE]: bundle }),
      },
    });
    return (await border) || code;
  } finally {
    await server?.stop();
  }
}

/** Runs pytest beside the rest unless other tests were selected. A path below border/ selects in it. */
function testBorder(filters: readonly string[]): Promise<Outcome> | undefined {
  const selected = filters.filter((filter) => filter === "border" || filter.startsWith("border/"));
  if (filters.length > 0 && selected.length === 0) return undefined;
  const paths = selected.filter((path) => path !== "border");
  return runProgram(
    pythonProgram("python"),
    [
      "-m",
      "pytest",
      "--config-file=border/pyproject.toml",
      "--rootdir=border",
      ...(paths.length === 0 ? ["border/tests"] : paths),
    ],
    { quiet: true },
  );
}
