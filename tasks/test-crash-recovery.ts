// Tests that kill programs, ours and the homeserver, at random instants and look at what becomes of their work.
import { CRASH_RUN } from "../tests/support/kills.ts";
import { runTests } from "./run-tests.ts";
import type { Task } from "./task.ts";

const FILE_TIMEOUT_MS = 30 * 60_000;
const SHORT = "--short";

export const task: Task = {
  name: "test:crash-recovery",
  summary: "Kills programs at random instants and has them end their work; --short kills less often.",
  needs: { python: true },
  run(args) {
    const isShort = args.includes(SHORT);
    return runTests({
      folders: ["tests/crash"],
      args: args.filter((argument) => argument !== SHORT),
      timeoutMs: FILE_TIMEOUT_MS,
      env: isShort ? { [CRASH_RUN]: "short" } : {},
    });
  },
};
