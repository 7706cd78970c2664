// Loaded by each test process. Invariant: a process whose tests have ended ends too, since the runner waits for it for ever:
// after a grace period the file fails, and says what was left open, such as a socket that a failed test did not close.
import { after } from "node:test";
import { isMainThread } from "node:worker_threads";

/** A file's own hooks end its servers meanwhile. */
const GRACE_MS = 60_000;

// Not in the runner itself, whose arguments are the files.
if (isMainThread && process.env["NODE_TEST_CONTEXT"] !== undefined) {
  after(() => {
    const end = () => {
      process.stderr.write(
        `the tests have ended, and the process has not: open are ${process.getActiveResourcesInfo().join(", ")}\n`,
      );
      process.exit(1);
    };
    setTimeout(end, GRACE_MS).unref();
  });
}
