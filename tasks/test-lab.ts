// Tests against real servers: Synapse, Envoy, the issuer, the bridge. Each file starts its own; two files at a
// time, because servers that start, and tests that wait for them, leave a core idle.
import { runTests } from "./run-tests.ts";
import type { Task } from "./task.ts";

const FILE_TIMEOUT_MS = 15 * 60_000;

export const task: Task = {
  name: "test:lab",
  summary: "Tests on real Synapse, Envoy and bridge processes; arguments select files.",
  needs: {
    python: true,
  },
  run(args) {
    return runTests({ folders: ["tests/lab"], args, concurrency: 2, timeoutMs: FILE_TIMEOUT_MS });
  },
};
