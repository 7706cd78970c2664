// Loaded into a bridge process before its own code (`node --import`): shifts what its clock says by the milliseconds that
// a file names, which may change while it runs.
// Invariant: only the wall clock is shifted; timers go on as they were.
import { readFileSync } from "node:fs";
import process from "node:process";

/** Names the file. */
export const OFFSET_FILE = "DRAWBRIDGE_TEST_CLOCK_OFFSET_FILE";

const READ_EVERY_MS = 100;
const file = process.env[OFFSET_FILE];

if (file !== undefined) {
  const real = Date.now;
  let offsetMs = 0;
  const read = () => {
    try {
      offsetMs = Number(readFileSync(file, "utf8")) || 0;
    } catch {
      // It is being written.
    }
  };
  read();
  setInterval(read, READ_EVERY_MS).unref();
  Date.now = () => real() + offsetMs;
}
