// Unit and integration tests, the border module's in Python among them, on one embedded PostgreSQL server that all files share.
// The server is started only when a file needs it (none of tests/unit does).
import { availableParallelism } from "node:os";
import { startTestServer, TEST_POSTGRES_URL } from "../tests/support/test-server.ts";
import { inMemory } from "./memory-folder.ts";
import { pythonProgram, runProgram } from "./run-program.ts";
import { runTests, selectFiles } from "./run-tests.ts";

const FOLDERS = ["tests/unit", "tests/integration"];
const FILE_TIMEOUT_MS = 5 * 60_000;
/** One more than there are cores, since some files wait for the disk or for time to pass. */
const FILES_AT_ONCE = availableParallelism() + 1;

export function testAll(args: readonly string[]): Promise<number> {
  return inMemory(() => runAll(args));
}

async function runAll(args: readonly string[]): Promise<number> {
  const files = selectFiles(
    FOLDERS,
    args.filter((argument) => !argument.startsWith("-")),
  );
  const border = await testBorder(args);
  if (border !== undefined && (border !== 0 || files.length === 0)) return border;
  const needsServer = files.some((file) => file.startsWith("tests/integration"));
  const server = needsServer && !process.env[TEST_POSTGRES_URL] ? await startTestServer() : undefined;
  try {
    return await runTests({
      folders: FOLDERS,
      args,
      concurrency: FILES_AT_ONCE,
      timeoutMs: FILE_TIMEOUT_MS,
      env: server === undefined ? {} : { [TEST_POSTGRES_URL]: server.url },
    });
  } finally {
    await server?.stop();
  }
}

/** Runs pytest unless other tests were selected; its exit code. A path below border/ selects in it. */
async function testBorder(args: readonly string[]): Promise<number | undefined> {
  const filters = args.filter((argument) => !argument.startsWith("-"));
  const selected = filters.filter((filter) => filter === "border" || filter.startsWith("border/"));
  if (filters.length > 0 && selected.length === 0) return undefined;
  const paths = selected.filter((path) => path !== "border");
  const { code } = await runProgram(pythonProgram("python"), [
    "-m",
    "pytest",
    "--config-file=border/pyproject.toml",
    "--rootdir=border",
    ...(paths.length === 0 ? ["border/tests"] : paths),
  ]);
  return code;
}
