// Tests against real servers: Synapse, Envoy, the issuer, the bridge. Each file starts its own; two files at a
// time, because servers that start, and tests that wait for them, leave a core idle.
import { runTests } from "./run-tests.ts";
import type { Task } from "./task.ts";

const FILE_TIMEOUT_MS = 15 * 60_000;
const SHORT = "--short";
/** Minutes each, and beside them what they walk through is walked through by others: left out by `--short`. */
const LONG_FILES = ["tests/lab/offboarding/kept-rooms.test.ts"];

export const task: Task = {
  name: "test:lab",
  summary:
    "Tests on real Synapse, Envoy and bridge processes; arguments select files, --short leaves out the longest.",
  needs: {
    python: true,
  },
  run(args) {
    return runTests({
      folders: ["tests/lab"],
      args: args.filter((argument) => argument !== SHORT),
      except: args.includes(SHORT) ? LONG_FILES : [],
      concurrency: 2,
      timeoutMs: FILE_TIMEOUT_MS,
    });
  },
};
