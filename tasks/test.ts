// Unit and integration tests, on one embedded PostgreSQL server that all files share.
// The server is started only when a file needs it (none of tests/unit does).
import { startTestServer, TEST_POSTGRES_URL } from "../tests/support/test-server.ts";
import { runTests, selectFiles } from "./run-tests.ts";
import type { Task } from "./task.ts";

const FOLDERS = ["tests/unit", "tests/integration"];
const FILE_TIMEOUT_MS = 5 * 60_000;

export const task: Task = {
  name: "test",
  summary: "Unit and integration tests; arguments select files, --update rewrites goldens.",
  needs: {},
  async run(args) {
    const files = selectFiles(
      FOLDERS,
      args.filter((argument) => !argument.startsWith("-")),
    );
    const needsServer = files.some((file) => file.startsWith("tests/integration"));
    const server = needsServer && !process.env[TEST_POSTGRES_URL] ? await startTestServer() : undefined;
    try {
      return await runTests({
        folders: FOLDERS,
        args,
        timeoutMs: FILE_TIMEOUT_MS,
        env: server === undefined ? {} : { [TEST_POSTGRES_URL]: server.url },
      });
    } finally {
      await server?.stop();
    }
  },
};
