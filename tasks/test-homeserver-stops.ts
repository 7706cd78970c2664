// The homeserver stopped under load, as often as one likes.
import { STOPS } from "../tests/support/kills.ts";
import { runTests } from "./run-tests.ts";
import type { Task } from "./task.ts";

const FILE_TIMEOUT_MS = 120 * 60_000;
const TIMES = "--times";

export const task: Task = {
  name: "test:homeserver-stops",
  summary: "Stops a homeserver under load and looks for lost questions; --times N, in each kind of room.",
  needs: { python: true },
  run(args) {
    const at = args.indexOf(TIMES);
    const times = at < 0 ? undefined : args[at + 1];
    return runTests({
      folders: ["tests/crash"],
      args: ["homeserver-stops"],
      timeoutMs: FILE_TIMEOUT_MS,
      env: times === undefined ? {} : { [STOPS]: times },
    });
  },
};
